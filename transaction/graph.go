// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"maps"
	"slices"
)

// next returns the chains that a chain's content jumps to after the batch, sorted.
func (t *Txn) next(name string) []string {
	c := t.get(name)
	if c == nil {
		return nil
	}
	if len(c.strange) == 0 {
		return c.needs
	}
	if len(c.needs) == 0 {
		return c.strange
	}
	all := slices.Concat(c.needs, c.strange)
	slices.Sort(all)
	return slices.Compact(all)
}

// judgeLoops refuses the messages that make chains jump in a circle, reached or not: the
// kernel would refuse it only later, when somebody innocent makes it reachable. Of circles
// that share chains one is judged; the rest is found when the batch is planned without it.
func (t *Txn) judgeLoops() {
	for _, knot := range t.whole().knots(slices.Sorted(maps.Keys(t.newEdges))) {
		var jumps []jump
		for name := range knot {
			for _, to := range t.next(name) {
				if knot[to] {
					jumps = append(jumps, jump{name, to})
				}
			}
		}
		names := slices.Sorted(maps.Keys(knot))
		set := minimalSet(t.labels(jumps), func(in func(int) bool) bool {
			return subgraph{t, in}.circle(names) != nil
		})
		if set != nil {
			in := func(m int) bool { return slices.Contains(set, m) }
			t.refusePath(set, subgraph{t, in}.circle(names), ErrLoop, "the chains jump in a circle")
		}
	}
}

// anyLoop returns a chain of some circle, or "".
func (t *Txn) anyLoop() string {
	for _, knot := range t.whole().knots(slices.Sorted(maps.Keys(t.newEdges))) {
		return slices.Min(slices.Collect(maps.Keys(knot)))
	}
	return ""
}

// circle returns a way from a chain back to itself that takes a jump which a message put in,
// first and last chain the same; nil when there is none.
func (g subgraph) circle(names []string) []string {
	for _, knot := range g.knots(names) {
		for _, from := range slices.Sorted(maps.Keys(knot)) {
			for _, to := range g.next(from) {
				if knot[to] && len(g.t.putIn(from, to)) > 0 {
					return append([]string{from}, g.way(to, from, knot)...)
				}
			}
		}
	}
	return nil
}

// way returns a shortest way between two chains of a knot, ends included.
func (g subgraph) way(from, to string, knot map[string]bool) []string {
	came := map[string]string{from: ""}
	todo := []string{from}
	for len(todo) > 0 && todo[0] != to {
		name := todo[0]
		todo = todo[1:]
		for _, next := range g.next(name) {
			if _, seen := came[next]; !seen && knot[next] {
				came[next] = name
				todo = append(todo, next)
			}
		}
	}
	var path []string
	for at := to; at != ""; at = came[at] {
		path = append(path, at)
	}
	slices.Reverse(path)
	return path
}

// knots returns the sets of chains that reach each other, of all that can be reached from
// these, each chain visited once (Tarjan's algorithm).
func (g subgraph) knots(from []string) []map[string]bool {
	k := knotter{g: g, index: map[string]int{}, low: map[string]int{}, on: map[string]bool{}}
	for _, name := range from {
		if k.index[name] == 0 {
			k.visit(name)
		}
	}
	return k.found
}

type knotter struct {
	g          subgraph
	index, low map[string]int
	stack      []string
	on         map[string]bool
	found      []map[string]bool
}

func (k *knotter) visit(name string) {
	k.index[name] = len(k.index) + 1
	k.low[name] = k.index[name]
	k.stack = append(k.stack, name)
	k.on[name] = true
	self := false
	for _, to := range k.g.next(name) {
		self = self || to == name
		switch {
		case k.index[to] == 0:
			k.visit(to)
			k.low[name] = min(k.low[name], k.low[to])
		case k.on[to]:
			k.low[name] = min(k.low[name], k.index[to])
		}
	}
	if k.low[name] != k.index[name] {
		return
	}
	at := slices.Index(k.stack, name)
	knot := map[string]bool{}
	for _, member := range k.stack[at:] {
		knot[member] = true
		delete(k.on, member)
	}
	k.stack = k.stack[:at]
	if len(knot) > 1 || self {
		k.found = append(k.found, knot)
	}
}

// judgeDepth refuses the messages that nest chains deeper below a built-in chain than the
// kernel allows.
func (t *Txn) judgeDepth() {
	d := newDepths(t.whole())
	for _, name := range slices.Sorted(maps.Keys(t.newEdges)) {
		if d.through(name) <= t.s.cfg.MaxDepth || t.failedOn(d.path(name)) {
			continue
		}
		set := minimalSet(t.labels(d.around(name)), func(in func(int) bool) bool {
			return newDepths(subgraph{t, in}).through(name) > t.s.cfg.MaxDepth
		})
		if set == nil {
			continue
		}
		deep := newDepths(subgraph{t, func(m int) bool { return slices.Contains(set, m) }})
		what := fmt.Sprintf("%d chains in a row below a built-in chain, the kernel allows %d", deep.through(name), t.s.cfg.MaxDepth)
		t.refusePath(set, deep.path(name), ErrDepth, what)
	}
}

// failedOn tells whether a message that put in a jump of a path is refused already.
func (t *Txn) failedOn(path []string) bool {
	for i := range len(path) - 1 {
		for _, c := range t.putIn(path[i], path[i+1]) {
			if t.failed[c.message] != nil {
				return true
			}
		}
	}
	return false
}

// hop is the longest way in one direction: its length in chains and the next chain on it.
type hop struct {
	n    int
	next string
}

// depths finds longest ways in a graph without circles.
type depths struct {
	g        subgraph
	up, down map[string]hop
}

func newDepths(g subgraph) *depths {
	return &depths{g: g, up: map[string]hop{}, down: map[string]hop{}}
}

// through is the number of user chains on the longest way from a built-in chain through a
// chain; 0 where no packet gets there, and the kernel does not look.
func (d *depths) through(name string) int {
	above := d.above(name).n
	if c := d.g.t.get(name); above == 0 && (c == nil || !c.builtin) {
		return 0
	}
	return above + d.below(name).n
}

// above counts the user chains from a built-in chain down to name, itself included; 0 when
// no built-in chain reaches it. For a built-in chain next is empty.
func (d *depths) above(name string) hop {
	if h, ok := d.up[name]; ok {
		return h
	}
	if c := d.g.t.get(name); c != nil && c.builtin {
		return hop{}
	}
	d.up[name] = hop{} // a circle among foreign chains ends here
	var best hop
	for source := range d.g.sources(name) {
		n := d.above(source).n
		if c := d.g.t.get(source); n == 0 && (c == nil || !c.builtin) {
			continue
		}
		if n+1 > best.n || n+1 == best.n && source < best.next {
			best = hop{n + 1, source}
		}
	}
	d.up[name] = best
	return best
}

// below counts the chains in the longest row of jumps that begins at name, name left out.
func (d *depths) below(name string) hop {
	if h, ok := d.down[name]; ok {
		return h
	}
	d.down[name] = hop{}
	var best hop
	for _, to := range d.g.next(name) {
		if n := d.below(to).n + 1; n > best.n {
			best = hop{n, to}
		}
	}
	d.down[name] = best
	return best
}

// path is the longest way through name, from the built-in chain to the last chain.
func (d *depths) path(name string) []string {
	var path []string
	for at := name; at != ""; at = d.above(at).next {
		path = append(path, at)
	}
	slices.Reverse(path)
	for at := d.below(name).next; at != ""; at = d.below(at).next {
		path = append(path, at)
	}
	return path
}

// around are the jumps on all ways from above through name and down from it.
func (d *depths) around(name string) []jump {
	var out []jump
	seen := map[string]bool{name: true}
	for todo := []string{name}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for from := range d.g.sources(at) {
			out = append(out, jump{from, at})
			if !seen[from] {
				seen[from] = true
				todo = append(todo, from)
			}
		}
	}
	seen = map[string]bool{name: true}
	for todo := []string{name}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for _, to := range d.g.next(at) {
			out = append(out, jump{at, to})
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return out
}
