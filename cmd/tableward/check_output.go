// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
)

type checkOutput struct {
	Schema   string        `json:"schema"`
	Command  string        `json:"command"`
	Backend  string        `json:"backend,omitempty"`
	OK       bool          `json:"ok"`
	Scratch  bool          `json:"scratch"` // all rules were tried in a scratch namespace
	Untried  []untried     `json:"untried"` // tables of which the text alone was judged
	Files    []checkedFile `json:"files"`
	Findings []jsonPlace   `json:"findings"`
	Notes    []jsonPlace   `json:"notes"`
	Refused  []jsonPlace   `json:"refused"`
}

type checkedFile struct {
	File     string `json:"file"`
	Owner    string `json:"owner"`
	Messages int    `json:"messages"`
}

func (c *checkRun) print(stdout io.Writer, code int) error {
	if c.flags.json() {
		return writeJSON(stdout, c.json(code))
	}
	w := bufio.NewWriter(stdout)
	for _, e := range c.set.refused {
		fmt.Fprintf(w, "refused: %v\n", e)
	}
	findings := 0
	for _, f := range c.set.files {
		for _, x := range c.sorted(f) {
			word := "finding"
			if x.note {
				word = "note"
			} else {
				findings++
			}
			fmt.Fprintf(w, "%s: %s\n", word, locateFinding(f, x.Finding))
		}
	}
	fmt.Fprintf(w, "%s: %s, %d refused\n", plural(len(c.set.names), "file"), plural(findings, "finding"), len(c.set.refused))
	return w.Flush()
}

// sorted returns what was found in a file, by place.
func (c *checkRun) sorted(f *rulefile.File) []found {
	slices.SortStableFunc(c.found[f], func(a, b found) int { return a.Line.Number - b.Line.Number })
	return c.found[f]
}

func (c *checkRun) json(code int) checkOutput {
	out := checkOutput{
		Schema: schema, Command: "check", OK: code == exitOK, Scratch: len(c.untried) == 0, Untried: []untried{},
		Files: []checkedFile{}, Findings: []jsonPlace{}, Notes: []jsonPlace{}, Refused: jsonRefused(c.set.refused),
	}
	if c.kernel != nil {
		out.Backend = c.kernel.Info().Backend
	}
	out.Untried = append(out.Untried, c.untried...)
	for _, f := range c.set.files {
		out.Files = append(out.Files, checkedFile{f.Name, f.Owner, len(f.Messages)})
		for _, x := range c.sorted(f) {
			place := placeOf(f, x.Finding)
			if x.note {
				out.Notes = append(out.Notes, place)
			} else {
				out.Findings = append(out.Findings, place)
			}
		}
	}
	return out
}
