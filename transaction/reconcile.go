// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// row is one rule of a kernel chain while a batch is put together: one that was read, or
// one that the batch puts in. Those that were read stand in the order in which they were read.
type row struct {
	rules.SavedRule
	read int        // place among the chain's lines; -1 when the batch puts it in
	head bool       // put in at the head
	send rules.Rule // what is sent to put it in

	// While the rows are arranged.
	was      int  // place among the rows before; -1 when it was not there
	anchored bool // placed by an anchor
}

// rowsOf returns the rules of a kernel chain after the batch so far.
func (c *chain) rowsOf() []row {
	if c.rows != nil {
		return c.rows
	}
	rows := make([]row, len(c.lines))
	for i, l := range c.lines {
		rows[i] = row{SavedRule: l, read: i}
	}
	return rows
}

// reconcile returns what a kernel chain's rules become under its lists: the top lists in
// order, then those near the top, then what everybody else has, then the bottom lists in order,
// and rules beside their anchors wherever these stand; exactly one copy of each listed rule,
// none of a banned or withdrawn one. A rule near the top or at the bottom that is there already
// stays where it is, since rules of strangers above and below it are no drift.
//
// It is done after each message, not once for the batch: a bottom rule that an earlier
// message moved does not find its old place again, so one pass at the end would show how
// the messages were cut into batches.
func (t *Txn) reconcile(c *chain) []row {
	rows, _ := t.settle(c, t.listed(c))
	return rows
}

// arrange is reconcile where it is known which of w.anchored are lost: those stand near the
// top or at the bottom. When more of them are, it returns these instead.
func (t *Txn) arrange(c *chain, w listed, lost []bool) ([]row, []int) {
	before := c.rowsOf()
	near, bottom := t.strays(w, lost)
	kept := map[string]bool{}
	for _, r := range w.all() {
		t.mark(kept, r)
	}
	drop := map[string]bool{} // texts of which every copy goes
	for _, r := range slices.Concat(w.bans, c.removed) {
		for _, line := range t.s.canonOf(r) {
			drop[line] = drop[line] || !kept[line]
		}
	}
	copies := t.copies(c, before)
	rows := before
	if len(w.anchored) > 0 {
		rows = t.loosen(before, w, lost)
	}
	standing, lines := t.standingTop(rows, w.top, copies)
	top := w.top[:len(w.top)-standing]
	beside := t.besideNear(rows, near, lines, copies)
	bottom = bottom[t.standingBottom(rows, bottom, copies):]
	for _, rs := range append(slices.Collect(maps.Values(beside)), top, bottom) {
		for _, r := range rs {
			t.mark(drop, r)
		}
	}
	out := make([]row, 0, len(rows)+len(top)+len(near)+len(bottom)) // never nil: no row is not "as read"
	put := func(rs []rules.Rule, head bool) {
		for _, r := range rs {
			out = append(out, t.newRows(r, head)...)
		}
	}
	put(top, true)
	for i, l := range rows {
		put(beside[i], true)
		if k := lineKey(l.SavedRule); k == "" || !drop[k] && (kept[k] || !slices.Contains(c.unhook, t.s.jump(l.Rule))) {
			out = append(out, l)
		}
	}
	put(beside[len(rows)], true)
	put(bottom, false)
	if len(w.anchored) == 0 {
		return out, nil
	}
	out, adrift := t.placeAll(out, w, lost)
	keepPlaced(out, before, copies)
	return out, adrift
}

// strays returns what stands near the top and at the bottom, with the rules that are lost on
// the inner side of both: there they are when their anchors go.
func (t *Txn) strays(w listed, lost []bool) (near, bottom []rules.Rule) {
	near = slices.Clip(w.near)
	for i, a := range w.anchored {
		switch {
		case !lost[i]:
		case a.Op == InsertBefore:
			near = append(near, a.Rule)
		default:
			bottom = append(bottom, a.Rule)
		}
	}
	return near, append(bottom, w.bottom...)
}

// copies counts the rows of each text. What was withdrawn does not count: where it is listed
// it is placed anew.
func (t *Txn) copies(c *chain, rows []row) map[string]int {
	out := map[string]int{}
	for _, l := range rows {
		out[lineKey(l.SavedRule)]++
	}
	for _, r := range c.removed {
		for _, line := range t.s.canonOf(r) {
			delete(out, line)
		}
	}
	return out
}

func (t *Txn) mark(set map[string]bool, r rules.Rule) {
	for _, line := range t.s.canonOf(r) {
		set[line] = true
	}
}

// newRows returns the rows that a rule becomes. A rule that reads back as several is put in
// as several, in the order in which the tool would leave them: an insert puts each at the
// head, so that they end up reversed.
func (t *Txn) newRows(r rules.Rule, head bool) []row {
	lines := t.s.canonOf(r)
	out := make([]row, 0, len(lines))
	for _, line := range lines {
		one, err := rules.ParseRule(line)
		if err != nil {
			one = r
		}
		send := one
		if len(lines) == 1 {
			send = r // as its owner wrote it, which is how errors will quote it
		}
		out = append(out, row{SavedRule: rules.SavedRule{Text: line, Rule: one}, read: -1, head: head, send: send, was: -1})
	}
	if head {
		slices.Reverse(out)
	}
	return out
}

// standingTop is the number of rules at the end of the top list that stand at the head of
// the chain already, in order, with no second copy anywhere, and of the lines that they are;
// what is listed above them is then only inserted. With a second copy it is 0: a delete by text
// takes the first copy.
func (t *Txn) standingTop(rows []row, top []rules.Rule, copies map[string]int) (n, lines int) {
	for n := len(top); n > 0; n-- {
		if lines, ok := t.standAtHead(rows, top[len(top)-n:], copies); ok {
			return n, lines
		}
	}
	return 0, 0
}

func (t *Txn) standAtHead(rows []row, list []rules.Rule, copies map[string]int) (lines int, ok bool) {
	for _, r := range list {
		for _, l := range t.newRows(r, true) {
			k := lineKey(l.SavedRule)
			if lines >= len(rows) || lineKey(rows[lines].SavedRule) != k || copies[k] != 1 {
				return 0, false
			}
			lines++
		}
	}
	return lines, true
}

// besideNear returns which rules of the list near the top are put in, by the place among the
// rows of what comes behind them. Those that are in the chain already, in order, once each, stay,
// and what is missing comes behind the one that precedes it in the list; the first ones, and all
// of them where what is there is out of order, come right below the top lists, to place first.
func (t *Txn) besideNear(rows []row, near []rules.Rule, first int, copies map[string]int) map[int][]rules.Rule {
	out := map[int][]rules.Rule{}
	at, behind := 0, first
	for _, r := range near {
		if t.missing(r, copies) {
			out[behind] = append(out[behind], r)
			continue
		}
		end, ok := t.nextAt(rows, at, r, copies)
		if !ok {
			return map[int][]rules.Rule{first: near}
		}
		at, behind = end, end
	}
	return out
}

// missing tells whether no line of a rule is in the chain.
func (t *Txn) missing(r rules.Rule, copies map[string]int) bool {
	return !slices.ContainsFunc(t.s.canonOf(r), func(line string) bool { return copies[line] > 0 })
}

// standingBottom is the number of rules at the beginning of the bottom list that are in the
// chain already, in order, once each, when all that follow are missing; else 0.
func (t *Txn) standingBottom(rows []row, bottom []rules.Rule, copies map[string]int) int {
	at, n := 0, 0
	for _, r := range bottom {
		end, ok := t.nextAt(rows, at, r, copies)
		if !ok {
			break
		}
		at, n = end, n+1
	}
	if slices.ContainsFunc(bottom[n:], func(r rules.Rule) bool { return !t.missing(r, copies) }) {
		return 0
	}
	return n
}

// nextAt finds the rows of a rule, each once, at or after place at.
func (t *Txn) nextAt(rows []row, at int, r rules.Rule, copies map[string]int) (end int, ok bool) {
	for _, want := range t.s.canonOf(r) {
		if copies[want] != 1 {
			return 0, false
		}
		i := slices.IndexFunc(rows[at:], func(l row) bool { return lineKey(l.SavedRule) == want })
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	return at, true
}

// edits is what turns the rules that were read into the rows.
type edits struct {
	deletes []rules.Rule // every copy by its own text, in the order read
	inserts []insert     // in the order in which they are sent
	appends []rules.Rule
}

// insert is a rule that is put in.
type insert struct {
	rule  rules.Rule
	index int // that it has then, from 1; 0 for the head
}

// editsOf compares rows with the lines that were read. Rules are deleted by text, never by
// index: an index that is out of date by one foreign edit takes away a stranger's rule.
func (c *chain) editsOf(rows []row) edits {
	if slices.EqualFunc(c.lines, rows, func(l rules.SavedRule, r row) bool { return l.Text == r.Text }) {
		return edits{}
	}
	var e edits
	stays, staying := make([]bool, len(c.lines)), 0
	for _, r := range rows {
		if r.read >= 0 {
			stays[r.read] = true
			staying++
		}
	}
	for i, l := range c.lines {
		if !stays[i] {
			e.deletes = append(e.deletes, l.Rule)
		}
	}
	// From the bottom up, so that what is put in above changes no index.
	end := len(rows)
	for i, n := len(rows)-1, staying; i >= -1; i-- {
		if i < 0 || rows[i].read >= 0 {
			e.put(rows[i+1:end], n, staying)
			end, n = i, n-1
		}
	}
	return e
}

// put adds the rows that come between the n-th and the next of those that stay. An index
// always names a rule that stays, so that no tool has to find one which it has just put in.
func (e *edits) put(rows []row, n, staying int) {
	heads := len(rows)
	switch {
	case staying == 0:
		for heads > 0 && !rows[heads-1].head {
			heads--
		}
	case n == staying:
		heads = 0
	case n > 0:
		for i, r := range rows {
			e.inserts = append(e.inserts, insert{r.send, n + 1 + i})
		}
		return
	}
	for _, r := range slices.Backward(rows[:heads]) {
		e.inserts = append(e.inserts, insert{rule: r.send})
	}
	for _, r := range rows[heads:] {
		e.appends = append(e.appends, r.send)
	}
}

// puts returns the rules that are put in, those of the head first.
func (e edits) puts() []rules.Rule {
	out := make([]rules.Rule, 0, len(e.inserts)+len(e.appends))
	for _, i := range slices.Backward(e.inserts) {
		out = append(out, i.rule)
	}
	return append(out, e.appends...)
}
