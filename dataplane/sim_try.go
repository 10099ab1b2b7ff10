// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"strings"

	"github.com/tableward/tableward/rules"
)

// Try tries a batch as Kernel.Try does, in a simulator of its own that has this one's sets:
// what it refuses there is what its vocabulary, its knowledge of hooks and the graph of the
// chains say. Budget means nothing, and the Hook is not called. Probes are one, and one more
// for each unit that is refused; Took is 0.
func (s *Sim) Try(ctx context.Context, id rules.TableID, b Batch) (Trial, error) {
	if err := ctx.Err(); err != nil {
		return Trial{}, asRestoreError(err)
	}
	if err := id.Validate(); err != nil {
		return Trial{}, unavailable(err)
	}
	if s.NoScratch {
		return Trial{}, ErrNoScratch
	}
	if b.Whole {
		return s.tryWhole(id, b)
	}
	t := simTrial{trial: newTrial(s.backend, id, b), sim: NewSim(s.backend)}
	t.copySets(s)
	t.tryNames()
	for t.settle(); len(open(t.units)) > 0; t.settle() {
		for _, u := range open(t.units) {
			t.ask(u)
		}
	}
	out := Trial{Verdicts: t.verdicts(), Probes: 1}
	for _, u := range t.units {
		if u.fault != nil {
			out.Probes++
		}
	}
	return out, nil
}

// tryWhole loads a batch as one block.
func (s *Sim) tryWhole(id rules.TableID, b Batch) (Trial, error) {
	sim := NewSim(s.backend)
	for _, r := range ruleset(b) {
		for _, name := range r.Sets() {
			sim.AddSet(id.IPVersion, name)
		}
	}
	var re *RestoreError
	if errors.As(sim.apply(id.IPVersion, []byte(wholeBlock(id, b))), &re) {
		return Trial{Probes: 1}, together(re)
	}
	return Trial{Probes: 1}, nil
}

// simTrial is a trial in a simulator.
type simTrial struct {
	*trial
	sim *Sim
}

// copySets makes the sets that rules name exist, and refuses rules of those that do not.
func (t *simTrial) copySets(from *Sim) {
	for _, it := range t.items {
		for _, name := range it.rule.Sets() {
			if from.hasSet(t.id.IPVersion, name) {
				t.sim.AddSet(t.id.IPVersion, name)
			} else if it.skipped == "" {
				t.refuse(it.unit, it, unreached, absentSet(name))
				break
			}
		}
	}
}

func (t *simTrial) tryNames() {
	for _, name := range t.doubtful() {
		if re := t.load(declares(name)); re != nil {
			t.dropName(name, re)
		}
	}
}

// ask tries the rules of a unit where they are still to be tried: all where nothing reaches
// them, then those that a hook reaches, last those of built-in chains.
func (t *simTrial) ask(u *unit) {
	places := []places{unreached}
	for i := range t.hooks {
		places = append(places, 1<<i)
	}
	for _, builtin := range []bool{false, true} {
		for _, at := range append(places, hidden) {
			for _, it := range u.items {
				inside := t.builtin(it.chain) && at != unreached
				if it.asked()&at == 0 || inside != builtin {
					continue
				}
				if re := t.tryAt(it, at, inside); re != nil {
					t.refuse(u, it, at, re)
					return
				}
				it.done |= at
			}
		}
	}
}

// tryAt tries a rule in a table that is empty otherwise.
func (t *simTrial) tryAt(it *item, at places, inside bool) *RestoreError {
	chain := it.chain
	var lines []string
	if target := t.target(it.rule); target != "" {
		lines = append(lines, declares(target))
	}
	switch {
	case at == hidden:
		lines = append(lines, "-A "+chain+" -j RETURN")
	case !inside:
		chain = tryPrefix
		lines = append(lines, declares(chain))
		if at != unreached {
			lines = append(lines, "-A "+t.hookOf(it, at)+" -j "+chain)
		}
	}
	return t.load(append(lines, "-A "+chain+" "+it.text)...)
}

// load applies one block to an empty table.
func (t *simTrial) load(lines ...string) *RestoreError {
	delete(t.sim.tables, t.id)
	block := "*" + t.id.Name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
	var re *RestoreError
	errors.As(t.sim.apply(t.id.IPVersion, []byte(block)), &re)
	return re
}
