// SPDX-License-Identifier: Apache-2.0

package dataplane

import "slices"

// The changes that a block makes to a table. Each notes what it replaces, so that rollback
// can undo the block.

// touch notes a chain's content before its first change in this block.
func (t *simTable) touch(c *simChain) {
	c.digestd = false
	if c.touched == t.seq {
		return
	}
	c.touched, c.owned = t.seq, false
	t.undo = append(t.undo, simUndo{chain: c, rules: c.rules, policy: c.policy, real: c.real, kind: undoContent})
}

// realize makes a built-in chain that the kernel does not have yet.
func (t *simTable) realize(c *simChain) {
	if !c.real {
		t.touch(c)
		t.births++
		c.real, c.born = true, t.births
	}
}

// policyBefore returns the policy that the chain had before the block.
func (t *simTable) policyBefore(c *simChain) string {
	for _, u := range t.undo {
		if u.chain == c && u.kind == undoContent {
			return u.policy
		}
	}
	return c.policy
}

// own makes c.rules safe to change in the middle.
func (t *simTable) own(c *simChain) {
	t.touch(c)
	if !c.owned {
		c.rules, c.owned = slices.Clone(c.rules), true
	}
}

func (t *simTable) create(name string) *simChain {
	t.births++
	c := &simChain{name: name, born: t.births, touched: t.seq, created: t.seq, real: true, owned: true}
	t.chains[name] = c
	t.undo = append(t.undo, simUndo{chain: c, kind: undoCreate})
	return c
}

func (t *simTable) remove(c *simChain) {
	delete(t.chains, c.name)
	t.undo = append(t.undo, simUndo{chain: c, kind: undoDelete})
}

func (t *simTable) flush(c *simChain) {
	t.touch(c)
	t.unlink(c)
	if c.owned {
		clear(c.rules)
		c.rules = c.rules[:0]
	} else {
		c.rules = nil
	}
}

// bury flushes a chain as the nft tool does on a declaration: the kernel's rules go, but the
// tool goes on counting those that it has read, and it has read them if the block has any
// command that counts.
func (t *simTable) bury(c *simChain) {
	if !t.counts {
		t.flush(c)
		return
	}
	t.own(c)
	t.unlink(c)
	for i := range c.rules {
		c.rules[i].dead = true
	}
}

// exhume drops the dead rules of the chains that the block touched.
func (t *simTable) exhume() {
	if !t.counts {
		return
	}
	for _, u := range t.undo {
		u.chain.rules = slices.DeleteFunc(u.chain.rules, func(e simEntry) bool { return e.dead })
	}
}

// empty tells whether the kernel has no rule in the chain.
func (c *simChain) empty() bool {
	return !slices.ContainsFunc(c.rules, func(e simEntry) bool { return !e.dead })
}

// insert puts a rule at position i, from 0.
func (t *simTable) insert(c *simChain, i int, e simEntry) {
	e.seq = t.seq
	if i == len(c.rules) {
		t.touch(c)
		c.rules = append(c.rules, e)
	} else {
		t.own(c)
		c.rules = slices.Insert(c.rules, i, e)
	}
	t.link(c, e, 1)
	if e.jump || e.forbid != 0 || e.errno != "" {
		t.added = append(t.added, simEdge{chain: c, rule: e.simRule, jump: e.jump})
	}
}

func (t *simTable) delete(c *simChain, i int) {
	t.own(c)
	if !c.rules[i].dead {
		t.link(c, c.rules[i], -1)
	}
	c.rules = slices.Delete(c.rules, i, i+1)
}

// link keeps invariants 1 and 2 when a rule comes (1) or goes (-1).
func (t *simTable) link(c *simChain, e simEntry, n int) {
	if e.forbid != 0 {
		c.hooked += n
		t.hooked += n
	}
	if e.unconditional {
		c.ends += n
		if n < 0 && t.sim.backend == Legacy {
			// What stood below it is reached now.
			t.added = append(t.added, simEdge{chain: c})
		}
	}
	if !e.jump {
		return
	}
	from := t.refs[e.target]
	if from == nil {
		from = make(map[*simChain]int, 1)
		t.refs[e.target] = from
	}
	if from[c] += n; from[c] == 0 {
		if delete(from, c); len(from) == 0 {
			delete(t.refs, e.target)
		}
	}
}

func (t *simTable) unlink(c *simChain) {
	for _, e := range c.rules {
		if !e.dead {
			t.link(c, e, -1)
		}
	}
}

// begin opens a block; rollback or finish closes it.
func (t *simTable) begin() {
	t.seq++
	t.clear()
}

func (t *simTable) clear() {
	clear(t.undo)
	clear(t.added)
	clear(t.cmds)
	t.undo, t.added, t.cmds, t.refused = t.undo[:0], t.added[:0], t.cmds[:0], nil
	t.counts, t.crash, t.renames = false, false, t.renames[:0]
}

// rollback undoes the block.
func (t *simTable) rollback() {
	for _, u := range slices.Backward(t.undo) {
		c := u.chain
		switch u.kind {
		case undoContent:
			t.unlink(c)
			c.rules, c.policy, c.real, c.digestd = u.rules, u.policy, u.real, false
			for _, e := range c.rules {
				t.link(c, e, 1)
			}
		case undoCreate:
			t.unlink(c)
			delete(t.chains, c.name)
		case undoDelete:
			t.chains[c.name] = c
		case undoRename:
			delete(t.chains, c.name)
			c.name = u.name
			t.chains[c.name] = c
		}
	}
	t.clear()
}
