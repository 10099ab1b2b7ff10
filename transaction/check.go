// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"slices"
)

// Check reports the first invariant of State that does not hold. It costs as much as the
// table, and is for tests.
func (s *State) Check() error {
	needs, strangers := index{}, index{}
	for name, c := range s.chains {
		_, special := s.special[name]
		if want := c.special(); special != want {
			return fmt.Errorf("chain %s: each refresh looks at it: %v, want %v", name, special, want)
		}
		if c.name != name {
			return fmt.Errorf("chain %q is kept under %q", c.name, name)
		}
		for _, target := range c.needs {
			needs.set(target, name, true)
		}
		for _, target := range c.strange {
			strangers.set(target, name, true)
		}
		if err := s.checkChain(c); err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
	}
	if err := equalIndex(needs, s.needs); err != nil {
		return fmt.Errorf("invariant 1: needs: %w", err)
	}
	if err := equalIndex(strangers, s.strangers); err != nil {
		return fmt.Errorf("invariant 1: strangers: %w", err)
	}
	t := s.Begin()
	t.newEdges = map[string]struct{}{}
	for name, c := range s.chains {
		if c.wanted {
			t.newEdges[name] = struct{}{}
		}
	}
	if loop := t.anyLoop(); loop != "" {
		return fmt.Errorf("invariant 6: a circle through %s", loop)
	}
	return nil
}

func (s *State) checkChain(c *chain) error {
	if c.wanted && (!c.ours || !c.owned || c.builtin || c.content == Foreign || len(c.lists) > 0) {
		return fmt.Errorf("invariant 2: wanted, but ours=%v owned=%v builtin=%v content=%v", c.ours, c.owned, c.builtin, c.content)
	}
	_, dirty := s.dirty[c.name]
	if !dirty && c.exists() {
		for _, target := range append(slices.Clone(c.needs), c.strange...) {
			to := s.chains[target]
			if _, known := s.dirty[target]; !to.exists() && !known {
				return fmt.Errorf("invariant 3: jumps to %s, which does not exist", target)
			}
		}
	}
	if (c.content == Stub || c.content == Override) && !dirty && !c.broken && (c.wanted || len(s.needs[c.name]) == 0) {
		return fmt.Errorf("invariant 4: %v, wanted=%v, needed by %d", c.content, c.wanted, len(s.needs[c.name]))
	}
	if !c.builtin && c.policy != "" || (c.content != Foreign && c.content != Absent && len(c.lists) > 0) {
		return fmt.Errorf("invariant 7: policy %q, %d lists, content %v", c.policy, len(c.lists), c.content)
	}
	return s.checkLists(c)
}

func (s *State) checkLists(c *chain) error {
	t := s.Begin()
	listed, banned := map[string]string{}, map[string]string{}
	for owner, l := range c.lists {
		seen := map[string]bool{}
		for _, r := range slices.Concat(l.rules(), l.bans) {
			k := t.unitKey(r)
			if seen[k] {
				return fmt.Errorf("invariant 5: owner %q has %q twice", owner, k)
			}
			seen[k] = true
		}
		for _, r := range l.rules() {
			listed[t.unitKey(r)] = owner
		}
		for _, r := range l.bans {
			banned[t.unitKey(r)] = owner
		}
	}
	for k, owner := range banned {
		if other, ok := listed[k]; ok {
			return fmt.Errorf("invariant 5: %q is listed by %q and banned by %q", k, other, owner)
		}
	}
	return nil
}

func equalIndex(want, got index) error {
	for target, sources := range want {
		for source := range sources {
			if _, ok := got[target][source]; !ok {
				return fmt.Errorf("%s -> %s is missing", source, target)
			}
		}
	}
	for target, sources := range got {
		for source := range sources {
			if _, ok := want[target][source]; !ok {
				return fmt.Errorf("%s -> %s is too much", source, target)
			}
		}
	}
	return nil
}
