// SPDX-License-Identifier: Apache-2.0

package dataplane

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

// named takes in that lines were named and nothing was taken; so many units stand before the
// first that is out. A parser ends there, so that what it is given beyond is in vain where
// most are refused. The nft kernel goes on.
func (w *window) named(before int, a answer) {
	if w.bad = 0; a.reason.ExitCode != 4 {
		w.size = max(2*before, 1)
	}
}

// hooking is what came of rules that were put in together.
type hooking struct {
	taken    int // so many are in
	suspects int // among so many that follow there is one at fault
	refusal  *RestoreError
}
