// SPDX-License-Identifier: Apache-2.0

// Testsum reads what "go test -json" prints and shows of it what a person wants to see: a
// line for each package, the output of each test that failed, why a test was skipped, and
// at the end how many passed. It fails when one failed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// line is one line of "go test -json"; see "go doc cmd/test2json".
type line struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Output     string
}

type sum struct {
	passed, failed, skipped int
	output                  map[string][]string // of each test that has not ended, by package and name
	packages                map[string][]string // output that belongs to no test
	failing                 map[string]bool     // packages in which a test has failed
}

func main() {
	s := sum{output: map[string][]string{}, packages: map[string][]string{}, failing: map[string]bool{}}
	in := bufio.NewReader(os.Stdin)
	for {
		text, err := in.ReadString('\n')
		if text != "" {
			s.take(text)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsum:", err)
			os.Exit(1)
		}
	}
	fmt.Printf("tests: %d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	if s.failed > 0 {
		os.Exit(1)
	}
}

func (s *sum) take(text string) {
	var l line
	if json.Unmarshal([]byte(text), &l) != nil {
		fmt.Print(text) // of the go command itself
		return
	}
	switch {
	case l.Action == "build-output":
		fmt.Print(l.Output)
	case l.Action == "output" && l.Test == "":
		s.packages[l.Package] = append(s.packages[l.Package], l.Output)
	case l.Action == "output":
		key := l.Package + " " + l.Test
		s.output[key] = append(s.output[key], l.Output)
	case l.Test != "":
		s.test(l)
	default:
		s.pkg(l)
	}
}

// test counts a test that ends.
func (s *sum) test(l line) {
	key := l.Package + " " + l.Test
	switch l.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		s.failing[l.Package] = true
		fmt.Printf("FAIL %s\n%s", key, strings.Join(s.output[key], ""))
	case "skip":
		s.skipped++
		fmt.Printf("skipped %s\n%s", key, strings.Join(s.output[key], ""))
	default:
		return
	}
	delete(s.output, key)
}

// pkg shows the end of a package. A package that fails without a test that fails (it does
// not build, it panics, it runs out of time) counts as one failure, with all its output.
func (s *sum) pkg(l line) {
	out := s.packages[l.Package]
	switch l.Action {
	case "fail":
		if !s.failing[l.Package] {
			s.failed++
		}
		for key, o := range s.output {
			if strings.HasPrefix(key, l.Package+" ") {
				fmt.Printf("did not end: %s\n%s", key, strings.Join(o, ""))
			}
		}
		fmt.Print(strings.Join(out, ""))
	case "pass", "skip":
		if len(out) > 0 {
			fmt.Print(out[len(out)-1])
		}
	}
}
