// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"
)

// hookUp puts the rules of built-in chains in, many at once as long as none is refused. A
// rule is at fault when it is refused in a block of its own, beside all those before it that
// were taken. It tells whether there has to be another round.
func (c *trial) hookUp(ctx context.Context, r *room, hooked []*item) (again bool, err error) {
	before := len(c.verdicts)
	hooked = stillIn(hooked)
	w := window{size: len(hooked)}
	for len(hooked) > 0 {
		n := w.next(len(hooked))
		h, err := c.hook(ctx, r, hooked[:n])
		if err != nil {
			return false, err
		}
		w.saw(n, h)
		hooked = hooked[h.taken:]
		if h.refusal == nil || n > 1 {
			continue
		}
		again = true
		if err := c.blame(ctx, hooked[0], h.refusal, before); err != nil {
			return false, err
		}
		// Others may have been taken out with it.
		hooked = stillIn(hooked[1:])
	}
	return again, nil
}

// stillIn are the items that were not taken out.
func stillIn(items []*item) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.out })
}

// window says how many rules are tried at once. Halves lead to the first one at fault; from
// there it grows as fast as rules are taken, so that where most are at fault it does not
// cost more than to try one by one.
type window struct {
	size   int // of the next try
	bad    int // among so many of the next rules there is one at fault, 0 if that is not known
	passed int // taken since the last one at fault
}

// growth is how much larger the next try is when all were taken.
const growth = 4

func (w *window) next(left int) int {
	if w.bad > 0 {
		return max(w.bad/2, 1)
	}
	return min(w.size, left)
}

// saw takes in what came of n rules.
func (w *window) saw(n int, h hooking) {
	w.passed += h.taken
	switch {
	case h.refusal != nil && n == 1:
		*w = window{size: max(2*w.passed, 1)}
	case h.refusal != nil:
		w.bad = h.suspects
	case w.bad > 0:
		w.bad -= n
	default:
		w.size *= growth
	}
}

// hooking is what came of rules that were put in together.
type hooking struct {
	taken    int // so many are in
	suspects int // among so many that follow there is one at fault
	refusal  *RestoreError
}

// hook puts rules in as one block on legacy, which is all or nothing and costs one look at
// the table in either case. To nft it must not be shown: it would look at the whole table
// again for each rule of a block that it refuses.
func (c *trial) hook(ctx context.Context, r *room, items []*item) (hooking, error) {
	if c.k.backend == NFT && len(items) > 1 {
		return c.hookEach(ctx, r, items)
	}
	re, err := c.run(ctx, r, c.block(appends(items, "")))
	if re != nil || err != nil {
		return hooking{suspects: len(items), refusal: re}, err
	}
	return hooking{taken: len(items)}, nil
}

// hookEach gives one process a block for each rule. It ends at the first that is refused;
// those before it are in.
func (c *trial) hookEach(ctx context.Context, r *room, items []*item) (hooking, error) {
	marker := newMarker()
	var input []byte
	for _, it := range items {
		input = append(input, c.block(appends([]*item{it}, ""))...)
		input = append(append(input, marker...), '\n')
	}
	c.k.stats.probes.Add(1)
	out, re := c.feed(ctx, r, input)
	taken := strings.Count(out, marker+"\n")
	if taken == len(items) {
		return hooking{taken: taken}, nil
	}
	re, err := r.judge(re)
	return hooking{taken: taken, suspects: 1, refusal: re}, err
}

// feed runs the restore tool on several blocks and returns what it printed. Each block has
// the time that it would have alone.
func (c *trial) feed(ctx context.Context, r *room, input []byte) (string, *RestoreError) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &progress{limit: c.k.opts.BaseDeadline}
	out.timer = time.AfterFunc(out.limit, func() { cancel(errDeadline) })
	defer out.timer.Stop()
	p := run{
		path: c.tools.restore, args: []string{"--noflush", "--verbose"}, env: environ(r.s.lockFile),
		start: r.s.start, stdin: input, stdout: out, wg: &c.k.wg,
	}
	re := p.restore(ctx, input)
	return out.printed.String(), re
}

// progress keeps what a tool prints, and puts its deadline off each time.
type progress struct {
	printed bytes.Buffer
	timer   *time.Timer
	limit   time.Duration
}

func (p *progress) Write(b []byte) (int, error) {
	p.timer.Reset(p.limit)
	return p.printed.Write(b)
}
