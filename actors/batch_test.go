// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func newTestBatcher(limits Limits, spacing time.Duration) *batcher[int] {
	return &batcher[int]{
		limits: limits, spacing: spacing,
		size:  func(int) int { return 10 },
		piece: func(i int) uint64 { return uint64(i / 100) }, // 100..199 were sent together
	}
}

var t0 = time.Unix(1000, 0)

// A2, A3: nothing is due before something waits; then all that waits is one batch, in order.
func TestAllThatWaitsIsOneBatch(t *testing.T) {
	b := newTestBatcher(Limits{}, 0)
	if _, pending := b.due(t0); pending {
		t.Error("an empty batcher is due")
	}
	b.add(t0, 100, 200)
	b.add(t0, 300)
	if wait, pending := b.due(t0); !pending || wait != 0 {
		t.Errorf("due in %v, %v; want at once", wait, pending)
	}
	if diff := cmp.Diff([]int{100, 200, 300}, b.take()); diff != "" {
		t.Error(diff)
	}
}

// D47: the spacing is measured from the end of the last run, not from its arming.
func TestSpacingIsFromTheEndOfTheRun(t *testing.T) {
	b := newTestBatcher(Limits{}, 10*time.Millisecond)
	b.add(t0, 100)
	b.take()
	b.add(t0.Add(time.Millisecond), 200) // while the run is under way
	b.done(t0.Add(7 * time.Millisecond))
	if wait, _ := b.due(t0.Add(8 * time.Millisecond)); wait != 9*time.Millisecond {
		t.Errorf("due in %v, want 9ms", wait)
	}
	if wait, _ := b.due(t0.Add(time.Hour)); wait != 0 {
		t.Errorf("after an idle hour due in %v, want at once", wait)
	}
}

// D44: a batch is limited by count and by bytes; what was sent together is not cut, and a
// piece larger than the limits still goes.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits Limits
		queue  []int
		want   [][]int
	}{
		{"none", Limits{}, []int{1, 100, 200}, [][]int{{1, 100, 200}}},
		{"count", Limits{Messages: 2}, []int{1, 100, 200, 300, 400}, [][]int{{1, 100}, {200, 300}, {400}}},
		{"bytes", Limits{Bytes: 25}, []int{1, 100, 200, 300}, [][]int{{1, 100}, {200, 300}}},
		{"a piece stays whole", Limits{Messages: 3}, []int{1, 100, 101, 102, 200}, [][]int{{1}, {100, 101, 102}, {200}}},
		{"a piece larger than the limit", Limits{Messages: 2}, []int{100, 101, 102, 103, 200}, [][]int{{100, 101, 102, 103}, {200}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTestBatcher(tt.limits, 0)
			b.add(t0, tt.queue...)
			var got [][]int
			for {
				batch := b.take()
				if len(batch) == 0 {
					break
				}
				got = append(got, batch)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Depth and age are those of what waits, also after something was put back.
func TestDepthAndAge(t *testing.T) {
	b := newTestBatcher(Limits{}, 0)
	b.add(t0, 100)
	batch := b.take()
	b.add(t0.Add(time.Second), 200)
	if n, age := b.depth(t0.Add(3 * time.Second)); n != 1 || age != 2*time.Second {
		t.Errorf("depth %d, age %v", n, age)
	}
	b.back([]time.Time{t0}, batch...)
	if n, age := b.depth(t0.Add(3 * time.Second)); n != 2 || age != 3*time.Second {
		t.Errorf("after it was put back: depth %d, age %v", n, age)
	}
	if diff := cmp.Diff([]int{100, 200}, b.take()); diff != "" {
		t.Error(diff)
	}
}

// Nothing is lost, doubled or put out of order, whatever is added, taken and put back.
func TestPropertyBatcherKeepsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newTestBatcher(Limits{Messages: rapid.IntRange(0, 4).Draw(rt, "limit"), Bytes: rapid.IntRange(0, 60).Draw(rt, "bytes")}, 0)
		next := 0
		var got []int
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0, 1:
				b.add(t0, next)
				next += rapid.SampledFrom([]int{1, 100}).Draw(rt, "piece")
			case 2:
				got = append(got, b.take()...)
			case 3:
				taken := b.take()
				b.back(make([]time.Time, len(taken)), taken...)
			}
		}
		for len(b.queue) > 0 {
			got = append(got, b.take()...)
		}
		if !slices.IsSorted(got) {
			rt.Fatalf("out of order: %v", got)
		}
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			rt.Fatalf("doubled: %v", got)
		}
	})
}

// Places of the pacer come in the order in which they were asked for, a spacing apart; a
// commit that frees nothing gives its place back.
func TestPacer(t *testing.T) {
	const ms = time.Millisecond
	p := &pacer{spacing: 20 * ms}
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	wait, first := p.reserve(at(0))
	if wait != 0 {
		t.Errorf("idle: wait %v", wait)
	}
	if wait, _ := p.reserve(at(1 * ms)); wait != 19*ms {
		t.Errorf("second: wait %v, want 19ms", wait)
	}
	if wait, _ := p.reserve(at(2 * ms)); wait != 38*ms {
		t.Errorf("third: wait %v, want 38ms", wait)
	}
	p.done(at(5*ms), first, true) // others are behind it already
	if wait, _ := p.reserve(at(60 * ms)); wait != 0 {
		t.Errorf("after all: wait %v", wait)
	}
	_, place := p.reserve(at(200 * ms))
	p.done(at(201*ms), place, false)
	if wait, _ := p.reserve(at(202 * ms)); wait != 0 {
		t.Errorf("after a commit that freed nothing: wait %v", wait)
	}
	_, place = p.reserve(at(400 * ms))
	p.done(at(450*ms), place, true)
	if wait, _ := p.reserve(at(451 * ms)); wait != 19*ms {
		t.Errorf("after a slow commit that freed: wait %v, want 19ms", wait)
	}
}
