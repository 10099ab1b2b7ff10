// SPDX-License-Identifier: Apache-2.0

package dataplane

import "slices"

// simWalk finds what nf_tables says of a table that check has found bad: of several faults
// the first on its way, which goes from each built-in chain down, rule by rule.
type simWalk struct {
	t    *simTable
	seen map[simWalked]bool
}

// simWalked is a chain that was gone through at a level, coming from some hook, without a
// fault.
type simWalked struct {
	chain *simChain
	level int
	hook  uint8
}

// errno returns the text of the first fault, or instead if there is none.
func (t *simTable) errno(instead string) string {
	w := simWalk{t: t, seen: make(map[simWalked]bool)}
	var bases []*simChain
	for _, c := range t.chains {
		if c.hook != 0 && c.real {
			bases = append(bases, c)
		}
	}
	slices.SortFunc(bases, func(a, b *simChain) int { return a.born - b.born })
	for _, c := range bases {
		if errno := w.chain(c, c.hook, 0); errno != "" {
			return errno
		}
	}
	return instead
}

func (w *simWalk) chain(c *simChain, hook uint8, level int) string {
	if limit := maxDepth(NFT); level > limit {
		return errLinks
	}
	at := simWalked{c, level, hook}
	if w.seen[at] {
		return ""
	}
	for _, e := range c.rules {
		if e.dead {
			continue
		}
		if e.forbid&hook != 0 {
			return errInval
		}
		if to := w.t.chains[e.target]; e.jump && to != nil {
			if errno := w.chain(to, hook, level+1); errno != "" {
				return errno
			}
		}
	}
	w.seen[at] = true
	return ""
}
