// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// blame refuses what is at fault where a rule of a built-in chain is refused: what is reached
// through it and is refused there by itself too, else the rule. So many verdicts there were
// before this round's hooks.
func (c *trial) blame(ctx context.Context, it *item, re *RestoreError, before int) error {
	below := c.below(it)
	found, err := c.solo(ctx, it.chain, stillIn(below))
	if err != nil {
		return err
	}
	// What was taken out for another hook may be what is at fault here.
	if !found && !c.since(before, below) {
		c.refuse(it, it.chain, re)
	}
	return nil
}

// since tells whether one of these items was refused after so many verdicts.
func (c *trial) since(verdicts int, items []*item) bool {
	return slices.ContainsFunc(c.verdicts[verdicts:], func(v orderedVerdict) bool {
		return slices.ContainsFunc(items, func(it *item) bool { return it.out && it.order == v.order })
	})
}

// below are the batch's rules that are reached through a rule, itself included.
func (c *trial) below(top *item) []*item {
	byChain := map[string][]*item{}
	for _, it := range c.items {
		byChain[it.chain] = append(byChain[it.chain], it)
	}
	var out []*item
	seen := map[string]bool{"": true}
	todo := []*item{top}
	for len(todo) > 0 {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if it.own {
			out = append(out, it)
		}
		if jump := it.rule.Jump(); !seen[jump] {
			seen[jump] = true
			todo = append(todo, c.live(byChain[jump])...)
		}
	}
	return out
}

// live cuts a chain's rules behind the one that ends it for every packet. The legacy backend
// does not look there.
func (c *trial) live(items []*item) []*item {
	if c.k.backend != Legacy {
		return items
	}
	end := slices.IndexFunc(items, func(it *item) bool { return !it.out && it.ends() })
	if end < 0 {
		return items
	}
	return items[:end+1]
}

// ends tells whether a rule ends its chain for every packet.
func (it *item) ends() bool {
	target, bare := strings.CutPrefix(it.text, "-j ")
	return bare && rules.IsVerdict(target)
}

// solo tries rules for themselves, in a small namespace whose chains are all empty: in the
// built-in chain hook, or unreached if that is "". It refuses those that the tool does not
// take and tells whether there were any.
func (c *trial) solo(ctx context.Context, hook string, items []*item) (found bool, err error) {
	before := len(c.verdicts)
	size := soloNFT
	if c.k.backend == Legacy {
		size = soloLegacy
		// In one chain they would hide those that come behind.
		items = slices.Clone(items)
		slices.SortStableFunc(items, func(a, b *item) int {
			switch {
			case a.ends() == b.ends():
				return 0
			case b.ends():
				return -1
			}
			return 1
		})
	}
	for group := range slices.Chunk(items, size) {
		if c.small.used+len(group) > maxSolo {
			c.small.close()
		}
		if c.small.s == nil {
			if err := c.open(ctx, &c.small); err != nil {
				return false, err
			}
		}
		if err := c.hookSolo(ctx, hook); err != nil {
			return false, err
		}
		if err := c.soloGroup(ctx, hook, slices.Clone(group)); err != nil {
			return false, err
		}
	}
	return len(c.verdicts) > before, nil
}

// soloChain is the chain where rules are tried that a hook reaches, or that none does.
func soloChain(hook string) string {
	if hook == "" {
		return unreached
	}
	return unreached + "-" + hook
}

// hookSolo sees to it that the small namespace has that chain, reached from the hook alone.
func (c *trial) hookSolo(ctx context.Context, hook string) error {
	if hook == "" || c.small.hooks[hook] {
		return nil
	}
	chain := soloChain(hook)
	re, err := c.run(ctx, &c.small, c.block([]string{":" + chain + " - [0:0]", "-A " + hook + " -j " + chain}))
	if err != nil {
		return err
	}
	if re != nil {
		return re
	}
	if c.small.hooks == nil {
		c.small.hooks = make(map[string]bool)
	}
	c.small.hooks[hook] = true
	return nil
}

func (c *trial) soloGroup(ctx context.Context, hook string, items []*item) error {
	for len(items) > 0 {
		lines, first := c.soloLines(hook, items)
		re, err := c.run(ctx, &c.small, c.block(lines))
		if err != nil {
			return err
		}
		if re == nil {
			c.small.used += len(items)
			return nil
		}
		if bad := faulty(re, first); bad >= 0 && bad < len(items) {
			c.refuse(items[bad], hook, re)
			items = slices.Delete(items, bad, bad+1)
			continue
		}
		if len(items) == 1 {
			c.refuse(items[0], hook, re)
			return nil
		}
		half := len(items) / 2
		if err := c.soloGroup(ctx, hook, slices.Clone(items[:half])); err != nil {
			return err
		}
		items = items[half:]
	}
	return nil
}

// soloLines are the lines that try rules, and how many come before the first rule. A rule
// is tried in the built-in chain only if it belongs there: nft refuses more of what stands
// in a built-in chain than of what is reached from it.
func (c *trial) soloLines(hook string, items []*item) (lines []string, first int) {
	chain := soloChain(hook)
	if c.k.backend == Legacy {
		// Every block writes the whole table: keep it small.
		lines = append(lines, "-F "+chain)
		if hook != "" {
			lines = append(lines, "-F "+hook, "-A "+hook+" -j "+chain)
		}
	}
	first = len(lines)
	for _, it := range items {
		name := chain
		if hook != "" && it.chain == hook {
			name = hook
		}
		lines = append(lines, "-A "+name+" "+it.text)
	}
	return lines, first
}
