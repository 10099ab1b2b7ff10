// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// planned is a message and what its plan against an empty table says of it.
type planned struct {
	*filed
	transaction.Outcome
}

// untried is a table whose rules could not be loaded anywhere, and why.
type untried struct {
	IP     rules.IPVersion `json:"ip"`
	Table  string          `json:"table"`
	Reason string          `json:"reason"`
}

// open opens the kernel, for a scratch namespace and for what there is. Without one the text
// alone is judged.
func (c *checkRun) open(ctx context.Context, a *app) {
	k, err := a.open(ctx, c.flags)
	if err != nil {
		for _, id := range tables(c.set.messages()) {
			c.leave(id, err)
		}
		return
	}
	c.kernel, c.live = k, newLive(ctx, k, c.flags)
	c.live.shy = true
}

func (c *checkRun) close() {
	if c.kernel != nil {
		_ = c.kernel.Close() // what was found stands
	}
}

// extensions are the targets that this host has besides those that are known.
func (c *checkRun) extensions() []string {
	if c.kernel == nil {
		return nil
	}
	return c.kernel.Info().Extensions
}

// leave notes that a table's rules were not tried.
func (c *checkRun) leave(id rules.TableID, err error) {
	reason := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		reason = fmt.Sprintf("%v of %s", errTimeout, c.flags.timeout)
	}
	var re *dataplane.RestoreError
	if errors.As(err, &re) && re.Reason != "" {
		reason = re.Reason
	}
	c.untried = append(c.untried, untried{id.IPVersion, id.Name, reason})
}

// tellUntried says once for each reason that the text alone was judged.
func (c *checkRun) tellUntried() {
	var told []string
	for _, u := range c.untried {
		if !slices.Contains(told, u.Reason) {
			told = append(told, u.Reason)
			fmt.Fprintf(c.stderr, "note: text only: %s\n", u.Reason)
		}
	}
}

// exists tells whether the kernel is known to have a chain.
func (c *checkRun) exists(id rules.TableID, chain string) bool {
	return c.live != nil && c.live.exists(id, chain)
}

// origin is where a rule of a batch comes from.
type origin struct {
	m    *filed
	rule rules.Rule
}

// trial is a batch and where its rules come from.
type trial struct {
	dataplane.Batch
	chains map[string][]origin // by the rules' place in the batch
	heads  map[string]*filed   // who writes the chain
}

// try loads the rules of one table in a scratch namespace. What the plan has refused is left
// out: it has its finding.
func (c *checkRun) try(ctx context.Context, id rules.TableID, msgs []planned) {
	if c.kernel == nil || len(msgs) == 0 {
		return
	}
	t := newTrial(msgs)
	names := map[string]bool{}
	for name := range t.heads {
		names[name] = true
	}
	rewritten := map[string]bool{}
	for _, chain := range t.Chains {
		rewritten[chain.Name] = true
	}
	if snap := c.live.snapshot(id); snap != nil {
		t.Around = without(around(*snap, names), rewritten)
	}
	verdicts, err := c.kernel.Check(ctx, id, withTargets(t.Batch))
	if err != nil {
		c.leave(id, err)
		return
	}
	for _, v := range verdicts {
		c.verdict(t, v)
	}
}

// newTrial gathers what the messages make the chains hold. Of a refused message only the
// rule at fault is left out, or all if none is named.
func newTrial(msgs []planned) *trial {
	t := &trial{chains: map[string][]origin{}, heads: map[string]*filed{}}
	for _, p := range msgs {
		if p.Err != nil && p.Err.Rule == "" {
			continue
		}
		switch b := p.Body.(type) {
		case transaction.RewriteChains:
			for _, chain := range b.Chains {
				if t.heads[chain.Name] == nil {
					t.Chains = append(t.Chains, rules.Chain{Name: chain.Name, Rules: t.rules(p, chain.Name, chain.Rules)})
				}
			}
		case transaction.EditRules:
			var rs []rules.Rule
			for _, e := range b.Edits {
				if e.Op < transaction.Remove {
					rs = append(rs, e.Rule)
				}
			}
			t.addKernel(b.Chain, t.rules(p, b.Chain, rs))
		}
	}
	return t
}

// rules notes where a chain's rules come from and returns those to be tried.
func (t *trial) rules(p planned, chain string, rs []rules.Rule) []rules.Rule {
	t.heads[chain] = p.filed
	var out []rules.Rule
	for _, r := range rs {
		if p.Err != nil && p.Err.Rule == r.String() {
			continue
		}
		out = append(out, r)
		t.chains[chain] = append(t.chains[chain], origin{p.filed, r})
	}
	return out
}

func (t *trial) addKernel(chain string, rs []rules.Rule) {
	if i := slices.IndexFunc(t.Kernel, func(c rules.Chain) bool { return c.Name == chain }); i >= 0 {
		t.Kernel[i].Rules = append(t.Kernel[i].Rules, rs...)
		return
	}
	t.Kernel = append(t.Kernel, rules.Chain{Name: chain, Rules: rs})
}

// verdict turns what the scratch namespace says into a finding or a note.
func (c *checkRun) verdict(t *trial, v dataplane.Verdict) {
	reason, note := "not tried: "+v.Skipped, true
	if v.Err != nil {
		reason, note = v.Err.Reason, false
		if v.Hook != "" {
			reason += ", reached from " + v.Hook
		}
	}
	if v.Index < 0 || v.Index >= len(t.chains[v.Chain]) {
		if m := t.heads[v.Chain]; m != nil {
			c.add(m.file, rulefile.Finding{Line: m.Head, Column: max(m.Head.Column, 1), Reason: reason}, note)
		}
		return
	}
	o := t.chains[v.Chain][v.Index]
	line, _ := o.m.Find(v.Chain, o.rule.String(), 0)
	c.add(o.m.file, rulefile.Finding{Line: line, Column: rulefile.QuotedColumn(line, reason), Reason: reason}, note)
}
