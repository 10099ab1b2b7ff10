// SPDX-License-Identifier: Apache-2.0

package dataplane

import "math/bits"

// reach works out where each rule has to be taken: from which built-in chains it is reached
// when all that is out is left away.
func (t *trial) reach() {
	from := map[string]places{}
	for i, hook := range t.hooks {
		t.mark(from, hook, 1<<i)
	}
	for name, edges := range t.edges {
		at := from[name]
		behind := false
		for _, e := range edges {
			if e.item == nil {
				continue
			}
			switch {
			case !behind:
				e.item.need = unreached | at
			case t.builtin(name):
				e.item.need = unreached | hidden
			default:
				e.item.need = unreached
			}
			behind = behind || t.isEnd(e)
		}
	}
}

// mark notes that a hook reaches a chain, and what that leads to.
func (t *trial) mark(from map[string]places, chain string, hook places) {
	todo := []string{chain}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if from[name]&hook != 0 {
			continue
		}
		from[name] |= hook
		todo = append(todo, t.jumps(name)...)
	}
}

// jumps are the chains that a chain leads to.
func (t *trial) jumps(name string) []string {
	var to []string
	for _, e := range t.edges[name] {
		if e.jump != "" && !e.out() {
			to = append(to, e.jump)
		}
		if t.isEnd(e) {
			break
		}
	}
	return to
}

func (e edge) out() bool { return e.item != nil && e.item.unit.fault != nil }

// isEnd tells whether nothing behind an entry counts: the legacy kernel does not look there.
func (t *trial) isEnd(e edge) bool {
	return t.backend == Legacy && e.item != nil && !e.out() && e.item.ends()
}

// hookOf names the built-in chain behind a place.
func (t *trial) hookOf(it *item, at places) string {
	if at == hidden {
		return it.chain
	}
	return t.hooks[bits.TrailingZeros16(uint16(at))]
}

// endless stands for a row of chains that closes.
const endless = 1 << 30

// loops refuses the rules of built-in chains that lead into a loop, or to more chains in a
// row than the kernel takes, as long as nothing else is wrong with them. It returns verdicts
// for those that are not the batch's.
func (t *trial) loops() []Verdict {
	var around []Verdict
	depths := map[string]int{}
	for i, hook := range t.hooks {
		for _, e := range t.edges[hook] {
			if e.jump != "" && !e.out() && t.tooDeep(t.depth(depths, e.jump)) {
				re := t.tooManyLinks()
				if e.item == nil {
					around = append(around, Verdict{Chain: hook, Index: -1, Hook: hook, Err: re})
				} else {
					e.item.unit.fault = &bad{item: e.item, at: 1 << i, re: re}
				}
			}
			if t.isEnd(e) {
				break
			}
		}
	}
	return around
}

func (t *trial) tooDeep(depth int) bool {
	limit := maxDepth(t.backend)
	return depth >= endless || limit > 0 && depth > limit
}

// depth is how many user chains stand in the longest row that begins with this one.
func (t *trial) depth(known map[string]int, chain string) int {
	if d, ok := known[chain]; ok {
		return d
	}
	known[chain] = endless // for who comes back to it
	d := 0
	for _, to := range t.jumps(chain) {
		d = max(d, t.depth(known, to))
	}
	d = min(d+1, endless)
	known[chain] = d
	return d
}

func (t *trial) tooManyLinks() *RestoreError {
	if t.backend == Legacy {
		return &RestoreError{Class: Rejected, ExitCode: 1, Reason: untold}
	}
	return &RestoreError{Class: Rejected, ExitCode: 4, Reason: "RULE_APPEND failed (" + errLinks + ")"}
}
