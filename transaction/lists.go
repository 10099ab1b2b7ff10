// SPDX-License-Identifier: Apache-2.0

package transaction

import (
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
		before := t.spotOf(c, e.Rule)
		t.editOne(l, e)
		// A rule that nobody lists any more, or that is listed in another way, counts as gone in
		// between, so that it ends up where it would had each edit been a batch of its own. At the
		// top that makes no difference.
		after := t.spotOf(c, e.Rule)
		if after.place == nowhere && e.Op >= Remove || before != after && before.place != nowhere && after.place != atTop {
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
// where rules are listed that may stay where they are, a rule's place goes by what was there
// when it was listed. Top lists alone decide every place by themselves, however late they are
// looked at.
func (t *Txn) orderMatters(c *chain, b EditRules) bool {
	for _, e := range b.Edits {
		if e.Op >= InsertBottom && e.Op < Remove {
			return true
		}
	}
	for _, l := range c.lists {
		if len(l.bottom)+len(l.placed) > 0 {
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
			needed = needed || t.jumps(l.rules(), target)
		}
		t.setNeed(c, target, needed)
	}
}

func (t *Txn) jumps(list []rules.Rule, target string) bool {
	return slices.ContainsFunc(list, func(r rules.Rule) bool { return t.s.jump(r) == target })
}

// place is where a rule belongs. Where several owners list a rule, the most demanding counts.
type place uint8

const (
	nowhere place = iota
	atBottom
	nearTop
	atAnchor
	atTop
)

// spot is a place, and of a rule at an anchor which one.
type spot struct {
	place
	side   Op
	anchor Anchor
}

// placeOf is where a rule belongs, by the lists of all owners.
func (t *Txn) placeOf(c *chain, r rules.Rule) place { return t.spotOf(c, r).place }

func (t *Txn) spotOf(c *chain, r rules.Rule) spot {
	var best spot
	for _, owner := range c.byOrder() {
		if s := t.spotIn(c.lists[owner], r); s.place > best.place {
			best = s
		}
	}
	return best
}

// spotIn is where one owner lists a rule.
func (t *Txn) spotIn(l *ownerList, r rules.Rule) spot {
	if t.find(l.top, r) >= 0 {
		return spot{place: atTop}
	}
	if t.find(l.bottom, r) >= 0 {
		return spot{place: atBottom}
	}
	i := t.findPlaced(l, r)
	switch {
	case i < 0:
		return spot{}
	case l.placed[i].Op == InsertNear:
		return spot{place: nearTop}
	}
	return spot{atAnchor, l.placed[i].Op, l.placed[i].Anchor}
}

func (t *Txn) findPlaced(l *ownerList, r rules.Rule) int {
	return slices.IndexFunc(l.placed, func(e Edit) bool { return t.same(e.Rule, r) })
}

func (t *Txn) editOne(l *ownerList, e Edit) {
	l.bans = t.drop(l.bans, e.Rule)
	if e.Op != InsertTop && e.Op != InsertFirst {
		l.top = t.drop(l.top, e.Rule)
	}
	if e.Op != InsertBottom {
		l.bottom = t.drop(l.bottom, e.Rule)
	}
	// A rule given again keeps its place.
	i := t.findPlaced(l, e.Rule)
	if i >= 0 && (l.placed[i].Op != e.Op || l.placed[i].Anchor != e.Anchor) {
		l.placed, i = slices.Delete(l.placed, i, i+1), -1
	}
	switch e.Op {
	case InsertTop, InsertFirst:
		if t.find(l.top, e.Rule) >= 0 {
			return
		}
		at := len(l.top)
		if e.Op == InsertFirst {
			at = 0
		}
		l.top = slices.Insert(l.top, at, e.Rule)
	case InsertBottom:
		if t.find(l.bottom, e.Rule) < 0 {
			l.bottom = append(l.bottom, e.Rule)
		}
	case InsertNear, InsertBefore, InsertAfter:
		if i < 0 {
			l.placed = append(l.placed, e)
		}
	case Ban:
		l.bans = append(l.bans, e.Rule)
	}
}

// listed is what a kernel chain should have by the lists of all owners, by (priority, owner),
// each rule once, where the most demanding list has it. Bans are all that is kept out.
type listed struct {
	top, near, bottom, bans []rules.Rule
	anchored                []anchored
}

// anchored is a rule that is placed by an anchor.
type anchored struct {
	Edit
	owner string
}

// all returns the rules that should be in the chain.
func (w listed) all() []rules.Rule {
	out := slices.Concat(w.top, w.near, w.bottom)
	for _, a := range w.anchored {
		out = append(out, a.Rule)
	}
	return out
}

func (t *Txn) listed(c *chain) listed {
	var w listed
	owners := c.byOrder()
	seen := map[string]bool{}
	first := func(r rules.Rule) bool {
		k := t.unitKey(r)
		if seen[k] || c.brokenRules[r.String()] {
			return false
		}
		seen[k] = true
		return true
	}
	add := func(list, more []rules.Rule) []rules.Rule {
		for _, r := range more {
			if first(r) {
				list = append(list, r)
			}
		}
		return list
	}
	for _, o := range owners {
		w.top = add(w.top, c.lists[o].top)
		w.bans = append(w.bans, c.lists[o].bans...)
	}
	for _, o := range owners {
		for _, e := range c.lists[o].placed {
			if e.Op != InsertNear && first(e.Rule) {
				w.anchored = append(w.anchored, anchored{e, o})
			}
		}
	}
	for _, o := range owners {
		for _, e := range c.lists[o].placed {
			if e.Op == InsertNear {
				w.near = add(w.near, []rules.Rule{e.Rule})
			}
		}
	}
	for _, o := range owners {
		w.bottom = add(w.bottom, c.lists[o].bottom)
	}
	return w
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
	all := t.listed(c).all()
	ours := map[string]bool{}
	for _, r := range all {
		t.mark(ours, r)
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
	t.setJumps(c, t.s.jumpsOf(all), slices.Compact(strange))
}

// lineKey is the text by which a rule that was read is compared: its canonical words, so
// that a tool's habits of quoting do not matter. "" for text that cannot be sent again.
func lineKey(l rules.SavedRule) string {
	if l.Err != nil {
		return ""
	}
	return l.Rule.String()
}
