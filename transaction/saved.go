// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Saved is what a run leaves to the next one about a table: what chains were believed to hold,
// by the digests that a scan will show again if nobody has changed them, and what was ours. It
// is safe to lose: then the table is read instead.
type Saved struct {
	Table  rules.TableID
	Chains []SavedChain // by name
}

// SavedChain is what is kept of a chain that is ours, or of a kernel chain with rules of ours.
type SavedChain struct {
	Name    string
	Content Content // Foreign for a kernel chain
	Owner   string  // of a chain that its owner wrote; nobody owns it in the next run before he writes it
	Digest  uint64  // of what it holds, as a scan has it; 0: not known
	Known   bool    // Rules are what it holds; never without a Digest
	Rules   []string
	Listed  []ListedRule // of a kernel chain
}

// ListedRule is a rule that an owner listed in a kernel chain.
type ListedRule struct {
	Owner string
	List  string   // "top", "bottom", or "placed" for one beside others
	Text  string   // as its owner wrote it
	Canon []string // as the tool reads it back; nil if that is not known
}

// mostSavedLines bounds the rules of a kernel chain that are kept, so that the chain need not be
// read again.
const mostSavedLines = 1000

// Save returns what the next run is to know; false while nothing has been seen of the table. It
// copies no text.
func (s *State) Save() (Saved, bool) {
	if s.reads == 0 {
		return Saved{}, false
	}
	v := Saved{Table: s.cfg.Table}
	t := s.Begin()
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		c := s.chains[name]
		k := SavedChain{Name: name, Content: c.content, Digest: c.digest}
		switch {
		case c.content == Absent:
			continue
		case c.content == Foreign:
			if !t.saveKernelChain(c, &k) {
				continue
			}
		default:
			if c.wanted {
				k.Owner = c.owner
			}
			k.Rules, k.Known = t.textsOf(c)
			if !k.Known && s.hasPrefix(name) {
				continue // its name says enough
			}
		}
		v.Chains = append(v.Chains, k)
	}
	return v, true
}

// textsOf returns the rules that a chain of ours is believed to hold, as its owner wrote them if
// that is the same, so that the next run finds it to be what he asks for again.
func (t *Txn) textsOf(c *chain) ([]string, bool) {
	switch {
	case c.blind || c.digest == 0:
		return nil, false
	case c.isSaved:
		return c.saved, true
	case !c.isRead:
		return textsOf(c.written), true
	case c.wanted && t.holds(c, c.rules):
		return textsOf(c.rules), true
	}
	return linesOf(c)
}

// hasListed tells whether rules of an earlier run may stand in the chain.
func (k *SavedChain) hasListed() bool { return k != nil && len(k.Listed) > 0 }

// hasListed tells whether rules of ours stand in a kernel chain.
func (c *chain) hasListed() bool { return c != nil && len(c.lists)+len(c.leftover) > 0 }

// parseAll returns rules from their texts; false where one is none.
func parseAll(texts []string) ([]rules.Rule, bool) {
	rs := make([]rules.Rule, len(texts))
	for i, text := range texts {
		r, err := rules.ParseRule(text)
		if err != nil {
			return nil, false
		}
		rs[i] = r
	}
	return rs, true
}

func linesOf(c *chain) ([]string, bool) {
	out := make([]string, len(c.lines))
	for i, l := range c.lines {
		if l.Err != nil {
			return nil, false
		}
		out[i] = l.Text
	}
	return out, true
}

// saveKernelChain tells whether there is anything to know of a kernel chain: rules that owners
// list, or a stranger's jump to a chain of ours, for the sake of which it is read at the start.
func (t *Txn) saveKernelChain(c *chain, k *SavedChain) bool {
	for _, owner := range slices.Sorted(maps.Keys(c.lists)) {
		l := c.lists[owner]
		list := func(name string, r rules.Rule) {
			k.Listed = append(k.Listed, ListedRule{owner, name, r.String(), t.s.canon[r.String()]})
		}
		for _, r := range l.top {
			list("top", r)
		}
		for _, r := range l.bottom {
			list("bottom", r)
		}
		for _, e := range l.placed {
			list("placed", e.Rule)
		}
	}
	for _, left := range c.leftover {
		if r, err := rules.ParseRule(left.Text); err == nil && t.placeOf(c, r) == nowhere {
			k.Listed = append(k.Listed, left)
		}
	}
	if !c.blind && c.digest != 0 && len(c.lines) <= mostSavedLines {
		k.Rules, k.Known = linesOf(c)
	}
	return len(k.Listed) > 0 || k.Known && slices.ContainsFunc(c.strange, func(to string) bool {
		return t.s.chains[to] != nil && t.s.chains[to].ours
	})
}

// Load takes over what an earlier run has left, before anything has been seen of the table. Its
// chains are ours, and those that the first Look shows with the same digest hold what they held;
// of all others nothing is believed. Rules that it listed in kernel chains go with a Cleanup after
// grace unless somebody lists them again. An error means that nothing was taken over.
func (s *State) Load(v Saved) error {
	if v.Table != s.cfg.Table {
		return fmt.Errorf("it is of table %s, not of %s", v.Table, s.cfg.Table)
	}
	loaded := make(map[string]*SavedChain, len(v.Chains))
	for i := range v.Chains {
		k := &v.Chains[i]
		if err := s.checkSaved(k); err != nil {
			return fmt.Errorf("chain %q: %w", k.Name, err)
		}
		loaded[k.Name] = k
	}
	for name, k := range loaded {
		if k.Content != Foreign && !s.hasPrefix(name) {
			s.own[name] = true
		}
		for _, l := range k.Listed {
			if len(l.Canon) > 0 {
				s.Learn(l.Text, slices.Clone(rules.Canon(l.Canon)))
			}
		}
	}
	s.loaded = loaded
	return nil
}

func (s *State) checkSaved(k *SavedChain) error {
	if err := rules.CheckChainName(k.Name); err != nil && k.Content != Foreign {
		return err
	}
	if rules.IsBuiltin(s.cfg.Table.Name, k.Name) && k.Content != Foreign {
		return fmt.Errorf("it is built in, and %s", k.Content)
	}
	for _, l := range k.Listed {
		for _, text := range append([]string{l.Text}, l.Canon...) {
			if _, err := rules.ParseRule(text); err != nil {
				return err
			}
		}
	}
	return nil
}

// recalls tells whether a chain that a scan shows is, by what an earlier run left, known without
// a read.
func (s *State) recalls(name string, seen rules.SavedChain) (*SavedChain, bool) {
	k := s.loaded[name]
	base := s.chains[name]
	if k == nil || base.exists() && base.content != Foreign {
		return nil, false
	}
	return k, k.Known && k.Digest != 0 && k.Digest == seen.Digest && !(base.exists() && base.digest != 0)
}

// recall has a chain hold what it held when an earlier run ended.
func (t *Txn) recall(c *chain, k *SavedChain, seen rules.SavedChain) {
	if k.Content == Foreign && !t.s.oursByName(c.name) {
		lines := make([]rules.SavedRule, len(k.Rules))
		for i, text := range k.Rules {
			lines[i].Text = text
			lines[i].Rule, lines[i].Err = rules.ParseRule(text)
		}
		seen.Full, seen.Rules = true, lines
		t.observeChain(c, seen)
	} else {
		t.observeChain(c, seen)
		c.isRead, c.lines = false, nil
		c.isSaved, c.saved = true, k.Rules
	}
	c.digest = seen.Digest
}

// remember notes the rules that an earlier run has left in a kernel chain, and which must not
// stay if nobody lists them any more.
func (t *Txn) remember(name string) {
	k := t.s.loaded[name]
	if k == nil || len(k.Listed) == 0 {
		return
	}
	if c := t.edit(name); c.content == Foreign {
		c.leftover, c.left = k.Listed, t.s.reads+t.reads
	}
}

// sweepLeftovers takes the rules out of kernel chains that an earlier run listed and nobody
// lists any more, as orphans go: only those that an earlier read than the newest had shown.
func (t *Txn) sweepLeftovers() {
	if !t.sweeping {
		return
	}
	for name := range t.s.special {
		base, c := t.s.chains[name], t.get(name)
		if len(base.leftover) == 0 || c.content != Foreign || c.blind || c.left >= t.s.reads+t.reads {
			continue
		}
		c = t.edit(name)
		for _, l := range c.leftover {
			if r, err := rules.ParseRule(l.Text); err == nil && t.placeOf(c, r) == nowhere {
				c.removed = append(slices.Clip(c.removed), r)
			}
		}
		c.leftover = nil
		t.touch(name)
	}
}
