// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tries walks over rules as hookUp does, where one try says of several rules that there is
// one at fault (exact: which one is the first). It returns those found and counts the tries.
func tries(bad []bool, exact bool) (found []int, count int) {
	w := window{size: len(bad)}
	for at := 0; at < len(bad); {
		n := w.next(len(bad) - at)
		first := slices.Index(bad[at:at+n], true)
		h := hooking{taken: n}
		if first >= 0 {
			h = hooking{suspects: n, refusal: &RestoreError{}}
			if exact && n > 1 {
				h.taken, h.suspects = first, 1
			}
		}
		w.saw(n, h)
		count++
		if at += h.taken; h.refusal != nil && n == 1 {
			found = append(found, at)
			at++
		}
	}
	return found, count
}

// Whatever is at fault is found, and nothing else, in a bounded number of tries.
func TestWindow(t *testing.T) {
	const n = 1000
	for name, c := range map[string]struct {
		bad            func(i int) bool
		halves, exacts int // at most so many tries
	}{
		"none":        {func(int) bool { return false }, 1, 1},
		"the first":   {func(i int) bool { return i == 0 }, 18, 9},
		"the middle":  {func(i int) bool { return i == 500 }, 13, 3},
		"the last":    {func(i int) bool { return i == n-1 }, 13, 2},
		"three":       {func(i int) bool { return i%333 == 100 && i < 800 }, 35, 9},
		"thirty":      {func(i int) bool { return i%33 == 7 }, 300, 100},
		"every other": {func(i int) bool { return i%2 == 1 }, 1600, 1100},
		"all":         {func(int) bool { return true }, n + 11, n + 2},
	} {
		bad := make([]bool, n)
		var want []int
		for i := range bad {
			if bad[i] = c.bad(i); bad[i] {
				want = append(want, i)
			}
		}
		for exact, most := range map[bool]int{false: c.halves, true: c.exacts} {
			found, count := tries(bad, exact)
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("%s, exact %v (-want +got):\n%s", name, exact, diff)
			}
			if count > most {
				t.Errorf("%s, exact %v: %d tries, want %d at most", name, exact, count, most)
			}
		}
	}
}
