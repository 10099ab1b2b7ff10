// SPDX-License-Identifier: Apache-2.0

package transaction

import "iter"

// index is the reverse of the jumps: for each chain, the chains whose content jumps to it.
type index map[string]map[string]struct{}

// indexTxn is an index with the changes of one transaction on top. The base is only read
// until commit.
type indexTxn struct {
	base  index
	delta map[string]map[string]bool // target, source: true added, false taken away; only what differs from base
	count map[string]int             // change of the number of sources of a target
}

func newIndexTxn(base index) indexTxn { return indexTxn{base: base} }

// set makes the jump from source to target exist or not.
func (x *indexTxn) set(target, source string, want bool) {
	if x.has(target, source) == want {
		return
	}
	if x.delta == nil {
		x.delta, x.count = map[string]map[string]bool{}, map[string]int{}
	}
	if x.delta[target] == nil {
		x.delta[target] = make(map[string]bool, 1)
	}
	if _, inBase := x.base[target][source]; inBase == want {
		delete(x.delta[target], source)
	} else {
		x.delta[target][source] = want
	}
	if want {
		x.count[target]++
	} else {
		x.count[target]--
	}
}

func (x *indexTxn) has(target, source string) bool {
	if want, ok := x.delta[target][source]; ok {
		return want
	}
	_, ok := x.base[target][source]
	return ok
}

// len is the number of chains that jump to target.
func (x *indexTxn) len(target string) int { return len(x.base[target]) + x.count[target] }

// sources yields the chains that jump to target, in no order.
func (x *indexTxn) sources(target string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for source := range x.base[target] {
			if want, ok := x.delta[target][source]; (!ok || want) && !yield(source) {
				return
			}
		}
		for source, want := range x.delta[target] {
			if want && !yield(source) {
				return
			}
		}
	}
}

// commit writes the changes into the base.
func (x *indexTxn) commit() {
	for target, sources := range x.delta {
		for source, want := range sources {
			x.base.set(target, source, want)
		}
	}
}

func (x index) set(target, source string, want bool) {
	if !want {
		delete(x[target], source)
		if len(x[target]) == 0 {
			delete(x, target)
		}
		return
	}
	if x[target] == nil {
		x[target] = make(map[string]struct{}, 1)
	}
	x[target][source] = struct{}{}
}
