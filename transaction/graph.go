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
// kernel would refuse it only later, when somebody innocent makes it reachable.
func (t *Txn) judgeLoops() {
	t.eachLoop(func(path []string) bool {
		t.refuseTogether(path, ErrLoop, "the chains jump in a circle")
		return true
	})
}

// anyLoop returns a chain of some circle, or "".
func (t *Txn) anyLoop() (name string) {
	t.eachLoop(func(path []string) bool {
		name = path[0]
		return false
	})
	return name
}

// eachLoop calls f with circles, first and last chain the same. Only what can be reached
// from chains with new jumps is walked, each chain once, so that of circles which share a
// jump perhaps only one is found.
func (t *Txn) eachLoop(f func(path []string) bool) {
	const white, grey, black = 0, 1, 2
	colour := map[string]int{}
	var path []string
	var visit func(name string) bool
	visit = func(name string) bool {
		colour[name] = grey
		path = append(path, name)
		for _, to := range t.next(name) {
			switch colour[to] {
			case white:
				if !visit(to) {
					return false
				}
			case grey:
				at := slices.Index(path, to)
				if !f(append(slices.Clone(path[at:]), to)) {
					return false
				}
			}
		}
		path = path[:len(path)-1]
		colour[name] = black
		return true
	}
	for _, name := range slices.Sorted(maps.Keys(t.newEdges)) {
		if colour[name] == white && !visit(name) {
			return
		}
	}
}

// judgeDepth refuses the messages that nest chains deeper below a built-in chain than the
// kernel allows.
func (t *Txn) judgeDepth() {
	d := depths{t: t, up: map[string]hop{}, down: map[string]hop{}}
	for _, name := range slices.Sorted(maps.Keys(t.newEdges)) {
		above, n := d.above(name).n, d.below(name).n
		if above == 0 && !t.get(name).builtin {
			continue // no packet gets there, and the kernel does not look
		}
		if n += above; n <= t.s.cfg.MaxDepth {
			continue
		}
		what := fmt.Sprintf("%d chains in a row below a built-in chain, the kernel allows %d", n, t.s.cfg.MaxDepth)
		t.refuseTogether(d.path(name), ErrDepth, what)
	}
}

// hop is the longest way in one direction: its length in chains and the next chain on it.
type hop struct {
	n    int
	next string
}

// depths finds longest ways in a graph without circles.
type depths struct {
	t        *Txn
	up, down map[string]hop
}

// above counts the user chains from a built-in chain down to name, itself included; 0 when
// no built-in chain reaches it. For a built-in chain next is empty.
func (d *depths) above(name string) hop {
	if h, ok := d.up[name]; ok {
		return h
	}
	if c := d.t.get(name); c != nil && c.builtin {
		return hop{}
	}
	d.up[name] = hop{} // a circle among foreign chains ends here
	var best hop
	for _, x := range []*indexTxn{&d.t.needs, &d.t.strangers} {
		for source := range x.sources(name) {
			n := d.above(source).n
			if c := d.t.get(source); n == 0 && (c == nil || !c.builtin) {
				continue
			}
			if n+1 > best.n || n+1 == best.n && source < best.next {
				best = hop{n + 1, source}
			}
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
	for _, to := range d.t.next(name) {
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
