// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"strings"
	"sync"

	"github.com/tableward/tableward/rules"
)

// simTable is one table. A block changes it in place, under mu, and notes what it replaced:
// so a block costs what it holds, not what the table holds, and a refused one is undone.
//
// Invariants between blocks:
//  1. refs[name][c] is the number of rules of c that jump to name, and has no zero entries.
//  2. hooked is the number of rules, in all chains, that some hook would refuse.
//  3. ends of a chain is the number of its unconditional verdicts.
//  4. Every chain of refs exists, and every name that a rule jumps to exists.
type simTable struct {
	mu     sync.Mutex // guards everything below, and the chains
	sim    *Sim
	id     rules.TableID
	chains map[string]*simChain
	refs   map[string]map[*simChain]int
	hooked int
	cache  map[string]*simRule // by the rule's text as written

	// The block that is being applied.
	seq     uint32 // its number; chains and rules carry the number of the block that touched them
	undo    []simUndo
	added   []simEdge
	cmds    []simCmd
	refused []simRefusal // what the kernel says about single rules
}

type simChain struct {
	name    string
	hook    uint8  // the bit of a built-in chain, 0 for a user chain
	policy  string // "" for a user chain
	rules   []simEntry
	hooked  int // rules that some hook would refuse
	ends    int // unconditional verdicts
	touched uint32
	owned   bool // rules is not shared with the undo log
	digest  uint64
	digestd bool
}

// simEntry is a rule in its place.
type simEntry struct {
	*simRule
	seq  uint32 // block that added it
	jump bool   // the target is a chain: a name can be both, and its meaning is fixed when added
}

// simUndo restores one chain.
type simUndo struct {
	chain  *simChain
	rules  []simEntry
	policy string
	name   string
	kind   undoKind
}

type undoKind uint8

const (
	undoContent undoKind = iota
	undoCreate
	undoDelete
	undoRename
)

// simEdge is a rule added by the block that can make the table bad as a whole.
type simEdge struct {
	chain *simChain
	rule  *simRule // nil: any rule of the chain
	jump  bool
}

// hookBit has a bit for each built-in chain; a rule's forbid is a set of these.
var hookBit = map[string]uint8{
	"PREROUTING": 1, "INPUT": 2, "FORWARD": 4, "OUTPUT": 8, "POSTROUTING": 16,
}

func newSimTable(s *Sim, id rules.TableID) *simTable {
	t := &simTable{
		sim: s, id: id,
		chains: make(map[string]*simChain),
		refs:   make(map[string]map[*simChain]int),
		cache:  make(map[string]*simRule),
	}
	for _, name := range rules.BuiltinChains(id.Name) {
		t.chains[name] = &simChain{name: name, hook: hookBit[name], policy: "ACCEPT"}
	}
	return t
}

// adopt takes over another table's content.
func (t *simTable) adopt(from *simTable) {
	t.chains, t.refs, t.hooked = from.chains, from.refs, from.hooked
	t.seq = max(t.seq, from.seq)
}

// touch notes a chain's content before its first change in this block.
func (t *simTable) touch(c *simChain) {
	c.digestd = false
	if c.touched == t.seq {
		return
	}
	c.touched, c.owned = t.seq, false
	t.undo = append(t.undo, simUndo{chain: c, rules: c.rules, policy: c.policy, kind: undoContent})
}

// own makes c.rules safe to change in the middle.
func (t *simTable) own(c *simChain) {
	t.touch(c)
	if !c.owned {
		c.rules, c.owned = slices.Clone(c.rules), true
	}
}

func (t *simTable) create(name string) *simChain {
	c := &simChain{name: name, touched: t.seq, owned: true}
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
	if e.jump || e.forbid != 0 || e.wrongTable {
		t.added = append(t.added, simEdge{chain: c, rule: e.simRule, jump: e.jump})
	}
}

func (t *simTable) delete(c *simChain, i int) {
	t.own(c)
	t.link(c, c.rules[i], -1)
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
		t.link(c, e, -1)
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
}

// rollback undoes the block.
func (t *simTable) rollback() {
	for _, u := range slices.Backward(t.undo) {
		c := u.chain
		switch u.kind {
		case undoContent:
			t.unlink(c)
			c.rules, c.policy, c.digestd = u.rules, u.policy, false
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

// saved returns the chain as Read gives it.
func (c *simChain) saved(full bool) rules.SavedChain {
	if !c.digestd {
		c.digest, c.digestd = 14695981039346656037, true
		for _, e := range c.rules {
			c.digest = (c.digest ^ e.hash) * 1099511628211
		}
	}
	out := rules.SavedChain{Name: c.name, Policy: c.policy, Digest: c.digest, Full: full}
	if full {
		out.Rules = make([]rules.SavedRule, len(c.rules))
	}
	for i, e := range c.rules {
		if e.jump {
			out.Jumps = append(out.Jumps, e.target)
		}
		if full {
			out.Rules[i] = e.savedRule()
		}
	}
	if len(out.Jumps) > 1 {
		slices.Sort(out.Jumps)
		out.Jumps = slices.Compact(out.Jumps)
	}
	return out
}

// save renders the table.
func (t *simTable) save() string {
	builtin := rules.BuiltinChains(t.id.Name)
	names := make([]string, 0, len(t.chains))
	for name, c := range t.chains {
		if c.hook == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = append(builtin, names...)
	var b strings.Builder
	b.WriteString("*" + t.id.Name + "\n")
	for _, name := range names {
		policy := t.chains[name].policy
		if policy == "" {
			policy = "-"
		}
		b.WriteString(":" + name + " " + policy + " [0:0]\n")
	}
	for _, name := range names {
		for _, e := range t.chains[name].rules {
			b.WriteString("-A " + name)
			if e.text != "" {
				b.WriteString(" " + e.text)
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}
