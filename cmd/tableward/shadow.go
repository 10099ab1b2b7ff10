// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// shadowKernel reads a kernel and writes to a copy of what was read, each rule as the tools
// read it back: what it holds in the end is what the kernel would hold. What the kernel would
// refuse is tried in a scratch namespace, where one can be had.
type shadowKernel struct {
	kernel

	mu       sync.Mutex // guards what follows
	before   map[rules.TableID]rules.Snapshot
	after    map[rules.TableID]rules.Snapshot
	textOnly bool // a rule's own text was taken, since the tools could not be asked
}

func newShadow(k kernel) *shadowKernel {
	return &shadowKernel{kernel: k, before: map[rules.TableID]rules.Snapshot{}, after: map[rules.TableID]rules.Snapshot{}}
}

// Read returns the copy, in full. The kernel is read once.
func (s *shadowKernel) Read(ctx context.Context, id rules.TableID, _ ...string) (rules.Snapshot, error) {
	s.mu.Lock()
	snap, known := s.after[id]
	s.mu.Unlock()
	if known {
		return snap, nil
	}
	snap, err := s.kernel.Read(ctx, id)
	if err != nil {
		return snap, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[id], s.after[id] = snap, snap
	return snap, nil
}

// Canon is the kernel's; it notes that there was nobody to ask.
func (s *shadowKernel) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	canons, err := s.kernel.Canon(ctx, id, rs)
	if errors.Is(err, dataplane.ErrNoScratch) {
		s.mu.Lock()
		s.textOnly = true
		s.mu.Unlock()
	}
	return canons, err
}

// Restore applies a block to the copy, as a whole or not at all.
func (s *shadowKernel) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	parsed, err := rules.ParseRestore(input)
	if err != nil {
		return err
	}
	lines := parsed.Blocks[0].Lines
	if err := s.try(ctx, id, lines); err != nil {
		return err
	}
	canons, err := s.canons(ctx, id, lines)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := shadowTable{id: id, chains: maps.Clone(s.after[id].Chains)}
	for _, l := range lines {
		if err := w.apply(l, canons[l.Rule.String()]); err != nil {
			return err
		}
	}
	s.after[id] = rules.Snapshot{Table: id, Chains: w.chains}
	return nil
}

// try refuses a block with a line that the kernel would refuse.
func (s *shadowKernel) try(ctx context.Context, id rules.TableID, lines []rules.Line) error {
	declared := map[string]bool{}
	at := map[string][]rules.Line{} // of each chain: the lines that put a rule in
	for _, l := range lines {
		switch l.Command {
		case rules.Declare:
			declared[l.Chain] = !rules.IsBuiltin(id.Name, l.Chain)
		case rules.Append, rules.Insert:
			at[l.Chain] = append(at[l.Chain], l)
		}
	}
	if len(at) == 0 {
		return nil
	}
	var b dataplane.Batch
	names := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		names[name] = true
		c := rules.Chain{Name: name}
		for _, l := range at[name] {
			c.Rules = append(c.Rules, l.Rule)
		}
		if declared[name] {
			b.Chains = append(b.Chains, c)
		} else {
			b.Kernel = append(b.Kernel, c)
		}
	}
	s.mu.Lock()
	b.Around = without(around(s.after[id], names), declared)
	s.mu.Unlock()
	verdicts, err := s.kernel.Check(ctx, id, withTargets(b))
	if errors.Is(err, dataplane.ErrNoScratch) {
		return nil // what apply would be told is not known
	}
	for _, v := range verdicts {
		if v.Err == nil {
			continue
		}
		re := *v.Err
		re.Class = dataplane.RejectedSomewhere
		if v.Index >= 0 {
			l := at[v.Chain][v.Index]
			re.Class, re.Line, re.Text = dataplane.Rejected, l.Number, l.Text
		}
		return &re
	}
	return err
}

// canons returns what each rule of a block reads back as.
func (s *shadowKernel) canons(ctx context.Context, id rules.TableID, lines []rules.Line) (map[string]rules.Canon, error) {
	var rs []rules.Rule
	for _, l := range lines {
		if !l.Rule.IsZero() {
			rs = append(rs, l.Rule)
		}
	}
	if len(rs) == 0 {
		return nil, nil
	}
	out := make(map[string]rules.Canon, len(rs))
	canons, err := s.Canon(ctx, id, rs)
	switch {
	case errors.Is(err, dataplane.ErrNoScratch):
		for _, r := range rs {
			out[r.String()] = rules.Canon{r.String()}
		}
	case err != nil:
		return nil, err
	}
	for i, c := range canons {
		out[rs[i].String()] = c
	}
	return out, nil
}

// shadowTable is a table that a block is being applied to. The chains' slices are never
// changed in place: the snapshots share them.
type shadowTable struct {
	id     rules.TableID
	chains map[string]rules.SavedChain
}

func (w *shadowTable) apply(l rules.Line, canon rules.Canon) error {
	c, found := w.chains[l.Chain]
	switch l.Command {
	case rules.Declare:
		w.declare(l, c, found)
		return nil
	case rules.DeleteChain:
		return w.deleteChain(l)
	}
	switch {
	case !found:
		return refusedLine(l, "chain %s does not exist", l.Chain)
	case len(canon) == 0:
		return refusedLine(l, "the tool refuses this rule")
	}
	switch l.Command {
	case rules.Append:
		c.Rules = slices.Concat(c.Rules, savedRules(canon))
	case rules.Insert: // each of several goes to the head
		added := savedRules(canon)
		slices.Reverse(added)
		c.Rules = slices.Concat(added, c.Rules)
	case rules.Delete:
		for _, text := range canon {
			i := slices.IndexFunc(c.Rules, func(r rules.SavedRule) bool { return r.Text == text })
			if i < 0 {
				return refusedLine(l, "chain %s does not hold this rule", l.Chain)
			}
			c.Rules = slices.Concat(c.Rules[:i], c.Rules[i+1:])
		}
	default:
		return refusedLine(l, "not a line that is planned")
	}
	w.set(c)
	return nil
}

func (w *shadowTable) declare(l rules.Line, c rules.SavedChain, found bool) {
	switch {
	case !found:
		w.set(rules.SavedChain{Name: l.Chain})
	case !rules.IsBuiltin(w.id.Name, l.Chain):
		c.Rules = nil
		w.set(c)
	case l.Policy != "" && l.Policy != "-":
		c.Policy = l.Policy
		w.set(c)
	}
}

func (w *shadowTable) deleteChain(l rules.Line) error {
	for _, c := range w.chains {
		if slices.Contains(c.Jumps, l.Chain) {
			return refusedLine(l, "chain %s jumps to chain %s", c.Name, l.Chain)
		}
	}
	delete(w.chains, l.Chain)
	return nil
}

// set stores a chain with what follows from its rules.
func (w *shadowTable) set(c rules.SavedChain) {
	var jumps []string
	for _, r := range c.Rules {
		name := r.Rule.Jump()
		if _, isChain := w.chains[name]; isChain {
			jumps = append(jumps, name)
		}
	}
	slices.Sort(jumps)
	c.Full, c.Digest, c.Jumps = true, 0, slices.Compact(jumps)
	w.chains[c.Name] = c
}

func savedRules(canon rules.Canon) []rules.SavedRule {
	out := make([]rules.SavedRule, len(canon))
	for i, text := range canon {
		r, err := rules.ParseRule(text)
		out[i] = rules.SavedRule{Text: text, Rule: r, Err: err}
	}
	return out
}

func refusedLine(l rules.Line, format string, args ...any) error {
	return &dataplane.RestoreError{Class: dataplane.Rejected, Line: l.Number, Text: l.Text, Reason: fmt.Sprintf(format, args...)}
}
