// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"sync"
	"time"
)

// NFTPace is Options.Pace for a kernel on nft: how long the kernel takes to get rid of what an nft commit has freed. It
// makes the next commit of the namespace wait as long inside the kernel, whatever its table;
// waited for outside, the time makes larger batches.
const NFTPace = 20 * time.Millisecond

// LegacySpacing is Options.Spacing for a kernel on legacy. A block there takes milliseconds
// for the whole table, however little it changes; who waits this little for others to come
// along halves the blocks under load, and an idle table does not wait at all.
const LegacySpacing = 200 * time.Microsecond

// pacer hands out places for the nft commits of one namespace, in the order in which the
// tables ask. It excludes nobody: a table whose tool hangs holds no other up.
type pacer struct {
	spacing time.Duration

	mu   sync.Mutex // guards next
	next time.Time  // when the next commit may begin
}

// reserve takes the next place and returns how long it is until then, and the place.
func (p *pacer) reserve(now time.Time) (wait time.Duration, place time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place = now
	if p.next.After(now) {
		place = p.next
	}
	p.next = place.Add(p.spacing)
	return place.Sub(now), place
}

// done gives a place back: a commit that freed nothing lets the next one begin at once,
// one that did holds it for the spacing from its end.
func (p *pacer) done(now, place time.Time, freed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch until := now.Add(p.spacing); {
	case freed && p.next.Before(until):
		p.next = until
	case !freed && p.next.Equal(place.Add(p.spacing)):
		p.next = now
	}
}
