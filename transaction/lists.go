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
	if a.String() == b.String() {
		return true
	}
	ca, cb := t.s.canon[a.String()], t.s.canon[b.String()]
	switch {
	case len(ca) == 0:
		return len(cb) == 1 && cb[0] == a.String()
	case len(cb) == 0:
		return len(ca) == 1 && ca[0] == b.String()
	}
	return slices.Equal(ca, cb)
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
	if c.brokenRules != nil {
		c.brokenRules = maps.Clone(c.brokenRules)
	}
	for _, e := range b.Edits {
		delete(c.brokenRules, e.Rule.String())
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
		if t.orderMatters(c, b) {
			c.rows, c.removed = t.reconcile(c), nil
		}
		t.noteNeeds(c, b)
	}
	t.touch(b.Chain)
}

// orderMatters tells whether a message's edits have to be worked in before the next message:
// where bottom lists play, a rule's place goes by what was there when it was listed. Top
// lists alone decide every place by themselves, however late they are looked at.
func (t *Txn) orderMatters(c *chain, b EditRules) bool {
	for _, e := range b.Edits {
		if e.Op == InsertBottom {
			return true
		}
	}
	for _, l := range c.lists {
		if len(l.bottom) > 0 {
			return true
		}
	}
	return len(c.removed) > 0 && c.rows != nil
}

// noteNeeds updates what a kernel chain's listed rules jump to, as far as a message's edits
// may have changed it.
func (t *Txn) noteNeeds(c *chain, b EditRules) {
	for _, e := range b.Edits {
		target := t.s.jump(e.Rule)
		if target == "" {
			continue
		}
		needed := false
		for _, l := range c.lists {
			needed = needed || t.jumps(l.top, target) || t.jumps(l.bottom, target)
		}
		t.setNeed(c, target, needed)
	}
}

func (t *Txn) jumps(list []rules.Rule, target string) bool {
	return slices.ContainsFunc(list, func(r rules.Rule) bool { return t.s.jump(r) == target })
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
			if k := t.unitKey(r); !seen[k] && !c.brokenRules[r.String()] {
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
