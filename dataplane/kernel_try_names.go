// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"math/bits"
	"slices"

	"github.com/tableward/tableward/rules"
)

// tryNames declares the chains that a tool might refuse for their names. Whoever checks names
// has none of them.
func (w *worker) tryNames(ctx context.Context) error {
	for _, name := range w.doubtful() {
		if err := w.enter(ctx, nil); err != nil {
			return err
		}
		a, err := w.send(ctx, [][]probeLine{{{text: declares(name)}}}, true)
		if err != nil {
			return err
		}
		if a.reason != nil {
			w.dropName(name, a.reason)
		} else if w.backend == NFT {
			w.room.declared[chainKey{w.id, name}] = true
		}
	}
	return nil
}

// doubtful are the names of chains that are not surely good.
func (t *trial) doubtful() []string {
	var names []string
	for name := range t.names {
		if rules.CheckChainName(name) != nil || rules.IsVerdict(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// dropName refuses a chain by its name, with its rules.
func (t *trial) dropName(name string, re *RestoreError) {
	delete(t.names, name)
	t.bad = append(t.bad, badName{name, re})
	for _, it := range t.items {
		if it.chain == name {
			t.refuse(it.unit, nil, unreached, re)
			it.unit.bads[len(it.unit.bads)-1].chain = name
		}
	}
}

// slack is how many probes there may be besides two for each unit.
const slack = 8

// namings are the searches for the rules of units of which it is only known that they are
// refused, as many as fit into the number of probes.
func (t *trial) namings() []task {
	t.naming = true
	left := 2*len(t.units) + slack - int(t.probes.Load())
	var out []task
	for _, u := range t.units {
		if u.met == 0 {
			continue
		}
		b := &u.bads[len(u.bads)-1]
		if b.item != nil || b.chain != "" {
			continue
		}
		items := slices.DeleteFunc(slices.Clone(u.items), func(it *item) bool {
			return it.skipped != "" || it.need&b.at == 0 || it.index < 0 || t.builtin(it.chain) && b.at != unreached
		})
		if len(items) == 1 {
			b.item = items[0]
			t.answered.Store(true)
		}
		if cost := bits.Len(uint(max(len(items)-1, 0))); cost > 0 && cost <= left {
			left -= cost
			out = append(out, func(ctx context.Context, w *worker) error { return w.name(ctx, u, b, items) })
		}
	}
	return out
}

// name finds by halves the first of a unit's rules that is refused.
func (w *worker) name(ctx context.Context, u *unit, b *bad, items []*item) error {
	if err := w.enter(ctx, []*unit{u}); err != nil {
		return err
	}
	for len(items) > 1 {
		half := len(items) / 2
		a, err := w.send(ctx, [][]probeLine{w.together(items[:half], b.at)}, true)
		switch {
		case err != nil:
			return err
		case a.reason == nil:
			items = items[half:]
		default:
			items = items[:half]
		}
	}
	b.item = items[0]
	w.answered.Store(true)
	return nil
}

// together is a block that loads rules in one chain, hooked up if they are to be reached.
func (w *worker) together(items []*item, at places) []probeLine {
	chain := w.newChain()
	lines := []probeLine{{text: declares(chain)}}
	for _, it := range items {
		if name := w.target(it.rule); name != "" && !w.room.declared[chainKey{w.id, name}] {
			lines = append(lines, probeLine{text: declares(name)})
		}
	}
	if at != unreached {
		lines = append(lines, probeLine{text: "-A " + w.hookOf(nil, at) + " -j " + chain})
	}
	// What ends the chain would hide what comes behind it.
	for _, last := range []bool{false, true} {
		for _, it := range items {
			if it.ends() == last {
				lines = append(lines, probeLine{text: "-A " + chain + " " + it.text})
			}
		}
	}
	return lines
}
