// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// editLines returns the lines that turn a chain's rules from before into after and touch no
// rule that stays, so that those keep their counters. Every index names a rule of before:
// first all deletions, from the bottom up, then the insertions, from the bottom up too, by the
// places of the rules that stayed. No line replaces: iptables-nft-restore 1.8.9 crashes when a
// rule of the same input is replaced, and what is replaced loses its counters in any case. It
// returns false where nothing stays, or more than most of after is new.
func editLines[K comparable](chain string, before, after []K, wanted []rules.Rule, most int) ([]rules.Line, bool) {
	stays, ok := common(before, after, most)
	if !ok || len(stays) == 0 {
		return nil, false
	}
	var lines []rules.Line
	kept := make([]bool, len(before))
	for _, p := range stays {
		kept[p.before] = true
	}
	for i := len(before) - 1; i >= 0; i-- {
		if !kept[i] {
			lines = append(lines, rules.Line{Command: rules.DeleteIndex, Chain: chain, Index: i + 1})
		}
	}
	end := len(after)
	for n := len(stays); n >= 0; n-- { // the gap behind the n-th rule that stays
		begin := 0
		if n > 0 {
			begin = stays[n-1].after + 1
		}
		lines = append(lines, gap(chain, wanted[begin:end], n, n == len(stays))...)
		if n > 0 {
			end = begin - 1
		}
	}
	return lines, true
}

// manyEdits is how many chains of a batch are changed rule by rule however much of them is
// new. More are written as a whole where most of them is, which is faster for the tools.
const manyEdits = 100

// editsTo returns the lines that make a chain hold rs and leave alone what stays, first those
// that take rules out, then those that put rules in. It returns false where the chain is to be
// written as a whole: where it is not known to the rule what it holds, or how many rules of
// the kernel a rule is.
func (t *Txn) editsTo(c *chain, rs []rules.Rule) (out, in []rules.Line, ok bool) {
	if !t.s.edits || c.digest == 0 && !c.sent || !c.exists() || slices.ContainsFunc(rs, rules.Rule.Several) {
		return nil, nil, false
	}
	most := len(rs) // while one rule stays, its counters do
	if len(t.plan.Edited) >= manyEdits {
		most /= 2
	}
	var lines []rules.Line
	switch {
	case c.blind:
		if len(c.want) != len(rs) || len(rs) == 0 {
			return nil, nil, false
		}
		lines, ok = editLines(c.name, c.found, c.want, rs, most)
	case c.isRead:
		before, after := make([]string, len(c.lines)), make([]string, len(rs))
		for i, l := range c.lines {
			before[i] = lineKey(l)
		}
		for i, r := range rs {
			canon := t.s.canonOf(r)
			if len(canon) != 1 {
				return nil, nil, false
			}
			after[i] = canon[0]
		}
		lines, ok = editLines(c.name, before, after, rs, most)
	default:
		before, known := c.known()
		if !known || slices.ContainsFunc(before, rules.Rule.Several) {
			return nil, nil, false
		}
		lines, ok = editLines(c.name, textsOf(before), textsOf(rs), rs, most)
	}
	if !ok {
		return nil, nil, false
	}
	at := slices.IndexFunc(lines, func(l rules.Line) bool { return l.Command != rules.DeleteIndex })
	if at < 0 {
		at = len(lines)
	}
	return lines[:at], lines[at:], true
}

func textsOf(rs []rules.Rule) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.String()
	}
	return out
}

// gap are the lines that put rules behind the n-th rule that stays.
func gap(chain string, rs []rules.Rule, n int, last bool) []rules.Line {
	var lines []rules.Line
	if last {
		for _, r := range rs {
			lines = append(lines, rules.Line{Command: rules.Append, Chain: chain, Rule: r})
		}
		return lines
	}
	for i := len(rs) - 1; i >= 0; i-- {
		lines = append(lines, rules.Line{Command: rules.Insert, Chain: chain, Index: n + 1, Rule: rs[i]})
	}
	return lines
}

// pair is a rule that stays: its place before and after.
type pair struct{ before, after int }

// common finds a longest common part of two lists, in order, by Myers' algorithm, whose cost
// grows with the differences. It gives up when more than so many of after are not in before.
func common[K comparable](before, after []K, most int) ([]pair, bool) {
	var head []pair
	from := 0
	for from < len(before) && from < len(after) && before[from] == after[from] {
		head = append(head, pair{from, from})
		from++
	}
	endB, endA := len(before), len(after)
	var tail []pair
	for endB > from && endA > from && before[endB-1] == after[endA-1] {
		endB--
		endA--
		tail = append(tail, pair{endB, endA})
	}
	middle, ok := myers(before[from:endB], after[from:endA])
	if !ok || endA-from-len(middle) > most {
		return nil, false
	}
	for _, p := range middle {
		head = append(head, pair{p.before + from, p.after + from})
	}
	for i := len(tail) - 1; i >= 0; i-- {
		head = append(head, tail[i])
	}
	return head, true
}

// maxEdits bounds how many rules differ, since the memory of the comparison grows with its
// square.
const maxEdits = 2000

// myers returns a longest common part of a and b; false when more than maxEdits differ.
func myers[K comparable](a, b []K) ([]pair, bool) {
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	// furthest[k+most+1] is how far into a one comes on diagonal k = place in a - place in b.
	furthest := make([]int, 2*most+3)
	at := func(k int) int { return k + most + 1 }
	var trace [][]int // what furthest was on diagonals -d-1 to d+1 before step d
	for d := 0; d <= most; d++ {
		trace = append(trace, append([]int(nil), furthest[at(-d-1):at(d+1)+1]...))
		for k := -d; k <= d; k += 2 {
			x := furthest[at(k-1)] + 1
			if k == -d || k != d && furthest[at(k-1)] < furthest[at(k+1)] {
				x = furthest[at(k+1)]
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			furthest[at(k)] = x
			if x >= n && x-k >= m {
				return walkBack(trace, n, m), true
			}
		}
	}
	return nil, false
}

// walkBack follows the furthest ways of myers from the end.
func walkBack(trace [][]int, x, y int) []pair {
	var out []pair
	for d := len(trace) - 1; d >= 0; d-- {
		at := func(k int) int { return trace[d][k+d+1] }
		k := x - y
		from := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			from = k + 1
		}
		px := at(from)
		if d == 0 {
			px, from = 0, 0
		}
		for x > px && y > px-from {
			x--
			y--
			out = append(out, pair{x, y})
		}
		x, y = px, px-from
	}
	slices.Reverse(out)
	return out
}
