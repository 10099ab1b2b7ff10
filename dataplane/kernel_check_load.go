// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

const (
	// unreached is a chain that nothing jumps to, for rules whose own chain is built in.
	unreached = "tableward-check"
	// Lines of a block. nft takes time that grows with the square of a block's chains, and in
	// a user namespace no block of more than 208 KiB of netlink messages, which is some 33
	// chains of 10 rules; legacy writes its table once for each block.
	sliceNFT          = 1000
	sliceUnprivileged = 250
	// soloNFT and soloLegacy are how many rules are tried at once when one is at fault: nft
	// says which, on legacy it takes halves.
	soloNFT    = 200
	soloLegacy = 32
	// maxLines is how often a line that the tool names is taken out of a slice before its
	// rules are tried by themselves: there are many at fault.
	maxLines = 4
	// maxSolo is how many rules stay in a small namespace on nft, where nothing is deleted.
	maxSolo = 2000
)

// slice is how many lines a block may have, 0 for all.
func (c *trial) slice(r *room) int {
	switch {
	case c.k.backend == Legacy:
		return 0
	case r.s.holder != nil:
		return sliceUnprivileged
	}
	return sliceNFT
}

// open makes a scratch namespace with all chains, empty, and all sets.
func (c *trial) open(ctx context.Context, r *room) error {
	s, err := c.k.newScratch()
	if err != nil {
		return err
	}
	r.s = s
	var rs []rules.Rule
	for _, it := range c.remaining(func(it *item) bool { return it.own }) {
		rs = append(rs, it.rule)
	}
	s.makeSets(ctx, c.k, c.id.IPVersion, rs)
	size := c.slice(r)
	if size == 0 {
		size = len(c.chains) + 1
	}
	for part := range slices.Chunk(append([]string{unreached}, c.chains...), size) {
		if err := c.declare(ctx, r, part); err != nil {
			return err
		}
	}
	return nil
}

// declare makes chains. One whose name is refused is left out, with its rules.
func (c *trial) declare(ctx context.Context, r *room, names []string) error {
	names = slices.Clone(names)
	for len(names) > 0 {
		lines := make([]string, len(names))
		for i, name := range names {
			lines[i] = ":" + name + " - [0:0]"
		}
		re, err := c.run(ctx, r, c.block(lines))
		switch bad := faulty(re, 0); {
		case err != nil:
			return err
		case re == nil:
			return nil
		case bad >= 0 && bad < len(names):
			c.dropChain(names[bad], re)
			names = slices.Delete(names, bad, bad+1)
		case len(names) == 1:
			c.dropChain(names[0], re)
			return nil
		default:
			half := len(names) / 2
			if err := c.declare(ctx, r, names[:half]); err != nil {
				return err
			}
			names = names[half:]
		}
	}
	return nil
}

// dropChain refuses a chain by its name.
func (c *trial) dropChain(name string, re *RestoreError) {
	c.chains = slices.DeleteFunc(slices.Clone(c.chains), func(s string) bool { return s == name })
	v := orderedVerdict{Verdict: Verdict{Chain: name, Index: -1, Err: refusal(re, "")}, order: len(c.items)}
	for _, it := range c.items {
		if it.chain == name {
			it.out = true
			v.order = min(v.order, it.order)
		}
	}
	c.verdicts = append(c.verdicts, v)
}

func (c *trial) block(lines []string) []byte {
	return []byte("*" + c.id.Name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n")
}

// faulty returns which of a block's lines is at fault, behind those that come first; -1 if
// that is not known.
func faulty(re *RestoreError, first int) int {
	if re == nil || re.Class != Rejected {
		return -1
	}
	return max(re.Line-2-first, -1) // line 1 is *table
}

// load appends rules to their chains, or all to one chain, and refuses those that the tool
// does not take.
func (c *trial) load(ctx context.Context, r *room, items []*item, chain string) error {
	size := c.slice(r)
	if size == 0 {
		size = len(items) + 1
	}
	for part := range slices.Chunk(items, size) {
		if err := c.loadSlice(ctx, r, slices.Clone(part), chain); err != nil {
			return err
		}
	}
	return nil
}

func (c *trial) loadSlice(ctx context.Context, r *room, items []*item, chain string) error {
	for named := 0; ; named++ {
		items = slices.DeleteFunc(items, func(it *item) bool { return it.out })
		if len(items) == 0 {
			return nil
		}
		re, err := c.run(ctx, r, c.block(appends(items, chain)))
		if re == nil || err != nil {
			return err
		}
		switch bad := faulty(re, 0); {
		case re.Class == TooLarge && len(items) > 1:
			half := len(items) / 2
			if err := c.loadSlice(ctx, r, slices.Clone(items[:half]), chain); err != nil {
				return err
			}
			items = items[half:]
		case bad >= 0 && bad < len(items) && named < maxLines:
			c.refuse(items[bad], "", re)
		case len(items) == 1:
			c.refuse(items[0], "", re)
		default:
			found, err := c.solo(ctx, "", items)
			if err != nil {
				return err
			}
			if !found {
				return &RestoreError{
					Class: RejectedSomewhere, ExitCode: re.ExitCode, Stderr: re.Stderr,
					Reason: fmt.Sprintf("%v: %s", errRefusedTogether, re.Reason), Err: errRefusedTogether,
				}
			}
		}
	}
}

func appends(items []*item, chain string) []string {
	lines := make([]string, len(items))
	for i, it := range items {
		name := chain
		if name == "" {
			name = it.chain
		}
		lines[i] = "-A " + name + " " + it.text
	}
	return lines
}
