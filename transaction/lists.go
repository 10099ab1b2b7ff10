// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// same tells whether two rules are the same rule: whether the tool reads them back alike.
func (t *Txn) same(a, b rules.Rule) bool {
	return a.String() == b.String() || slices.Equal(t.s.canonOf(a), t.s.canonOf(b))
}

// find returns the place of a rule in a list, or -1.
func (t *Txn) find(list []rules.Rule, r rules.Rule) int {
	return slices.IndexFunc(list, func(o rules.Rule) bool { return t.same(o, r) })
}

func (t *Txn) drop(list []rules.Rule, r rules.Rule) []rules.Rule {
	if i := t.find(list, r); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// editRules changes the lists of the message's owner in a kernel chain. The chain may be
// absent when the message only withdraws.
func (t *Txn) editRules(m Message, b EditRules) {
	if c := t.get(b.Chain); c == nil {
		return // only withdrawals come here: from a chain that never was
	}
	c := t.edit(b.Chain)
	c.lists = maps.Clone(c.lists)
	if c.lists == nil {
		c.lists = map[string]*ownerList{}
	}
	l := &ownerList{}
	if old := c.lists[m.Owner]; old != nil {
		l = old.clone()
	}
	l.priority = m.Priority
	c.lists[m.Owner] = l
	for _, e := range b.Edits {
		before := t.placeOf(c, e.Rule)
		t.editOne(l, e)
		// A rule that nobody lists any more, or that moves down, counts as gone in between,
		// so that it ends up where it would had each edit been a batch of its own.
		if after := t.placeOf(c, e.Rule); after == nowhere && e.Op >= Remove || before == atTop && after == atBottom {
			c.removed = append(slices.Clip(c.removed), e.Rule)
		}
	}
	if l.empty() {
		delete(c.lists, m.Owner)
	}
	if c.content == Foreign {
		c.rows = t.reconcile(c)
		t.setListJumps(c)
	}
	c.removed = nil
	t.touch(b.Chain)
}

// place is where a rule belongs, by the lists of all owners.
type place uint8

const (
	nowhere place = iota
	atBottom
	atTop
)

func (t *Txn) placeOf(c *chain, r rules.Rule) place {
	at := nowhere
	for _, l := range c.lists {
		if t.find(l.top, r) >= 0 {
			return atTop
		}
		if t.find(l.bottom, r) >= 0 {
			at = atBottom
		}
	}
	return at
}

func (t *Txn) editOne(l *ownerList, e Edit) {
	l.bans = t.drop(l.bans, e.Rule)
	switch e.Op {
	case InsertTop, InsertFirst:
		l.bottom = t.drop(l.bottom, e.Rule)
		if t.find(l.top, e.Rule) >= 0 {
			return // a rule given again keeps its place
		}
		at := len(l.top)
		if e.Op == InsertFirst {
			at = 0
		}
		l.top = slices.Insert(l.top, at, e.Rule)
	case InsertBottom:
		l.top = t.drop(l.top, e.Rule)
		if t.find(l.bottom, e.Rule) < 0 {
			l.bottom = append(l.bottom, e.Rule)
		}
	case Remove, Ban:
		l.top, l.bottom = t.drop(l.top, e.Rule), t.drop(l.bottom, e.Rule)
		if e.Op == Ban {
			l.bans = append(l.bans, e.Rule)
		}
	}
}

// listed returns what a kernel chain should have on top and at the bottom, by (priority,
// owner), each rule once. Bans are all that is kept out.
func (t *Txn) listed(c *chain) (top, bottom, bans []rules.Rule) {
	owners := slices.SortedFunc(maps.Keys(c.lists), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.lists[a].priority, c.lists[b].priority), cmp.Compare(a, b))
	})
	seen := map[string]bool{}
	add := func(list, more []rules.Rule) []rules.Rule {
		for _, r := range more {
			if k := t.unitKey(r); !seen[k] {
				seen[k] = true
				list = append(list, r)
			}
		}
		return list
	}
	for _, o := range owners {
		top = add(top, c.lists[o].top)
	}
	for _, o := range owners {
		bottom = add(bottom, c.lists[o].bottom)
	}
	for _, o := range owners {
		bans = append(bans, c.lists[o].bans...)
	}
	return top, bottom, bans
}

// unitKey is equal for rules that are the same.
func (t *Txn) unitKey(r rules.Rule) string {
	lines := t.s.canonOf(r)
	if len(lines) == 1 {
		return lines[0]
	}
	var k []byte
	for _, l := range lines {
		k = append(append(k, l...), '\n')
	}
	return string(k)
}

// setListJumps derives the jumps of a kernel chain: those of listed rules need their
// chains, those of all other rules are a stranger's.
func (t *Txn) setListJumps(c *chain) {
	top, bottom, _ := t.listed(c)
	ours := map[string]bool{}
	for _, r := range slices.Concat(top, bottom) {
		for _, line := range t.s.canonOf(r) {
			ours[line] = true
		}
	}
	strange := slices.Clone(c.hidden)
	for _, l := range c.rowsOf() {
		if l.Rule.IsZero() || ours[lineKey(l.SavedRule)] {
			continue
		}
		if name := t.s.jump(l.Rule); name != "" {
			strange = append(strange, name)
		}
	}
	slices.Sort(strange)
	t.setJumps(c, t.s.jumpsOf(slices.Concat(top, bottom)), slices.Compact(strange))
}

// lineKey is the text by which a rule that was read is compared: its canonical words, so
// that a tool's habits of quoting do not matter. "" for text that cannot be sent again.
func lineKey(l rules.SavedRule) string {
	if l.Err != nil {
		return ""
	}
	return l.Rule.String()
}
