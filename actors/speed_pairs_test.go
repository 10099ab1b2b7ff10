// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/actors"
)

const (
	speedPause = 60 * time.Millisecond
	speedBurst = 4 // operations back to back, after one that is not counted
)

// speedResult is what a row has to show.
type speedResult struct {
	note string // why there is nothing; "" otherwise

	ratios, backToBack  ratios
	ours, plain, cpu    []time.Duration
	readBacks           []time.Duration
	pairs               int
	where               string // ours went
	spent               map[actors.StepKind]time.Duration
	spentBeforeAnswered time.Duration
}

// figure is what is compared with the reach.
func (r *speedResult) figure() float64 { return r.ratios.median() }

// ratios of ours over plain, one for each pair.
type ratios []float64

func (r ratios) median() float64 { return median(r) }

func (r *ratios) add(ours, plain time.Duration) {
	*r = append(*r, float64(ours)/float64(plain))
}

// measurePairs does an operation on both sides in turns. One pair that is not counted comes
// before, but for those that take seconds.
func measurePairs(s *speedBed, next func(*speedBed) speedPair, pairs, rows int) *speedResult {
	r := &speedResult{spent: map[actors.StepKind]time.Duration{}}
	if rows > 0 {
		(&speedResult{spent: map[actors.StepKind]time.Duration{}}).addPair(s, next(s))
	}
	for range pairs {
		r.addPair(s, next(s))
	}
	r.tellWhere()
	for range rows {
		r.addRow(next, s)
	}
	return r
}

// addPair measures one pair, with a pause before each side.
func (r *speedResult) addPair(s *speedBed, p speedPair) {
	if p.bed != nil {
		s = p.bed
	}
	pause()
	s.takeSteps()
	begin := time.Now()
	p.ours()
	ours := time.Since(begin)
	if took, ok := readBack(s, p.touched); ok {
		r.readBacks = append(r.readBacks, took)
	}
	pause()
	steps := s.takeSteps()
	plain := p.plain()
	if p.end != nil {
		p.end()
	}
	for _, step := range steps {
		r.spent[step.Kind] += step.Took
		if step.Kind != actors.StepDelete {
			r.spentBeforeAnswered += step.Took
		}
	}
	r.pairs++
	r.ratios.add(ours, plain.took)
	r.ours, r.plain, r.cpu = append(r.ours, ours), append(r.plain, plain.took), append(r.cpu, plain.cpu)
}

// addRow measures operations without a pause, first ours, then plain. The first of each is not
// counted: it meets a kernel at rest.
func (r *speedResult) addRow(next func(*speedBed) speedPair, s *speedBed) {
	row := make([]speedPair, 1+speedBurst)
	for i := range row {
		row[i] = next(s)
	}
	pause()
	var begin time.Time
	for i, p := range row {
		if i == 1 {
			begin = time.Now()
		}
		p.ours()
	}
	ours := time.Since(begin)
	pause()
	var plain time.Duration
	for i, p := range row {
		if c := p.plain(); i > 0 {
			plain += c.took
		}
	}
	r.backToBack.add(ours, plain)
}

// readBack returns how long it takes from an answer, which has just come, until what was written
// has been read; false where nothing was.
func readBack(s *speedBed, touched []string) (time.Duration, bool) {
	if len(touched) == 0 {
		return 0, false
	}
	begin := time.Now()
	if _, err := s.kernel.Scan(context.Background(), filter4, touched...); err != nil {
		s.tb.Error(err)
	}
	return time.Since(begin), true
}

// pause is of no fixed length, so that no tick is met each time.
func pause() { <-time.After(speedPause + rand.N(8*time.Millisecond)) }

// tellWhere says what the runtime did in the time of an answer, and beside it.
func (r *speedResult) tellWhere() {
	each := func(d time.Duration) string { return fmt.Sprintf("%.1f", ms(d)/float64(r.pairs)) }
	kinds := slices.SortedFunc(maps.Keys(r.spent), func(a, b actors.StepKind) int { return -cmp.Compare(r.spent[a], r.spent[b]) })
	var parts []string
	for _, kind := range kinds {
		parts = append(parts, string(kind)+" "+each(r.spent[kind]))
	}
	var sum time.Duration
	for _, d := range r.ours {
		sum += d
	}
	r.where = strings.Join(append(parts, "else "+each(max(sum-r.spentBeforeAnswered, 0))), ", ")
}
