// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

func checkCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "check FILE|DIR|- ...",
		Short: "Look for mistakes in rules files without touching the kernel",
		Long: `Check parses rules files and plans them together against empty tables: what would be
refused or rejected whatever the kernel holds is a finding, and so is what is odd. What
depends on the kernel is a note.

Exit status: 0 good, 1 findings, 2 a file that cannot be read or parsed.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			set, err := loadFiles(args, cmd.InOrStdin(), &f)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			c := &checkRun{flags: &f, set: set, found: map[*rulefile.File][]found{}}
			return c.run(cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	return cmd
}

// checkRun is one run of check.
type checkRun struct {
	flags *flags
	set   *fileSet
	found map[*rulefile.File][]found
}

// found is a finding, or a note of what depends on the kernel.
type found struct {
	rulefile.Finding
	note bool
}

type checkOutput struct {
	Schema   string        `json:"schema"`
	Command  string        `json:"command"`
	OK       bool          `json:"ok"`
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

func (c *checkRun) run(stdout io.Writer) error {
	for _, f := range c.set.files {
		for _, finding := range f.Findings {
			c.add(f, finding, false)
		}
	}
	c.hooks()
	msgs := c.set.messages()
	for _, id := range tables(msgs) {
		c.plan(id, msgs)
	}
	code := exitOK
	for _, f := range c.set.files {
		if slices.ContainsFunc(c.found[f], func(x found) bool { return !x.note }) {
			code = exitFindings
		}
	}
	if len(c.set.refused) > 0 {
		code = exitUsage
	}
	if err := c.print(stdout, code); err != nil {
		return &exitError{exitUsage, err}
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

func (c *checkRun) add(f *rulefile.File, finding rulefile.Finding, note bool) {
	c.found[f] = append(c.found[f], found{finding, note})
}

// hooks finds rules of kernel chains that jump to what no file declares: apply refuses such
// a file where the kernel lacks the chain.
func (c *checkRun) hooks() {
	declared := c.set.declared()
	for _, f := range c.set.files {
		for _, h := range f.Hooks {
			if isChainTarget(h, nil) && !declared[h.Table][h.Target] {
				c.add(f, rulefile.Finding{Line: h.Line, Column: h.Column, Reason: fmt.Sprintf(
					"chain %s is declared by no file: where it does not exist, apply refuses this file", h.Target)}, c.flags.stubMissing)
			}
		}
	}
}

// plan plans the messages of one table against an empty one: what is refused then is refused
// in every kernel, but for what a kernel chain's rules jump to (see hooks).
func (c *checkRun) plan(id rules.TableID, all []*filed) {
	var msgs []*filed
	var plain []transaction.Message
	for _, m := range all {
		if m.Table == id {
			msgs = append(msgs, m)
			plain = append(plain, withStubs(m.Message.Message))
		}
	}
	// Without prefixes, since what is absent here may be there in a kernel: a note, and no
	// more.
	cfg := transaction.Config{Table: id, MaxDepth: maxDepth}
	if c.flags.backend == "legacy" {
		cfg.MaxDepth = 0
	}
	for chain := range c.set.declared()[id] {
		cfg.OwnChains = append(cfg.OwnChains, chain)
	}
	state, err := transaction.NewState(cfg)
	if err != nil {
		return // the parser knows no other tables
	}
	state.Observe(emptyTable(id))
	txn, outcomes := state.Propose(plain)
	for i, o := range outcomes {
		c.judge(msgs[i], o)
	}
	state.Commit(txn)
	c.stubs(msgs, state)
}

// maxDepth is how many user chains nf_tables takes in a row.
const maxDepth = 15

// withStubs lets a message make stubs, so that what depends on the kernel does not hide
// what does not.
func withStubs(m transaction.Message) transaction.Message {
	if b, ok := m.Body.(transaction.EditRules); ok {
		b.NoStub = false
		m.Body = b
	}
	return m
}

func (c *checkRun) judge(m *filed, o transaction.Outcome) {
	switch {
	case o.Err != nil:
		line, column := m.Find(o.Err.Chain, o.Err.Rule, o.Err.Column)
		c.add(m.file, rulefile.Finding{Line: line, Column: column, Reason: o.Err.Reason}, false)
	case o.Result == transaction.Waiting:
		c.add(m.file, rulefile.Finding{Line: m.Head, Column: max(m.Head.Column, 1), Reason: fmt.Sprintf(
			"chain %s is neither built in nor declared by the file: where it does not exist, apply waits for it", m.Head.Chain)}, true)
	}
}

// stubs notes the chains that would be stubs in an empty table, once for each file.
func (c *checkRun) stubs(msgs []*filed, state *transaction.State) {
	stubs := state.Stubs()
	told := map[string]bool{}
	for _, m := range msgs {
		if _, ok := m.Body.(transaction.RewriteChains); !ok {
			continue
		}
		for _, l := range m.Rules {
			target := l.Rule.Jump()
			if key := m.file.Name + "\x00" + target; slices.Contains(stubs, target) && !told[key] {
				told[key] = true
				c.add(m.file, rulefile.Finding{Line: l, Column: rulefile.TargetColumn(l), Reason: fmt.Sprintf(
					"chain %s is declared by no file: where it does not exist it becomes a stub, which %s", target, stubEffect(m.Table))}, true)
			}
		}
	}
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
		Schema: schema, Command: "check", OK: code == exitOK,
		Files: []checkedFile{}, Findings: []jsonPlace{}, Notes: []jsonPlace{}, Refused: jsonRefused(c.set.refused),
	}
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
