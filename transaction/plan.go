// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Plan is what a batch asks of the kernel. Rendered by rules.AppendRestore, line n of a
// block's text is Lines[n-2]: line 1 is "*table".
type Plan struct {
	// Modify must succeed as a whole; nothing of the batch holds otherwise. Without lines
	// there is nothing to do.
	Modify rules.Block
	// Delete is best effort: names of chains that nothing should reach any more. A chain
	// that cannot go stays condemned, or pinned.
	Delete rules.Block
	// Stubs are the chains that Modify makes stubs or overrides of, sorted.
	Stubs []string
	// Rewritten are the chains that Modify writes with what their owners want, sorted.
	Rewritten []string

	// Frees tells that Modify takes rules out of the kernel. On nft the next commit waits
	// until they are gone.
	Frees bool

	// Indexed tells that Modify has lines which are right only where the chains that they
	// change are what the State believes: who sends it makes sure that nobody else has changed
	// the table since it was looked at.
	Indexed bool
	// Edited are the chains that Modify changes rule by rule, sorted.
	Edited []string

	indexed map[string]bool // chains with such lines

	origin []int  // of each line of Modify: the message it came from
	repair []bool // of each line of Modify: it brings back what no message of the batch wrote
}

// Repair returns line n (from 1) of the rendered modify block, when the plan brings back
// with it what a stranger broke: a chain or a listed rule that no message of the batch wrote.
// A refusal of that line is nobody's fault: see State.Broken.
func (p *Plan) Repair(n int) (line rules.Line, ok bool) {
	if i := n - 2; i >= 0 && i < len(p.repair) {
		return p.Modify.Lines[i], p.repair[i]
	}
	return rules.Line{}, false
}

// Repairs returns what the plan brings back that no message of the batch wrote: a line of each
// such chain of ours, and each such rule of a kernel chain. Each can be left out by
// State.Broken.
func (t *Txn) Repairs() []rules.Line {
	p := t.Plan()
	seen := map[string]bool{}
	var out []rules.Line
	for i, l := range p.Modify.Lines {
		if !p.repair[i] || seen[l.Chain] {
			continue
		}
		seen[l.Chain] = t.get(l.Chain).content != Foreign
		out = append(out, l)
	}
	return out
}

// Origin returns the index of the message that line n (from 1) of the rendered modify
// block came from, and the line itself. It reports false for lines that no message made:
// *table, COMMIT, and numbers out of range.
func (p *Plan) Origin(n int) (message int, line rules.Line, ok bool) {
	i := n - 2
	if i < 0 || i >= len(p.origin) || p.origin[i] < 0 {
		return 0, rules.Line{}, false
	}
	return p.origin[i], p.Modify.Lines[i], true
}

func (p *Plan) byIndex(chain string) {
	if p.indexed == nil {
		p.indexed = map[string]bool{}
	}
	p.Indexed, p.indexed[chain] = true, true
}

// ByIndex returns the chains that Modify has indexed lines of, sorted.
func (p *Plan) ByIndex() []string { return slices.Sorted(maps.Keys(p.indexed)) }

// section orders the parts of a modify block. Everything that takes a reference away comes
// before everything that puts one in, so that no loop exists while the block is applied.
type section int

const (
	declarations section = iota
	policies
	ruleDeletes
	stubs
	condemnations
	contents
	ruleInserts
	ruleAppends
)

// write is one chain's part of a plan before it is ordered.
type write struct {
	section section
	chain   string
	cause   int
	lines   []rules.Line
	repair  bool
}

// Plan looks at every chain that the batch touched, decides what each holds afterwards, and
// returns the blocks that make it so. It may be called again and gives the same plan. Refused
// tells whether it can be sent at all.
func (t *Txn) Plan() *Plan {
	if t.plan != nil {
		return t.plan
	}
	t.plan = &Plan{}
	t.unhook()
	var writes []write
	for i := 0; i < len(t.queue); i++ { // the queue grows while it is worked off
		writes = t.resolve(t.queue[i], writes)
	}
	t.judge()
	if len(t.failed) > 0 {
		return t.plan
	}
	slices.SortStableFunc(writes, func(a, b write) int {
		return cmp.Or(cmp.Compare(a.section, b.section), cmp.Compare(a.chain, b.chain))
	})
	t.render(writes)
	t.planDeletes()
	slices.Sort(t.plan.Stubs)
	slices.Sort(t.plan.Rewritten)
	slices.Sort(t.plan.Edited)
	return t.plan
}

func (t *Txn) render(writes []write) {
	n := 0
	for _, w := range writes {
		n += len(w.lines)
	}
	if n == 0 {
		return
	}
	p := t.plan
	p.Modify = rules.Block{IPVersion: t.s.cfg.Table.IPVersion, Table: t.s.cfg.Table.Name, Lines: make([]rules.Line, 0, n)}
	p.origin, p.repair = make([]int, 0, n), make([]bool, 0, n)
	for _, name := range p.Edited {
		p.byIndex(name) // an append, too, is right only behind what is there
	}
	for _, w := range writes {
		for _, l := range w.lines {
			p.Modify.Lines = append(p.Modify.Lines, l)
			p.origin, p.repair = append(p.origin, w.cause), append(p.repair, w.repair)
			if l.Index > 0 {
				p.byIndex(l.Chain)
			}
		}
	}
}

// resolve decides what one chain holds after the batch.
func (t *Txn) resolve(name string, writes []write) []write {
	c := t.get(name)
	switch {
	case c != nil && c.wanted && c.broken:
		return t.resolveBroken(name, writes)
	case c != nil && c.wanted:
		return t.put(t.edit(name), Ours, c.rules, contents, writes)
	case c.exists() && c.content == Foreign:
		return t.resolveKernel(t.edit(name), writes)
	case c.exists() && c.content == Earlier && !c.spoken && (t.grace || t.needs.len(name) == 0):
		return writes // keeps its content: grace, or Cleanup's to judge
	case t.needs.len(name) > 0:
		return t.resolveStub(name, writes)
	case c.exists():
		t.setJumps(t.edit(name), nil, nil)
		return t.put(t.edit(name), Condemned, t.s.condemnedRules(), condemnations, writes)
	case c != nil:
		t.edit(name) // so that Commit forgets it
	}
	return writes
}

// resolveBroken leaves a wanted chain that the kernel does not take back as it is, or makes a
// stub of it when it is gone, so that what jumps to it can be written.
func (t *Txn) resolveBroken(name string, writes []write) []write {
	t.keepDirty(name)
	if t.get(name).exists() || t.needs.len(name) == 0 {
		return writes
	}
	t.plan.Stubs = append(t.plan.Stubs, name)
	return t.put(t.edit(name), Stub, MissingStub(t.s.cfg.Table.Name), stubs, writes)
}

// resolveStub makes a stub of a chain that ours needs and nobody writes.
func (t *Txn) resolveStub(name string, writes []write) []write {
	if !t.get(name).exists() && !t.mayStub(name) {
		return writes
	}
	c := t.edit(name)
	c.ours = true
	content := Stub
	var needs []string
	rs, overridden := t.overrideOf(name)
	if overridden && !c.broken {
		content, needs = Override, t.s.jumpsOf(rs)
	}
	t.setJumps(c, needs, nil)
	if c.content != content {
		t.plan.Stubs = append(t.plan.Stubs, name)
	}
	return t.put(c, content, t.stubOf(c), stubs, writes)
}

// put writes a chain as a whole, unless it holds that already.
func (t *Txn) put(c *chain, content Content, rs []rules.Rule, s section, writes []write) []write {
	same := t.holds(c, rs)
	existed := c.exists()
	if same {
		c.content = content
		if c.isSaved {
			c.isSaved, c.saved, c.written = false, nil, rs
		}
		return writes
	}
	out, in, edited := t.editsTo(c, rs)
	c.content = content
	c.isRead, c.lines, c.written = false, nil, rs
	c.isSaved, c.saved = false, nil
	c.digest, c.sent, c.blind, c.found, c.want = 0, true, false, nil, nil
	if content == Ours || content == Override {
		c.put = rs
	}
	if content == Ours {
		t.plan.Rewritten = append(t.plan.Rewritten, c.name)
	}
	t.touchDirty(c.needs)
	cause, repair := t.causeOf(c.name), t.isRepair(c.name, content)
	if edited {
		t.plan.Frees = t.plan.Frees || len(out) > 0
		t.plan.Edited = append(t.plan.Edited, c.name)
		if len(out) > 0 {
			writes = append(writes, write{ruleDeletes, c.name, cause, out, repair})
		}
		if len(in) > 0 {
			writes = append(writes, write{s, c.name, cause, in, repair})
		}
		return writes
	}
	t.plan.Frees = t.plan.Frees || existed
	lines := make([]rules.Line, len(rs))
	for i, r := range rs {
		lines[i] = rules.Line{Command: rules.Append, Chain: c.name, Rule: r}
	}
	declare := rules.Line{Command: rules.Declare, Chain: c.name, Policy: "-"}
	writes = append(writes, write{declarations, c.name, cause, []rules.Line{declare}, repair})
	if len(lines) == 0 {
		return writes
	}
	return append(writes, write{s, c.name, cause, lines, repair})
}

// isRepair tells whether a chain's new content was written by no message of the batch: it is
// what its owner wrote earlier, or an override that was set earlier.
func (t *Txn) isRepair(name string, content Content) bool {
	kind := map[Content]byte{Ours: 'c', Override: 'o'}[content]
	_, written := t.writer[key{kind: kind, chain: name}]
	return kind != 0 && !written
}

// touchDirty looks at chains that a read showed to be broken, now that something which
// jumps to them is written: the kernel would refuse a jump to a chain that somebody deleted.
func (t *Txn) touchDirty(names []string) {
	for _, name := range names {
		_, inState := t.s.dirty[name]
		_, here := t.dirty[name]
		if inState || here {
			t.touch(name)
		}
	}
}

// causeOf is the message that a chain's lines belong to: who wrote it, else who touched it.
func (t *Txn) causeOf(name string) int {
	if i, ok := t.writer[key{kind: 'c', chain: name}]; ok {
		return i
	}
	return t.cause[name]
}
