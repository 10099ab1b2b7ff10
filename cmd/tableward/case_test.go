// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tableward/tableward/rules"
)

// ruleCase is a file below testdata/cases. Its first line says what is right:
//
//	fam=ip|ip6  the IP version
//	tw=ok|refused:LINE|rejected[:CHAIN]  what Tableward does
//	sets=NAME:hash:ip,...  ipsets that exist before
//	pre=FILE  what is loaded before
type ruleCase struct {
	path, name string
	v          rules.IPVersion
	want, arg  string // of tw
	line       int    // the line at fault, 0 where it is not said
	sets       []string
	pre        string
	data       []byte
}

var headerField = regexp.MustCompile(`(\w+)=(\S+)`)

func loadCases(t *testing.T, v rules.IPVersion) []ruleCase {
	t.Helper()
	paths, err := filepath.Glob("../../testdata/cases/*.rules")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var out []ruleCase
	for _, path := range paths {
		if c := loadCase(t, path); c.v == v {
			out = append(out, c)
		}
	}
	return out
}

func loadCase(t *testing.T, path string) ruleCase {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := ruleCase{path: path, name: filepath.Base(path), v: rules.IPv4, data: data}
	header, _, _ := strings.Cut(string(data), "RIGHT:")
	for _, m := range headerField.FindAllStringSubmatch(header, -1) {
		switch m[1] {
		case "fam":
			if m[2] == "ip6" {
				c.v = rules.IPv6
			}
		case "tw":
			c.want, c.arg, _ = strings.Cut(m[2], ":")
		case "line":
			c.line, _ = strconv.Atoi(m[2])
		case "pre":
			c.pre = filepath.Join(filepath.Dir(path), m[2])
		case "sets":
			for _, s := range strings.Split(m[2], ",") {
				c.sets = append(c.sets, strings.TrimSuffix(s, ":hash:ip"))
			}
		}
	}
	return c
}
