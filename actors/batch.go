// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"
	"time"
)

// Limits bound what one batch holds. What waits is never bounded: features must not be
// blocked by the tables they wait for. A zero field is no limit.
type Limits struct {
	Messages int // most messages of a batch
	Bytes    int // most bytes of rule text of a batch
}

// defaultLimits keep one block within what a tool takes in seconds.
var defaultLimits = Limits{Messages: 20_000, Bytes: 8 << 20}

// batcher gathers what waits into batches, in order: at once when idle, and under load not
// before spacing has passed since the end of the last run. Pieces that were sent together
// stay together. It has no clock and no goroutine: its user says when it is.
type batcher[T any] struct {
	limits  Limits
	spacing time.Duration
	size    func(T) int
	piece   func(T) uint64 // equal for what was sent together

	queue []T
	since []time.Time // arrival of each
	ended time.Time   // end of the last run
}

// add puts items behind what waits.
func (b *batcher[T]) add(now time.Time, items ...T) {
	b.queue = append(b.queue, items...)
	for range items {
		b.since = append(b.since, now)
	}
}

// back puts items that were taken in front of what waits; came says when each did.
func (b *batcher[T]) back(came []time.Time, items ...T) {
	b.queue = append(slices.Clone(items), b.queue...)
	b.since = append(slices.Clone(came), b.since...)
}

// all removes everything that waits.
func (b *batcher[T]) all() []T {
	all := b.queue
	b.queue, b.since = nil, nil
	return all
}

// due returns how long it is until the next batch may be taken; 0 is now. It says false
// when nothing waits.
func (b *batcher[T]) due(now time.Time) (time.Duration, bool) {
	if len(b.queue) == 0 {
		return 0, false
	}
	if b.spacing <= 0 || b.ended.IsZero() {
		return 0, true
	}
	return max(0, b.spacing-now.Sub(b.ended)), true
}

// take removes the next batch: all that waits, as far as the limits allow.
func (b *batcher[T]) take() []T {
	n, bytes := 0, 0
	for n < len(b.queue) {
		end, more := n, 0
		for p := b.piece(b.queue[n]); end < len(b.queue) && b.piece(b.queue[end]) == p; end++ {
			more += b.size(b.queue[end])
		}
		full := b.limits.Messages > 0 && end > b.limits.Messages || b.limits.Bytes > 0 && bytes+more > b.limits.Bytes
		if full && n > 0 {
			break
		}
		n, bytes = end, bytes+more
	}
	batch := b.queue[:n:n]
	b.queue, b.since = b.queue[n:], b.since[n:]
	if len(b.queue) == 0 {
		b.queue, b.since = nil, nil // a burst's memory goes with it
	}
	return batch
}

// done notes the end of a run.
func (b *batcher[T]) done(now time.Time) { b.ended = now }

// depth is the number of items that wait; age is how long the oldest has.
func (b *batcher[T]) depth(now time.Time) (n int, age time.Duration) {
	if len(b.queue) == 0 {
		return 0, 0
	}
	return len(b.queue), now.Sub(b.since[0])
}
