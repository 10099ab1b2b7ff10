// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

// A hunt is a batch of suspects: messages of a refused batch that the search did not get to
// in time. They are tried away from the live table, some at a time and in turn with the
// mail, so that nobody waits long for them.

// Suspects are tried so many at a time that a hunt takes between quick and slow.
const (
	firstChunk = 64
	quickHunt  = 150 * time.Millisecond
	slowHunt   = 400 * time.Millisecond
)

// mayHunt tells whether suspects are next.
func (c *core) mayHunt() bool {
	if len(c.suspects) == 0 {
		return false
	}
	after, pending := c.mail.due(c.now)
	return !pending || after > 0 || !c.hunted
}

// hunt begins a batch of suspects, and of what has landed since and writes the same chains:
// at its place in the order it stays on top.
func (c *core) hunt() []effect {
	c.hunted = true
	n := min(cmp.Or(c.chunk, firstChunk), len(c.suspects))
	batch := slices.Clone(c.suspects[:n])
	c.suspects = slices.Clone(c.suspects[n:])
	for _, it := range batch {
		it.off = false
	}
	batch = append(batch, c.later...)
	slices.SortStableFunc(batch, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	c.run = c.newRun(batch)
	c.run.hunt, c.run.seq, c.run.suspects = true, batch, n
	return c.attempt()
}

// endHunt halves the next hunt when nothing has come of this one in its time.
func (c *core) endHunt() {
	left := 0
	for _, it := range c.run.batch {
		if it.off {
			left++
		}
	}
	if left == c.run.suspects {
		c.chunk = max(left/2, 1)
	}
}

// paceHunt makes the next hunt as long as it may be.
func (c *core) paceHunt(took time.Duration) {
	c.chunk = cmp.Or(c.chunk, firstChunk)
	switch {
	case took < quickHunt:
		c.chunk *= 2
	case took > slowHunt:
		c.chunk = max(c.chunk/2, 1)
	}
}

// heldBack are messages that are tried again although later ones may be in the kernel.
func (c *core) heldBack() []*item {
	held := slices.Concat(c.suspects, c.parked)
	for _, it := range c.mail.queue {
		if it.seq > c.backTo {
			break
		}
		held = append(held, it)
	}
	return held
}

// keepLater remembers what landed while older messages are held back, where it writes what
// they write: tried again, they must not overwrite it.
func (c *core) keepLater(r *run) {
	first := map[string]uint64{} // of each chain: the oldest that is held back
	for _, it := range c.heldBack() {
		it.msg.EachChain(func(name string) {
			if seq, ok := first[name]; !ok || it.seq < seq {
				first[name] = it.seq
			}
		})
	}
	all := slices.Concat(c.later, r.batch)
	c.later = nil
	if len(first) == 0 {
		return
	}
	for _, it := range all {
		over := false
		it.msg.EachChain(func(name string) {
			seq, held := first[name]
			over = over || held && seq < it.seq
		})
		if over && it.landed && !slices.Contains(c.later, it) {
			c.later = append(c.later, it)
		}
	}
}

// certain tells whether a refusal stands whatever else is in the batch.
func certain(err error) bool {
	var re *dataplane.RestoreError
	return errors.As(err, &re) || errors.Is(err, transaction.ErrPlace) || errors.Is(err, transaction.ErrLoop) ||
		errors.Is(err, transaction.ErrDepth) || errors.Is(err, transaction.ErrBadName)
}
