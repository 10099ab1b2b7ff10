// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"iter"
	"slices"
	"sort"
	"strings"
)

// jump is an edge of the graph of chains.
type jump struct{ from, to string }

// subgraph is the graph of chains after the batch, without the jumps that only messages put
// in which are not in the set. It tells whether a part of the batch would fail by itself.
type subgraph struct {
	t  *Txn
	in func(message int) bool // nil: all messages
}

// whole is the graph with all that the batch puts in.
func (t *Txn) whole() subgraph { return subgraph{t: t} }

// putIn returns the messages of the batch that put a jump in, in order; none when it was
// there before.
func (t *Txn) putIn(from, to string) []culprit {
	if base := t.s.chains[from]; base != nil && (contains(base.needs, to) || contains(base.strange, to)) {
		return nil
	}
	j := jump{from, to}
	by, known := t.jumpers[j]
	if !known {
		by = t.blameEdge(from, to)
		if t.jumpers == nil {
			t.jumpers = map[jump][]culprit{}
		}
		t.jumpers[j] = by
	}
	return by
}

func contains(sorted []string, name string) bool {
	_, found := slices.BinarySearch(sorted, name)
	return found
}

// has tells whether the subgraph has a jump of the whole graph.
func (g subgraph) has(from, to string) bool {
	if g.in == nil {
		return true
	}
	by := g.t.putIn(from, to)
	return len(by) == 0 || slices.ContainsFunc(by, func(c culprit) bool { return g.in(c.message) })
}

// next returns what a chain jumps to in the subgraph, sorted.
func (g subgraph) next(name string) []string {
	all := g.t.next(name)
	if g.in == nil {
		return all
	}
	for i, to := range all {
		if g.has(name, to) {
			continue
		}
		some := slices.Clone(all[:i])
		for _, to := range all[i+1:] {
			if g.has(name, to) {
				some = append(some, to)
			}
		}
		return some
	}
	return all
}

// sources yields the chains that jump to one in the subgraph, in no order, perhaps twice.
func (g subgraph) sources(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, x := range [...]*indexTxn{&g.t.needs, &g.t.strangers} {
			for from := range x.sources(name) {
				if g.has(from, name) && !yield(from) {
					return
				}
			}
		}
	}
}

// labels returns the messages that put in any jump from these chains to these chains, in
// order, each once.
func (t *Txn) labels(jumps []jump) []int {
	var out []int
	for _, j := range jumps {
		for _, c := range t.putIn(j.from, j.to) {
			out = append(out, c.message)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// minimalSet returns a smallest part of the candidates, which are in order, that fails: no
// proper part of it does. Of several it is the one whose last message comes first, then
// the one before, and so on. A part must fail if a part of it does. It is nil when nothing of
// the batch is needed to fail.
func minimalSet(candidates []int, fails func(in func(int) bool) bool) []int {
	set := map[int]bool{}
	for !fails(func(m int) bool { return set[m] }) {
		n := sort.Search(len(candidates), func(i int) bool {
			return fails(func(m int) bool {
				at, found := slices.BinarySearch(candidates, m)
				return set[m] || found && at <= i
			})
		})
		if n == len(candidates) {
			return nil // not of these messages' making
		}
		set[candidates[n]] = true
		candidates = candidates[:n]
	}
	var out []int
	for m := range set {
		out = append(out, m)
	}
	slices.Sort(out)
	return out
}

// refuseSet refuses messages that fail only together. One alone is at fault by itself;
// several are in conflict, each told of the others. why says what is wrong from the view of
// one of them.
func (t *Txn) refuseSet(set []int, err error, why func(message int) (culprit, string)) {
	for _, i := range set {
		c, reason := why(i)
		e := t.errorf(t.msgs[i], err, c.chain, c.rule, "%s", reason)
		switch err {
		case ErrLoop:
			e.Advice = "leave one of these jumps out"
		case ErrDepth:
			e.Advice = "jump from a chain that is nearer to the built-in one"
		}
		for _, other := range set {
			if other != i {
				e.With = append(e.With, t.msgs[other].ID)
			}
		}
		t.fail(i, e)
	}
}

// refusePath refuses messages because of the jumps of a path.
func (t *Txn) refusePath(set []int, path []string, err error, what string) {
	t.refuseSet(set, err, func(message int) (culprit, string) {
		for i := range len(path) - 1 {
			for _, c := range t.putIn(path[i], path[i+1]) {
				if c.message == message {
					return c, what + ": " + strings.Join(path, " -> ")
				}
			}
		}
		return culprit{message: message}, what + ": " + strings.Join(path, " -> ")
	})
}
