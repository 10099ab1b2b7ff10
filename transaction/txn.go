// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// Txn is an overlay of one batch's changes over a State. It costs as much as the batch,
// whatever the size of the table; a dropped Txn leaves no trace.
type Txn struct {
	s         *State
	chains    map[string]*chain // changed copies
	needs     indexTxn
	strangers indexTxn
	overrides map[string]OverrideStub
	inSync    map[string]bool
	grace     bool
	reads     uint64

	msgs       []Message
	writer     map[key]int         // last message that writes a thing
	cause      map[string]int      // chain: the message because of which it was looked at last
	queue      []string            // chains to look at when planning, each once
	moved      []string            // chains to look at before the next message
	newEdges   map[string]struct{} // chains that jump to more than before
	sweeping   bool                // a Cleanup of this batch deletes orphans
	dirty      map[string]struct{} // as State.dirty, found by a Snapshot of this batch
	stillDirty map[string]bool

	plan    *Plan
	source  []int              // of each message: its place among those proposed
	refused map[string]bool    // chains that refused messages would have written
	failed  map[int]*Error     // refusals found while planning
	jumpers map[jump][]culprit // who put a jump in, as far as it was asked
	samples []unproven         // rules of which nothing is known at their places
}

// get returns what is known of a chain after the batch so far; nil when nothing is.
func (t *Txn) get(name string) *chain {
	if c, ok := t.chains[name]; ok {
		return c
	}
	return t.s.chains[name]
}

// edit returns a copy of the chain that may be changed.
func (t *Txn) edit(name string) *chain {
	if c, ok := t.chains[name]; ok {
		return c
	}
	c := &chain{name: name}
	if base := t.s.chains[name]; base != nil {
		*c = *base
	}
	if t.chains == nil {
		t.chains = map[string]*chain{}
	}
	t.chains[name] = c
	return c
}

// touch has the chain looked at when the batch is planned.
func (t *Txn) touch(name string) {
	if t.cause == nil {
		t.cause = map[string]int{}
	}
	if _, ok := t.cause[name]; !ok {
		t.queue = append(t.queue, name)
	}
	t.moved = append(t.moved, name)
	t.cause[name] = len(t.msgs) - 1
}

// setJumps replaces what a chain's content jumps to: needs for content of ours, strange for
// all other. Each chain that is reached from more or fewer places is looked at again.
func (t *Txn) setJumps(c *chain, needs, strange []string) {
	t.setEdges(c, &t.needs, c.needs, needs)
	t.setEdges(c, &t.strangers, c.strange, strange)
	c.needs, c.strange = needs, strange
}

func (t *Txn) setEdges(c *chain, x *indexTxn, before, after []string) {
	if slices.Equal(before, after) {
		return
	}
	for _, target := range before {
		if _, stays := slices.BinarySearch(after, target); !stays {
			x.set(target, c.name, false)
			t.touch(target)
		}
	}
	for _, target := range after {
		if _, was := slices.BinarySearch(before, target); was {
			continue
		}
		x.set(target, c.name, true)
		t.touch(target)
		if t.newEdges == nil {
			t.newEdges = map[string]struct{}{}
		}
		t.newEdges[c.name] = struct{}{}
	}
}

// setNeed makes one chain needed by a kernel chain's listed rules, or not.
func (t *Txn) setNeed(c *chain, target string, needed bool) {
	i, was := slices.BinarySearch(c.needs, target)
	switch {
	case was == needed:
		return
	case needed:
		needs := slices.Insert(slices.Clone(c.needs), i, target)
		t.setEdges(c, &t.needs, c.needs, needs)
		c.needs = needs
	default:
		needs := slices.Delete(slices.Clone(c.needs), i, i+1)
		t.setEdges(c, &t.needs, c.needs, needs)
		c.needs = needs
	}
}

// Apply adds a message to the batch. An error is an *Error; then nothing of the message is
// in the batch. What can only be judged when the batch is whole (missing chains, loops,
// depth) is judged by Plan. The slices of the message must not change afterwards; a caller
// that is not sure passes a Clone.
func (t *Txn) Apply(m Message) error {
	if t.plan != nil {
		panic("transaction: Apply after Plan")
	}
	if err := t.check(m); err != nil {
		return err
	}
	index := len(t.msgs)
	t.msgs = append(t.msgs, m)
	if t.writer == nil {
		t.writer = map[key]int{}
	}
	m.eachKey(func(k key) { t.writer[k] = index })
	switch b := m.Body.(type) {
	case RewriteChains:
		t.rewrite(m.Owner, b)
	case DeleteChains:
		t.delete(b)
	case HandOver:
		for _, name := range b.Chains {
			t.edit(name).owner = b.To
		}
	case EditRules:
		t.editRules(m, b)
	case SetPolicy:
		t.setPolicy(m.Owner, b)
	case OverrideStub:
		t.override(b)
	case Refresh:
		t.refresh(b.Snapshot)
	case EndGrace:
		t.endGrace()
	case InSync:
		t.ownerInSync(m.Owner)
	case Cleanup:
		t.cleanup(b.Snapshot)
	}
	t.relink()
	return nil
}

// relink does for the chains that the last message touched what must not wait for the end
// of the batch, or the cut of batches would show: a chain of an earlier run that ours needs
// after grace has lost its content, even if a later message needs it no more; and what a
// stub's override jumps to is needed as long as the stub is.
func (t *Txn) relink() {
	for i := 0; i < len(t.moved); i++ {
		name := t.moved[i]
		c := t.get(name)
		needed := t.needs.len(name) > 0
		switch {
		case c != nil && (c.wanted || c.content == Foreign):
			continue
		case c.exists() && c.content == Earlier && !c.spoken:
			if t.grace || !needed {
				continue
			}
			c = t.edit(name)
			c.spoken = true
		}
		var needs []string
		if rs, ok := t.overrideOf(name); ok && needed {
			needs = t.s.jumpsOf(rs)
		}
		if c != nil || needs != nil {
			t.setJumps(t.edit(name), needs, nil)
		}
	}
	t.moved = t.moved[:0]
}

// Messages returns the messages of the batch, in order.
func (t *Txn) Messages() []Message { return t.msgs }

// Source returns the place of the i-th message of the batch among those that Propose was
// given.
func (t *Txn) Source(i int) int { return t.source[i] }

func (t *Txn) rewrite(owner string, b RewriteChains) {
	for _, want := range b.Chains {
		c := t.edit(want.Name)
		c.ours, c.wanted, c.spoken, c.broken = true, true, true, false
		c.owned, c.owner = true, owner
		c.rules, c.want = want.Rules, nil
		t.setJumps(c, t.s.jumpsOf(want.Rules), nil)
		t.touch(want.Name)
	}
}

func (t *Txn) delete(b DeleteChains) {
	for _, name := range b.Chains {
		if c := t.get(name); c == nil || !c.exists() && !c.wanted {
			continue
		}
		c := t.edit(name)
		c.ours, c.spoken = true, true
		if c.content == Foreign {
			c.content = Earlier // without a prefix whoever deletes a chain makes it his
		}
		c.wanted, c.rules, c.want, c.owned, c.owner, c.broken = false, nil, nil, false, "", false
		t.setJumps(c, nil, nil)
		t.touch(name)
	}
}

func (t *Txn) setPolicy(owner string, b SetPolicy) {
	c := t.edit(b.Chain)
	t.touch(b.Chain)
	if b.Policy != "-" {
		c.wantedPolicy, c.policyOwner = b.Policy, owner
		return
	}
	if c.wantedPolicy != "" {
		c.leftPolicy = c.wantedPolicy
	}
	c.wantedPolicy, c.policyOwner = "", ""
}

func (t *Txn) override(b OverrideStub) {
	if t.overrides == nil {
		t.overrides = map[string]OverrideStub{}
	}
	t.overrides[b.Chain] = b
	if c := t.get(b.Chain); c != nil && c.want != nil {
		t.edit(b.Chain).want = nil
	}
	t.touch(b.Chain)
}

// overrideOf returns what a stub of the chain holds instead of the stub's rule.
func (t *Txn) overrideOf(name string) ([]rules.Rule, bool) {
	if o, ok := t.overrides[name]; ok {
		return o.Rules, !o.Remove
	}
	rs, ok := t.s.overrides[name]
	return rs, ok
}

func (t *Txn) refresh(snap *rules.Snapshot) {
	if snap != nil {
		t.observe(*snap)
	}
	for name := range t.s.dirty {
		t.touch(name)
	}
	for name := range t.dirty {
		t.touch(name)
	}
	for name := range t.s.special {
		if c := t.s.chains[name]; len(c.lists) > 0 || c.content == Condemned {
			t.touch(name)
		}
	}
}

func (t *Txn) endGrace() {
	if !t.grace {
		return
	}
	t.grace = false
	for name, c := range t.s.chains {
		if c.content == Earlier && !c.wanted {
			t.touch(name)
		}
	}
}

func (t *Txn) ownerInSync(owner string) {
	if t.inSync == nil {
		t.inSync = map[string]bool{}
	}
	t.inSync[owner] = true
	if len(t.s.cfg.Owners) == 0 {
		return // nobody was declared, so nobody can be waited for
	}
	for _, o := range t.s.cfg.Owners {
		if !t.inSync[o] && !t.s.inSync[o] {
			return
		}
	}
	t.endGrace()
}
