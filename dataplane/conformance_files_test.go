// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The restore inputs of the repository's cases and logs.

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return paths
}

const casesDir = "../testdata/cases/"

// caseFile is a case: its input, and what its first line says about it.
type caseFile struct {
	name, input string
	pre         string // a case to load before
	sets        []string
	v6          bool
}

func readCase(t testing.TB, name string) caseFile {
	t.Helper()
	text, err := os.ReadFile(casesDir + name)
	if err != nil {
		t.Fatal(err)
	}
	c := caseFile{name: name, input: string(text)}
	head, _, _ := strings.Cut(c.input, "RIGHT:")
	for _, word := range strings.Fields(head) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "fam":
			c.v6 = value == "ip6"
		case "pre":
			c.pre = value
		case "sets":
			for _, set := range strings.Split(value, ",") {
				c.sets = append(c.sets, strings.TrimSuffix(set, ":hash:ip"))
			}
		}
	}
	return c
}

func caseFiles(t testing.TB) []caseFile {
	t.Helper()
	var out []caseFile
	for _, path := range glob(t, casesDir+"*.rules") {
		out = append(out, readCase(t, filepath.Base(path)))
	}
	return out
}

func caseInputs(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, c := range caseFiles(t) {
		out = append(out, c.input)
	}
	return out
}

// logStep is one thing that happens to a kernel in a log: restore input, or sets.
type logStep struct {
	at      time.Duration
	restore string
	sets    []string
}

// logFile is what a log's kernel goes through: seeds, what strangers do, and what was sent
// to it when the log was replayed; for one IP version after the other.
type logFile struct {
	name  string
	steps []logStep
}

type logLine struct {
	At      string
	Seed    []struct{ Restore string }
	Sets    []struct{ Name string }
	Restore string
	Kernel  struct {
		Restore, Holds string
		Sets           []struct{ Name string }
	}
}

func logFiles(t testing.TB) []logFile {
	t.Helper()
	var out []logFile
	for _, path := range glob(t, "../testdata/replay/*.log") {
		name := strings.TrimSuffix(path, ".log")
		steps := logSteps(t, path)
		if _, err := os.Stat(name + ".json"); err == nil {
			steps = append(steps, logSteps(t, name+".json")...)
		}
		slices.SortStableFunc(steps, func(a, b logStep) int { return int(a.at - b.at) })
		out = append(out, logFile{filepath.Base(name), steps})
	}
	return out
}

// logSteps reads a log or the transcript of its replay. What else stands in a line is not
// for us to judge.
func logSteps(t testing.TB, path string) []logStep {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []logStep
	for line := range bytes.Lines(text) {
		var l logLine
		// A line's other fields may have other types in the transcript.
		if err := json.Unmarshal(line, &l); err != nil {
			continue
		}
		at, _ := time.ParseDuration(l.At)
		add := func(restore string, sets ...string) {
			if restore != "" || len(sets) > 0 {
				out = append(out, logStep{at, restore, sets})
			}
		}
		for _, s := range append(l.Sets, l.Kernel.Sets...) {
			add("", s.Name)
		}
		for _, s := range l.Seed {
			add(s.Restore)
		}
		add(l.Kernel.Restore + l.Kernel.Holds)
		add(l.Restore)
	}
	return out
}
