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
	mu      sync.Mutex // guards everything below, and the chains
	sim     *Sim
	id      rules.TableID
	chains  map[string]*simChain
	refs    map[string]map[*simChain]int
	hooked  int
	births  int    // chains that were ever made
	foreign uint64 // blocks of others
	known   vocabulary
	cache   map[string]*simRule // by the rule's text as written

	// The block that is being applied.
	seq     uint32 // its number; chains and rules carry the number of the block that touched them
	undo    []simUndo
	added   []simEdge
	cmds    []simCmd
	counts  bool         // some command of an nft block counts or looks for rules
	crash   bool         // the nft tool will crash when it has gone through the block
	refused []simRefusal // what the kernel says about single rules
	renames []simRename  // nft: what -E does at COMMIT
}

type simRename struct {
	chain *simChain
	to    string
}

type simChain struct {
	name    string
	hook    uint8  // the bit of a built-in chain, 0 for a user chain
	policy  string // "" for a user chain
	rules   []simEntry
	hooked  int // rules that some hook would refuse
	ends    int // unconditional verdicts
	touched uint32
	born    int    // its place in the order in which the kernel's chains were made
	created uint32 // block that declared it; the nft tool has no handle of it there
	real    bool   // nft: the kernel has it; a built-in chain is made when it is first named
	owned   bool   // rules is not shared with the undo log
	digest  uint64
	digestd bool
}

// simEntry is a rule in its place.
type simEntry struct {
	*simRule
	seq  uint32 // block that added it
	jump bool   // the target is a chain: a name can be both, and its meaning is fixed when added
	dead bool   // gone from the kernel, but the nft tool still counts it; see bury
}

// simUndo restores one chain.
type simUndo struct {
	chain  *simChain
	rules  []simEntry
	policy string
	name   string
	real   bool
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
		known:  loadVocabulary()[vocabularyKey{combination(s.backend, id.IPVersion), id.Name}],
		cache:  make(map[string]*simRule),
	}
	for _, name := range rules.BuiltinChains(id.Name) {
		t.chains[name] = &simChain{name: name, hook: hookBit[name], policy: "ACCEPT", real: s.backend == Legacy}
	}
	return t
}

// adopt takes over another table's content.
func (t *simTable) adopt(from *simTable) {
	t.chains, t.refs, t.hooked = from.chains, from.refs, from.hooked
	t.births = from.births
	t.seq = max(t.seq, from.seq)
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
