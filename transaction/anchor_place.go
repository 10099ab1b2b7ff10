// SPDX-License-Identifier: Apache-2.0

package transaction

import "slices"

// settle returns what a kernel chain's rules become, and which of w.anchored have no anchor.
//
// Anchors are looked for where everything else stands already. A rule that is placed by an
// anchor is one itself only for those that find no other; so the rules that a rule is placed
// by never depend on that rule, but in a circle, whose members then count as without anchor.
func (t *Txn) settle(c *chain, w listed) (rows []row, lost []bool) {
	lost = make([]bool, len(w.anchored))
	for {
		rows, adrift := t.arrange(c, w, lost)
		if len(adrift) == 0 {
			return rows, lost
		}
		for _, i := range adrift {
			lost[i] = true
		}
	}
}

// placeAll puts the rules of w.anchored that are not lost beside their anchors. It returns
// those that have to do without one, of which there is at least one if any has none.
func (t *Txn) placeAll(out []row, w listed, lost []bool) ([]row, []int) {
	var pending []int
	for i := range w.anchored {
		if !lost[i] {
			pending = append(pending, i)
		}
	}
	for len(pending) > 0 {
		var rest []int
		if out, rest = t.placeSome(out, w, pending); len(rest) == len(pending) {
			return nil, t.adrift(w, pending)
		}
		pending = rest
	}
	return out, nil
}

// placeSome places the rules whose anchors are among the rows. Those at one row stand in the
// order of w.anchored, whichever way they name it.
func (t *Txn) placeSome(rows []row, w listed, pending []int) (out []row, rest []int) {
	before, after := map[int][]row{}, map[int][]row{}
	for _, i := range pending {
		e := w.anchored[i]
		at := slices.IndexFunc(rows, func(r row) bool { return t.matches(r.Rule, e.Anchor) })
		if at < 0 {
			rest = append(rest, i)
			continue
		}
		side := after
		if e.Op == InsertBefore {
			side = before
		}
		for _, r := range t.newRows(e.Rule, false) {
			r.anchored = true
			side[at] = append(side[at], r)
		}
	}
	for i, r := range rows {
		out = append(append(append(out, before[i]...), r), after[i]...)
	}
	return out, rest
}

// adrift are, of the rules that find no anchor, those that no other of them could be the
// anchor of; all, where they go in circles.
func (t *Txn) adrift(w listed, pending []int) []int {
	var out []int
	for _, i := range pending {
		if !slices.ContainsFunc(pending, func(j int) bool { return i != j && t.matches(w.anchored[j].Rule, w.anchored[i].Anchor) }) {
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return pending
	}
	return out
}

// loosen returns the rows without those of the rules that are placed by anchors, numbered.
func (t *Txn) loosen(rows []row, w listed, lost []bool) []row {
	loose := map[string]bool{}
	for i, a := range w.anchored {
		if !lost[i] {
			t.mark(loose, a.Rule)
		}
	}
	var out []row
	for i, r := range rows {
		if !loose[lineKey(r.SavedRule)] {
			r.was, r.anchored = i, false
			out = append(out, r)
		}
	}
	return out
}

// keepPlaced has rows that were placed by anchors stay the rows that they were, where they
// stood there before, once each and in this order.
func keepPlaced(out, before []row, copies map[string]int) {
	end := make([]int, len(out)) // of each row: where the next one that stays was
	next := len(before)
	for i := len(out) - 1; i >= 0; i-- {
		if end[i] = next; !out[i].anchored && out[i].was >= 0 {
			next = out[i].was
		}
	}
	from := 0
	for i, r := range out {
		if !r.anchored {
			from = max(from, r.was+1)
			continue
		}
		k := lineKey(r.SavedRule)
		if copies[k] != 1 {
			continue
		}
		for j := from; j < end[i]; j++ {
			if lineKey(before[j].SavedRule) == k {
				out[i], from = before[j], j+1
				break
			}
		}
	}
}
