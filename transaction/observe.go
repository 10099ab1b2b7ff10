// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Observe takes over what was read: chains, contents, jumps, policies. What differs from
// the wishes is remembered and repaired by the next Refresh, or by the next message that
// touches it. It costs as much as the table. It returns what others have changed that is ours
// to keep.
func (s *State) Observe(snap rules.Snapshot) []Drift {
	s.adopt(snap.Chains)
	t := s.Begin()
	t.plan = &Plan{} // nothing is planned: only the belief changes
	t.observe(snap)
	s.loaded = nil
	return s.believe(t)
}

// adopt makes chains ours that a plan of unknown outcome has created.
func (s *State) adopt(seen map[string]rules.SavedChain) {
	for name := range s.made {
		if _, there := seen[name]; there {
			s.Own(name)
		}
	}
	empty(&s.made)
}

// believe commits what was observed, and returns what of it nobody has told before.
func (s *State) believe(t *Txn) []Drift {
	t.queue, t.cause = nil, nil
	for name := range t.chains {
		t.noteDrift(name)
	}
	drifts := t.drifts()
	for name := range t.dirty {
		t.keepDirty(name)
	}
	for name := range s.dirty {
		if t.get(name) != nil && t.differs(t.get(name)) {
			t.keepDirty(name)
		}
	}
	s.Commit(t)
	empty(&s.unsure)
	return drifts
}

func (t *Txn) keepDirty(name string) {
	if t.stillDirty == nil {
		t.stillDirty = map[string]bool{}
	}
	t.stillDirty[name] = true
}

func (t *Txn) observe(snap rules.Snapshot) {
	t.reads++
	for _, name := range slices.Sorted(maps.Keys(snap.Chains)) {
		t.observeChain(t.edit(name), snap.Chains[name])
		t.remember(name)
	}
	for name, c := range t.s.chains {
		if _, ok := snap.Chains[name]; !ok && c.exists() && !c.builtin {
			t.vanished(t.edit(name))
		}
	}
	for name := range snap.Chains {
		t.noteOrphan(name)
	}
}

func (t *Txn) observeChain(c *chain, read rules.SavedChain) {
	// What reads back as it was written stays known as it was written: then what the tool makes
	// of a later wish need not be asked.
	if c.isRead || c.isSaved || !c.wanted || !t.readBack(c.written, read.Rules) {
		c.isRead, c.lines, c.written = true, read.Rules, nil
		c.isSaved, c.saved = false, nil
	}
	c.rows, c.policy = nil, read.Policy
	c.digest, c.sent, c.blind, c.found, c.want = 0, false, false, nil, nil
	c.ours = !c.builtin && (c.ours || t.s.oursByName(c.name))
	switch {
	case c.wanted:
		c.content = Ours
	case c.content == Absent && t.s.buried[c.name]:
		c.ours, c.spoken, c.content = true, true, Condemned // back from the dead
		t.setJumps(c, nil, nil)
	case c.ours && (c.content == Stub || c.content == Override || c.content == Condemned):
	case c.ours:
		c.content = Earlier
		t.setJumps(c, nil, read.Jumps)
	default:
		c.content = Foreign
		c.hidden = hiddenJumps(t.s, read)
		t.setListJumps(c)
	}
}

// hiddenJumps are the jumps of rules whose text cannot be taken over as a rule.
func hiddenJumps(s *State, read rules.SavedChain) []string {
	seen := map[string]bool{}
	for _, l := range read.Rules {
		if l.Err == nil {
			seen[s.jump(l.Rule)] = true
		}
	}
	var out []string
	for _, name := range read.Jumps {
		if !seen[name] && !s.extensions[name] {
			out = append(out, name)
		}
	}
	return out
}

// vanished: somebody took the chain away.
func (t *Txn) vanished(c *chain) {
	c.isRead, c.lines, c.rows, c.written = true, nil, nil, nil
	c.isSaved, c.saved, c.leftover = false, nil, nil
	c.digest, c.sent, c.blind, c.found, c.want = 0, false, false, nil, nil
	c.content = Absent
	switch {
	case c.wanted:
		t.markDirty(c.name)
	case t.needs.len(c.name) > 0:
		t.setJumps(c, nil, nil)
		t.markDirty(c.name)
	default:
		t.setJumps(c, nil, nil)
	}
}

func (t *Txn) markDirty(name string) {
	if t.dirty == nil {
		t.dirty = map[string]struct{}{}
	}
	t.dirty[name] = struct{}{}
}

// noteOrphan keeps the number of the first read that shows the chain as an orphan.
func (t *Txn) noteOrphan(name string) {
	c := t.get(name)
	switch orphan := t.orphan(c); {
	case !orphan && (c.candidate != 0 || c.pinned):
		c = t.edit(name)
		c.candidate, c.pinned = 0, false
	case orphan && c.candidate == 0:
		t.edit(name).candidate = t.s.reads + t.reads
	}
}

// orphan tells whether the chain is one of an earlier run that nobody wrote in this one and
// nothing of ours needs.
func (t *Txn) orphan(c *chain) bool {
	return c.content == Earlier && !c.wanted && t.s.oursByName(c.name) && t.needs.len(c.name) == 0
}

func (t *Txn) noteDrift(name string) {
	if c := t.get(name); t.differs(c) {
		t.markDirty(name)
	}
}

// differs tells whether the chain is not what the wishes make of it.
func (t *Txn) differs(c *chain) bool {
	switch {
	case c.content == Foreign || c.content == Absent && len(c.lists) > 0:
		if c.wantedPolicy != "" && c.wantedPolicy != c.policy {
			return true
		}
		if len(c.lists) == 0 || c.content == Absent || c.blind {
			return false
		}
		return !slices.EqualFunc(c.lines, t.reconcile(c), func(l rules.SavedRule, r row) bool { return l.Text == r.Text })
	case c.wanted:
		return !t.holds(c, c.rules)
	case c.content == Stub || c.content == Override:
		return t.needs.len(c.name) == 0 || !t.holds(c, t.stubOf(c))
	case c.content == Condemned:
		return !t.holds(c, t.s.condemnedRules())
	case c.content == Absent:
		return t.needs.len(c.name) > 0
	}
	return false
}

// holds tells whether the chain is believed to hold exactly rs.
func (t *Txn) holds(c *chain, rs []rules.Rule) bool {
	if c.content == Absent || c.blind {
		return false
	}
	if c.isSaved {
		return slices.EqualFunc(c.saved, rs, func(text string, r rules.Rule) bool { return text == r.String() })
	}
	if !c.isRead {
		return slices.EqualFunc(c.written, rs, func(a, b rules.Rule) bool { return a.String() == b.String() })
	}
	return t.readBack(rs, c.lines)
}

// readBack tells whether lines are what the tool reads back for rs, as far as that is known.
func (t *Txn) readBack(rs []rules.Rule, lines []rules.SavedRule) bool {
	i := 0
	for _, r := range rs {
		for _, want := range t.s.canonOf(r) {
			if i >= len(lines) || lineKey(lines[i]) != want {
				return false
			}
			i++
		}
	}
	return i == len(lines)
}
