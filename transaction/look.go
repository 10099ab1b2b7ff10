// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Doubts are what a scan leaves open.
type Doubts struct {
	// Expect are chains that hold something else than before, or of which that is not known,
	// with what they should hold. What digests that gives has to be found out, and those of
	// each rule that they hold now.
	Expect []rules.Chain
	// Text are chains whose rules have to be read: rules of ours stand among those of others,
	// or may do.
	Text []string
}

// Look is what was seen of a table by a scan, and what was asked afterwards, all of one state
// of the table.
type Look struct {
	Scan rules.Snapshot
	// Asked are the chains that the scan was made of; nil: all of the table.
	Asked []string
	// Expected has what digests the chains of Doubts.Expect would have if they were right.
	Expected map[string]rules.SavedChain
	// Actual has the digests of each rule of these chains.
	Actual map[string]rules.SavedChain
	// Text has the chains that were read in full.
	Text map[string]rules.SavedChain
}

// Doubts compares a scan with what the chains are believed to hold. Chains whose digest is the
// one that is known hold what they held.
func (s *State) Doubts(scan rules.Snapshot) Doubts {
	var d Doubts
	t := s.Begin()
	for _, name := range slices.Sorted(maps.Keys(scan.Chains)) {
		c := s.chains[name]
		k, recalled := s.recalls(name, scan.Chains[name])
		if recalled || c == nil && k == nil {
			continue
		}
		if c != nil && c.digest != 0 && c.digest == scan.Chains[name].Digest && !(c.blind && c.hasListed()) {
			continue
		}
		if k.hasListed() || c.hasListed() || c != nil && c.content == Foreign && s.leadsToOurs(scan.Chains[name]) {
			d.Text = append(d.Text, name)
			continue
		}
		if c == nil {
			continue
		}
		if rs, ok := t.presumed(c); ok {
			d.Expect = append(d.Expect, rules.Chain{Name: name, Rules: rs})
		}
	}
	return d
}

// leadsToOurs tells whether a chain of somebody else jumps to one of ours: its rules may have to
// go with that.
func (s *State) leadsToOurs(seen rules.SavedChain) bool {
	return slices.ContainsFunc(seen.Jumps, func(to string) bool {
		c := s.chains[to]
		return c != nil && c.ours || s.oursByName(to) || s.buried[to]
	})
}

// presumed returns what a chain that is ours should hold, or, if nobody has spoken of it, what
// it is known to have held.
func (t *Txn) presumed(c *chain) ([]rules.Rule, bool) {
	switch {
	case c.wanted:
		return c.rules, true
	case c.content == Condemned:
		return t.s.condemnedRules(), true
	case c.content == Stub || c.content == Override:
		return t.stubOf(c), true
	case c.blind || c.content != Earlier:
		return nil, false
	}
	return c.known()
}

// known returns the rules that a chain is believed to hold, as far as they can be sent.
func (c *chain) known() ([]rules.Rule, bool) {
	if c.blind {
		return nil, false
	}
	if c.isSaved {
		return parseAll(c.saved)
	}
	if !c.isRead {
		return c.written, true
	}
	rs := make([]rules.Rule, len(c.lines))
	for i, l := range c.lines {
		if l.Err != nil {
			return nil, false
		}
		rs[i] = l.Rule
	}
	return rs, true
}

// Look takes over what was seen. It returns what others have changed that is ours to keep.
func (s *State) Look(l Look) []Drift {
	s.adopt(l.Scan.Chains)
	t := s.Begin()
	t.plan = &Plan{} // nothing is planned: only the belief changes
	if l.Asked == nil {
		t.reads++
	}
	seen := slices.Sorted(maps.Keys(l.Scan.Chains))
	for _, name := range seen {
		t.see(name, l)
		t.remember(name)
	}
	asked := slices.Values(l.Asked)
	if l.Asked == nil {
		asked = maps.Keys(s.chains)
	}
	for name := range asked {
		_, there := l.Scan.Chains[name]
		if c := s.chains[name]; !there && c.exists() && !c.builtin {
			t.vanished(t.edit(name))
		}
	}
	if l.Asked == nil {
		for _, name := range seen {
			t.noteOrphan(name)
		}
		s.loaded = nil
	}
	return s.believe(t)
}

// LookAgain says that nobody has changed the table since the last look: that counts as one.
func (s *State) LookAgain() {
	s.reads++
	for name := range s.special {
		if c := s.chains[name]; c.content == Earlier && c.candidate == 0 {
			t := s.Begin()
			t.plan = &Plan{}
			t.noteOrphan(name)
			s.Commit(t)
		}
	}
}

// Digests says what the digests of all chains are whose rules have just been read.
func (s *State) Digests(scan rules.Snapshot) {
	for name, seen := range scan.Chains {
		if base := s.chains[name]; base.exists() {
			c := *base
			c.digest = seen.Digest
			s.chains[name] = &c
		}
	}
}

// see takes over what a scan shows of one chain.
func (t *Txn) see(name string, l Look) {
	seen, base := l.Scan.Chains[name], t.get(name)
	if k, ok := t.s.recalls(name, seen); ok {
		t.recall(t.edit(name), k, seen)
		return
	}
	if base.exists() && base.digest != 0 && base.digest == seen.Digest && !(base.blind && l.Text[name].Full) {
		if base.policy != seen.Policy {
			t.edit(name).policy = seen.Policy
		}
		return
	}
	c := t.edit(name)
	expected, known := l.Expected[name]
	text, read := l.Text[name]
	switch {
	case read && text.Full:
		t.observeChain(c, text)
	case known && expected.Digest == seen.Digest:
		rs, _ := t.presumed(c)
		c.isRead, c.lines, c.written, c.blind = false, nil, rs, false
		c.isSaved, c.saved = false, nil
		if c.wanted {
			c.content = Ours
		}
	default:
		t.observeChain(c, seen)
		c.blind = true
		c.found, c.want = l.Actual[name].Digests, expected.Digests
	}
	c.digest = seen.Digest
}

// Unseen returns the kernel chains that messages put rules into or take rules from, and the
// chains of an earlier run that messages write, whose rules have never been read, or have
// changed since, sorted.
func (s *State) Unseen(msgs []Message) []string {
	var names []string
	for _, m := range msgs {
		switch b := m.Body.(type) {
		case EditRules:
			if c := s.chains[b.Chain]; c.exists() && c.blind && c.content == Foreign {
				names = append(names, b.Chain)
			}
		case RewriteChains:
			for _, want := range b.Chains {
				if c := s.chains[want.Name]; c.exists() && c.blind && c.content == Earlier && !c.spoken {
					names = append(names, want.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Written are the chains of a committed plan whose digests are not known yet, sorted: those
// that it writes, less those that went with its delete block.
func (s *State) Written(t *Txn) []string {
	var names []string
	for name := range t.chains {
		if c := s.chains[name]; c.exists() && c.digest == 0 && (!c.builtin || len(c.lists) > 0) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Verify takes over the digests of chains right after they were written, when nobody else has
// written to the table meanwhile: then they hold what they are believed to hold.
func (s *State) Verify(scan rules.Snapshot, names []string) {
	for _, name := range names {
		seen, there := scan.Chains[name]
		if base := s.chains[name]; there && base.exists() && base.digest == 0 && !base.blind {
			c := *base
			c.digest = seen.Digest
			s.chains[name] = &c
		}
	}
}

// Presumed returns chains of ours, among those named, with what they should hold.
func (s *State) Presumed(names []string) []rules.Chain {
	t := s.Begin()
	var out []rules.Chain
	for _, name := range names {
		if c := s.chains[name]; c.exists() && c.content != Foreign {
			if rs, ok := t.presumed(c); ok {
				out = append(out, rules.Chain{Name: name, Rules: rs})
			}
		}
	}
	return out
}
