// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// around returns what of a table has to do with chains: all that reaches them and all that
// they reach, with the jumps only.
func around(snap rules.Snapshot, names map[string]bool) []rules.Chain {
	reached := map[string]bool{}
	closure(names, reached, func(c string) []string { return snap.Chains[c].Jumps })
	callers := map[string][]string{}
	for name, c := range snap.Chains {
		for _, target := range c.Jumps {
			callers[target] = append(callers[target], name)
		}
	}
	closure(names, reached, func(c string) []string { return callers[c] })
	var out []rules.Chain
	for _, name := range slices.Sorted(maps.Keys(reached)) {
		c, exists := snap.Chains[name]
		if !exists {
			continue
		}
		chain := rules.Chain{Name: name}
		for _, r := range c.Rules {
			if r.Rule.Jump() != "" {
				chain.Rules = append(chain.Rules, r.Rule)
			}
		}
		out = append(out, chain)
	}
	return out
}

// closure adds all that names lead to.
func closure(names, reached map[string]bool, next func(string) []string) {
	queue := slices.Collect(maps.Keys(names))
	seen := maps.Clone(names)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		reached[name] = true
		for _, n := range next(name) {
			if !seen[n] {
				seen[n] = true
				queue = append(queue, n)
			}
		}
	}
}

// withTargets adds the chains that the rules of a batch jump to and that it does not name,
// empty, so that the jumps can be loaded.
func withTargets(b dataplane.Batch) dataplane.Batch {
	named := map[string]bool{}
	for _, c := range slices.Concat(b.Chains, b.Kernel, b.Around) {
		named[c.Name] = true
	}
	for _, c := range slices.Concat(b.Chains, b.Kernel) {
		for _, r := range c.Rules {
			if target := r.Jump(); target != "" && !named[target] {
				named[target] = true
				b.Around = append(b.Around, rules.Chain{Name: target})
			}
		}
	}
	return b
}

// without leaves chains out.
func without(chains []rules.Chain, names map[string]bool) []rules.Chain {
	return slices.DeleteFunc(chains, func(c rules.Chain) bool { return names[c.Name] })
}

// Check tries a batch in a simulator of its own, rule by rule.
func (s simulator) Check(ctx context.Context, id rules.TableID, b dataplane.Batch) ([]dataplane.Verdict, error) {
	sim := dataplane.NewSim(dataplane.Backend(s.Info().Emulates))
	block := rules.Block{Table: id.Name}
	for _, c := range slices.Concat(b.Chains, b.Around, b.Kernel) {
		if !rules.IsBuiltin(id.Name, c.Name) {
			block.Lines = append(block.Lines, rules.Line{Command: rules.Declare, Chain: c.Name})
		}
	}
	if err := sim.Restore(ctx, id, rules.AppendRestore(nil, block)); err != nil {
		return nil, err
	}
	for _, c := range slices.Concat(b.Chains, b.Kernel) {
		for _, r := range c.Rules {
			s.copySets(sim, id, r)
		}
	}
	for _, c := range b.Around {
		for _, r := range c.Rules {
			// What is there already is not at fault.
			_ = sim.Restore(ctx, id, oneRule(id, c.Name, r))
		}
	}
	var out []dataplane.Verdict
	for _, c := range slices.Concat(b.Chains, b.Kernel) {
		for i, r := range c.Rules {
			var re *dataplane.RestoreError
			if err := sim.Restore(ctx, id, oneRule(id, c.Name, r)); errors.As(err, &re) {
				out = append(out, dataplane.Verdict{Chain: c.Name, Index: i, Err: re})
			}
		}
	}
	return out, nil
}

// copySets makes the sets that a rule names exist where the simulator has them. It is asked
// by a block that is refused in any case, so that nothing is written: for its first line
// where there is no such set, else for its second.
func (s simulator) copySets(sim *dataplane.Sim, id rules.TableID, r rules.Rule) {
	for _, name := range r.Sets() {
		asks := rules.AppendWord([]byte("*"+id.Name+"\n-A OUTPUT -m set --match-set "), name)
		err := s.Load(id.IPVersion, append(asks, " src\n-A OUTPUT -j \"\"\nCOMMIT\n"...))
		var re *dataplane.RestoreError
		if errors.As(err, &re) && re.Line != 2 {
			sim.AddSet(id.IPVersion, name)
		}
	}
}

func oneRule(id rules.TableID, chain string, r rules.Rule) []byte {
	return rules.AppendRestore(nil, rules.Block{Table: id.Name, Lines: []rules.Line{{Command: rules.Append, Chain: chain, Rule: r}}})
}
