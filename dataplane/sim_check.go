// SPDX-License-Identifier: Apache-2.0

package dataplane

import "slices"

// simCheck is one validation of the table as it stands: loops, depth and hooks below the
// built-in chains. Only what the block added is looked at: removing a rule makes no table
// bad.
type simCheck struct {
	t      *simTable
	ups    map[*simChain]upward
	closed bool // up met a chain that it was still at
	down   map[*simChain]*downward
}

// upward is how a chain is reached.
type upward struct {
	depth int   // user chains in the longest row from a built-in chain to this one; -1 if none reaches it
	hooks uint8 // the built-in chains that reach it
	open  bool  // being worked out
}

// downward is what a chain reaches.
type downward struct {
	open   bool  // its row is still being followed
	depth  int   // user chains in the longest row below it
	forbid uint8 // hooks that some rule of it, or below it, must not be reached from
}

// check returns the errno text of what is wrong with the table, "" if nothing is.
func (t *simTable) check() string {
	if len(t.added) == 0 {
		return ""
	}
	k := simCheck{t: t, ups: make(map[*simChain]upward), down: make(map[*simChain]*downward)}
	for _, e := range t.added {
		if t.chains[e.chain.name] != e.chain {
			continue
		}
		if e.rule != nil {
			if errno := k.edge(e); errno != "" {
				return errno
			}
			continue
		}
		for _, have := range e.chain.rules {
			if have.jump || have.forbid != 0 {
				if errno := k.edge(simEdge{e.chain, have.simRule, have.jump}); errno != "" {
					return errno
				}
			}
		}
	}
	return ""
}

// edge looks at one rule that may have made the table bad.
func (k *simCheck) edge(e simEdge) string {
	if e.rule.errno != "" && has(e.chain.rules, e.rule) {
		return e.rule.errno
	}
	if e.jump && !k.leads(e.chain, e.rule.target) {
		return "" // gone again
	}
	up := k.up(e.chain)
	if k.closed {
		// What was learnt on the way is half the truth; only the start is right.
		clear(k.ups)
		k.closed = false
	}
	if up.depth < 0 {
		return ""
	}
	if e.rule.forbid&up.hooks != 0 && has(k.live(e.chain), e.rule) {
		return errInval
	}
	if !e.jump {
		return ""
	}
	d, loop := k.below(e.chain)
	limit := maxDepth(k.t.sim.backend)
	switch {
	case loop, limit > 0 && up.depth+d.depth > limit:
		return errLinks
	case d.forbid&up.hooks != 0:
		return errInval
	}
	return ""
}

// leads tells whether chain c reaches the chain called name by a jump of its own. The
// legacy kernel does not look past an unconditional verdict.
func (k *simCheck) leads(c *simChain, name string) bool {
	if k.t.refs[name][c] == 0 {
		return false
	}
	if c.ends == 0 || k.t.sim.backend == NFT {
		return true
	}
	return slices.ContainsFunc(k.live(c), func(e simEntry) bool { return e.jump && e.target == name })
}

// live returns the rules of c that the kernel follows.
func (k *simCheck) live(c *simChain) []simEntry {
	if c.ends == 0 || k.t.sim.backend == NFT {
		return c.rules
	}
	for i, e := range c.rules {
		if e.unconditional {
			return c.rules[:i]
		}
	}
	return c.rules
}

func has(entries []simEntry, r *simRule) bool {
	return slices.ContainsFunc(entries, func(e simEntry) bool { return e.simRule == r && !e.dead })
}

// up follows references upwards. A row that closes is not followed twice: if something
// reaches it from a built-in chain, below finds the loop.
func (k *simCheck) up(c *simChain) upward {
	if u, ok := k.ups[c]; ok {
		k.closed = k.closed || u.open
		return u
	}
	u := upward{depth: -1, hooks: c.hook, open: c.hook == 0}
	if c.hook != 0 {
		u.depth = 0
		k.ups[c] = u
		return u
	}
	k.ups[c] = u
	for from := range k.t.refs[c.name] {
		if k.t.chains[from.name] != from || !k.leads(from, c.name) {
			continue
		}
		if p := k.up(from); p.depth >= 0 {
			u.depth = max(u.depth, p.depth+1)
			u.hooks |= p.hooks
		}
	}
	u.open = false
	k.ups[c] = u
	return u
}

// below follows jumps downwards and tells whether some row closes.
func (k *simCheck) below(c *simChain) (*downward, bool) {
	if d := k.down[c]; d != nil {
		return d, d.open
	}
	d := &downward{open: true}
	k.down[c] = d
	for _, e := range k.live(c) {
		if e.dead {
			continue
		}
		d.forbid |= e.forbid
		if !e.jump {
			continue
		}
		to := k.t.chains[e.target]
		if to == nil {
			continue
		}
		b, loop := k.below(to)
		if loop {
			return d, true
		}
		d.depth = max(d.depth, b.depth+1)
		d.forbid |= b.forbid
	}
	d.open = false
	return d, false
}
