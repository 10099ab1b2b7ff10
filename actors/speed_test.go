// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
)

// BenchmarkSpeed prints one table for each backend: how long a message takes until its answer,
// against the plain tool, which does the same in a namespace of its own. Run it with
// -benchtime 1x; -short has small sizes only.
//
// A Runtime on a real kernel and the tool take turns. A ratio is the runtime's time over that of
// the tool, from its start to its exit, in one turn; the table has the median of the turns with
// the least and the greatest. In the first column each begins 60 ms after the one before has
// ended, when the kernel is rid of what that one freed; "back to back" is of several in a row
// without a pause, on either side. "read-back" is the time from the answer until what was
// written has been read. A row over its reach is marked with "!"; the last columns say where
// the time goes.
//
// The rules: FORWARD jumps to a dispatch chain, which jumps to all chains, each with 10 rules.
func BenchmarkSpeed(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			t := &speedTable{backend: backend, results: make([]*speedResult, len(speedRows))}
			for _, size := range speedSizes {
				b.Run(size.String(), func(b *testing.B) { size.run(b, t) })
			}
			t.print()
		})
	}
}

// speedSize is the table that a row is measured with.
type speedSize struct {
	chains  int
	foreign int // rules of a stranger's besides, which are reachable
	apart   bool
}

var (
	speed100     = speedSize{chains: 100}
	speed1000    = speedSize{chains: 1000}
	speed5000    = speedSize{chains: 5000}
	speedForeign = speedSize{chains: 100, foreign: 20_000}
	speedApart   = speedSize{apart: true} // rows that make a table of their own
	speedSizes   = []speedSize{speed100, speed1000, speed5000, speedForeign, speedApart}
)

func (s speedSize) String() string {
	switch {
	case s.apart:
		return "apart"
	case s.foreign > 0:
		return fmt.Sprintf("%d-beside-%d", s.chains, s.foreign)
	}
	return fmt.Sprint(s.chains)
}

// small tells whether the size is in the short form.
func (s speedSize) small() bool { return !s.apart && s.chains <= 1000 && s.foreign == 0 }

// run measures the rows of a size, one after the other, with the same table.
func (s speedSize) run(b *testing.B, t *speedTable) {
	if testing.Short() && !s.small() {
		return
	}
	var bed *speedBed
	if !s.apart {
		bed = newSpeedBed(b, t.backend, s)
		b.Cleanup(bed.close)
		t.version = bed.kernel.Info().Version
		bed.load()
	}
	for i, row := range speedRows {
		if row.size != s {
			continue
		}
		b.Run(row.operation, func(b *testing.B) {
			for b.Loop() {
				if bed != nil {
					bed.tb = b
				}
				t.results[i] = row.measure(b, t.backend, bed)
			}
			if r := t.results[i]; r.note == "" {
				b.ReportMetric(r.figure(), "ratio")
			}
		})
	}
	if bed != nil {
		bed.tb = b
		bed.compare()
	}
}

// speedRow is one row of the table.
type speedRow struct {
	operation, against string
	size               speedSize
	nft, legacy        reach
	pairs              int // 0: speedPairs
	backToBack         int // so many rows of operations without a pause; 0: none
	next               func(*speedBed) speedPair
	alone              func(testing.TB, dataplane.Backend) *speedResult // instead of next
}

// reach is what is to be reached: a ratio, or a time.
type reach struct {
	ratio float64
	time  time.Duration
}

const speedPairs = 7

var speedRows = []speedRow{
	{operation: "change one chain of 100", against: "restore of the same block", size: speed100, backToBack: speedPairs,
		nft: reach{ratio: 0.3}, legacy: reach{ratio: 0.6}, next: changeOne},
	{operation: "change one chain of 1,000", against: "restore of the same block", size: speed1000, backToBack: speedPairs,
		nft: reach{ratio: 0.3}, legacy: reach{ratio: 1.0}, next: changeOne},
	{operation: "change one chain of 5,000", against: "restore of the same block", size: speed5000, backToBack: speedPairs,
		nft: reach{ratio: 0.7}, legacy: reach{ratio: 1.1}, next: changeOne},
	{operation: "change one chain of 100 beside 20,000 foreign rules", against: "restore of the same block", size: speedForeign, backToBack: speedPairs,
		nft: reach{ratio: 0.4}, legacy: reach{ratio: 1.0}, next: changeOne},
	{operation: "add a chain and its jump amid a dispatch chain of 5,000", against: "restore that rewrites both", size: speed5000, backToBack: 3,
		nft: reach{ratio: 0.2}, legacy: reach{ratio: 0.9}, next: addChain},
	{operation: "one rule changed in each of 1,000 chains, one batch", against: "restore of the whole chains", size: speed1000, backToBack: 2,
		nft: reach{ratio: 0.45}, legacy: reach{ratio: 0.6}, next: changeRules},
	{operation: "1,000 chains rewritten, one batch", against: "restore of the same block", size: speed1000, backToBack: 2,
		nft: reach{ratio: 1.05}, legacy: reach{ratio: 1.1}, next: changeAll},
	{operation: "first 5,000 chains with dispatch", against: "restore of one block", size: speedApart, pairs: 3,
		nft: reach{ratio: 0.6}, legacy: reach{ratio: 1.1}, next: firstLoad(5000)},
	{operation: "first 10,000 chains with dispatch", against: "restore of one block", size: speedApart, pairs: 3,
		nft: reach{ratio: 0.45}, legacy: reach{ratio: 1.1}, next: firstLoad(10_000)},
	{operation: "5,000 messages of one chain of 1,000, 8 senders", against: "100 restores, times 50", size: speed1000, pairs: 3,
		nft: reach{ratio: 0.02}, legacy: reach{ratio: 0.02}, next: manySenders},
	{operation: "5,000 messages of one chain of 5,000, 8 senders", against: "100 restores, times 50", size: speed5000, pairs: 3,
		nft: reach{ratio: 0.02}, legacy: reach{ratio: 0.02}, next: manySenders},
	{operation: "refresh, nothing changed, 100", against: "nft: generation query; legacy: save", size: speed100,
		nft: reach{time: time.Millisecond}, legacy: reach{ratio: 0.6}, next: refreshNothing},
	{operation: "refresh, nothing changed, 1,000", against: "nft: generation query; legacy: save", size: speed1000,
		nft: reach{time: time.Millisecond}, legacy: reach{ratio: 0.6}, next: refreshNothing},
	{operation: "refresh, nothing changed, 5,000", against: "nft: generation query; legacy: save", size: speed5000,
		nft: reach{time: time.Millisecond}, legacy: reach{ratio: 0.6}, next: refreshNothing},
	{operation: "refresh, another table changed, ours not, 5,000", against: "save", size: speed5000,
		nft: reach{ratio: 0.4}, legacy: reach{ratio: 0.6}, next: refreshOther},
	{operation: "refresh, one chain changed by a stranger, 5,000", against: "save + restore of that chain", size: speed5000,
		nft: reach{ratio: 0.5}, legacy: reach{ratio: 0.8}, next: refreshStranger},
	{operation: "restart, nothing changed, with the state file", against: "save", size: speedApart,
		nft: reach{ratio: 1.0}, legacy: reach{ratio: 1.0}, alone: restart},
	{operation: "heap at rest, 50,000 rules", against: "bytes of their text", size: speedApart,
		nft: reach{ratio: 4}, legacy: reach{ratio: 4}, alone: heapAtRest},
}

func (r speedRow) measure(tb testing.TB, backend dataplane.Backend, bed *speedBed) *speedResult {
	if r.alone != nil {
		return r.alone(tb, backend)
	}
	if bed == nil {
		bed = &speedBed{tb: tb, backend: backend}
	}
	pairs, rows := cmp.Or(r.pairs, speedPairs), r.backToBack
	if testing.Short() {
		pairs, rows = 3, min(rows, 3)
	}
	return measurePairs(bed, r.next, pairs, rows)
}

func (r speedRow) reach(b dataplane.Backend) reach {
	if b == dataplane.NFT {
		return r.nft
	}
	return r.legacy
}
