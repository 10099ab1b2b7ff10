// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

func (a *app) checkCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "check FILE|DIR|- ...",
		Short: "Look for mistakes in rules files without touching the kernel's tables",
		Long: `Check parses rules files, plans them together, and loads their rules in a scratch network
namespace where one can be had: what would be refused or rejected is a finding, and so is
what is odd. What depends on the kernel at the time is a note. The live tables are not
touched; where they can be read, chains and sets that they lack are findings.

A scratch namespace takes root or a user who may make user namespaces. Where none can be
had, or the tools are absent, the text alone is judged, and that is said.

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
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			c := &checkRun{flags: &f, set: set, found: map[*rulefile.File][]found{}, stderr: cmd.ErrOrStderr()}
			c.open(ctx, a)
			defer c.close()
			return c.run(ctx, cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	f.addTake(cmd)
	return cmd
}

// checkRun is one run of check.
type checkRun struct {
	flags   *flags
	set     *fileSet
	kernel  kernel // nil where there is none
	live    *live  // nil where there is no kernel
	found   map[*rulefile.File][]found
	untried []untried
	stderr  io.Writer
}

// found is a finding, or a note of what depends on the kernel.
type found struct {
	rulefile.Finding
	note bool
}

func (c *checkRun) run(ctx context.Context, stdout io.Writer) error {
	for _, f := range c.set.files {
		for _, finding := range f.Findings {
			c.add(f, finding, false)
		}
		if c.live != nil {
			for _, finding := range c.live.contested(f) {
				c.add(f, finding, false)
			}
		}
	}
	c.hooks()
	msgs := c.set.messages()
	for _, id := range tables(msgs) {
		c.try(ctx, id, c.plan(id, msgs))
	}
	c.tellUntried()
	code := exitOK
	for _, f := range c.set.files {
		if slices.ContainsFunc(c.found[f], func(x found) bool { return !x.note }) {
			code = exitFindings
		}
	}
	if len(c.set.refused) > 0 {
		code = exitUsage
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = exitInterrupted
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
			if isChainTarget(h, c.extensions()) && !declared[h.Table][h.Target] && !c.exists(h.Table, h.Target) {
				c.add(f, rulefile.Finding{Line: h.Line, Column: h.Column, Reason: fmt.Sprintf(
					"chain %s is declared by no file: where it does not exist, apply refuses this file", h.Target)}, c.flags.stubMissing)
			}
		}
	}
}

// plan plans the messages of one table against an empty one: what is refused then is refused
// in every kernel, but for what a kernel chain's rules jump to (see hooks). It returns the
// messages and what became of them.
func (c *checkRun) plan(id rules.TableID, all []*filed) []planned {
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
	if c.flags.backend == "legacy" || c.kernel != nil && c.kernel.Info().MaxDepth == 0 {
		cfg.MaxDepth = 0
	}
	switch {
	case c.kernel != nil:
		cfg.Backend = c.kernel.Info().Kernel()
	case c.flags.backend == "nft" || c.flags.backend == "legacy":
		cfg.Backend = c.flags.backend
	}
	cfg.Extensions = c.extensions()
	for chain := range c.set.declared()[id] {
		cfg.OwnChains = append(cfg.OwnChains, chain)
	}
	state, err := transaction.NewState(cfg)
	if err != nil {
		return nil // the parser knows no other tables
	}
	state.Observe(emptyTable(id))
	txn, outcomes := state.Propose(plain)
	out := make([]planned, len(msgs))
	for i, o := range outcomes {
		c.judge(msgs[i], o)
		out[i] = planned{msgs[i], o}
	}
	state.Commit(txn)
	c.stubs(msgs, state)
	return out
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
	case o.Result == transaction.Waiting && !c.exists(m.Table, m.Head.Chain):
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
			key := m.file.Name + "\x00" + target
			if slices.Contains(stubs, target) && !told[key] && !c.exists(m.Table, target) {
				told[key] = true
				c.add(m.file, rulefile.Finding{Line: l, Column: rulefile.TargetColumn(l), Reason: fmt.Sprintf(
					"chain %s is declared by no file: where it does not exist it becomes a stub, which %s", target, stubEffect(m.Table))}, true)
			}
		}
	}
}
