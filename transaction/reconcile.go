// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// row is one rule of a kernel chain while a batch is put together: one that was read, or
// one that the batch puts in. The batch's rows always stand in this order: put in at the
// head, read, put in at the end.
type row struct {
	rules.SavedRule
	read int        // place among the chain's lines; -1 when the batch puts it in
	head bool       // put in at the head
	send rules.Rule // what is sent to put it in
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
// order, then what everybody else has, then the bottom lists in order; exactly one copy of
// each listed rule, none of a banned or withdrawn one. A bottom rule that is there already
// stays where it is, since later rules of strangers below it are no drift.
//
// It is done after each message, not once for the batch: a bottom rule that an earlier
// message moved does not find its old place again, so one pass at the end would show how
// the messages were cut into batches.
func (t *Txn) reconcile(c *chain) []row {
	rows := c.rowsOf()
	top, bottom, bans := t.listed(c)
	kept := map[string]bool{}
	for _, r := range slices.Concat(top, bottom) {
		t.mark(kept, r)
	}
	drop := map[string]bool{} // texts of which every copy goes
	for _, r := range slices.Concat(bans, c.removed) {
		for _, line := range t.s.canonOf(r) {
			drop[line] = drop[line] || !kept[line]
		}
	}
	copies := map[string]int{}
	for _, l := range rows {
		copies[lineKey(l.SavedRule)]++
	}
	for _, r := range c.removed {
		for _, line := range t.s.canonOf(r) {
			delete(copies, line) // what is there does not count; where it is listed it is placed anew
		}
	}
	top = top[:len(top)-t.standingTop(rows, top, copies)]
	bottom = bottom[t.standingBottom(rows, bottom, copies):]
	for _, r := range slices.Concat(top, bottom) {
		t.mark(drop, r)
	}
	out := make([]row, 0, len(rows)+len(top)+len(bottom)) // never nil: no row is not "as read"
	for _, r := range top {
		out = append(out, t.newRows(r, true)...)
	}
	for _, l := range rows {
		if k := lineKey(l.SavedRule); k == "" || !drop[k] && (kept[k] || !slices.Contains(c.unhook, t.s.jump(l.Rule))) {
			out = append(out, l)
		}
	}
	for _, r := range bottom {
		out = append(out, t.newRows(r, false)...)
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
		out = append(out, row{SavedRule: rules.SavedRule{Text: line, Rule: one}, read: -1, head: head, send: send})
	}
	if head {
		slices.Reverse(out)
	}
	return out
}

// standingTop is the number of rules at the end of the top list that stand at the head of
// the chain already, in order, with no second copy anywhere; what is listed above them is
// then only inserted. With a second copy it is 0: a delete by text takes the first copy.
func (t *Txn) standingTop(rows []row, top []rules.Rule, copies map[string]int) int {
	for n := len(top); n > 0; n-- {
		if t.standAtHead(rows, top[len(top)-n:], copies) {
			return n
		}
	}
	return 0
}

func (t *Txn) standAtHead(rows []row, list []rules.Rule, copies map[string]int) bool {
	i := 0
	for _, r := range list {
		for _, l := range t.newRows(r, true) {
			k := lineKey(l.SavedRule)
			if i >= len(rows) || lineKey(rows[i].SavedRule) != k || copies[k] != 1 {
				return false
			}
			i++
		}
	}
	return true
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
	for _, r := range bottom[n:] {
		for _, line := range t.s.canonOf(r) {
			if copies[line] > 0 {
				return 0
			}
		}
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
	inserts []rules.Rule // at the head, in the order in which they are to stand
	appends []rules.Rule
}

// editsOf compares rows with the lines that were read. Rules are deleted by text, never by
// index: an index that is out of date by one foreign edit takes away a stranger's rule.
func (c *chain) editsOf(rows []row) edits {
	if slices.EqualFunc(c.lines, rows, func(l rules.SavedRule, r row) bool { return l.Text == r.Text }) {
		return edits{}
	}
	var e edits
	stays := make([]bool, len(c.lines))
	for _, r := range rows {
		switch {
		case r.read >= 0:
			stays[r.read] = true
		case r.head:
			e.inserts = append(e.inserts, r.send)
		default:
			e.appends = append(e.appends, r.send)
		}
	}
	for i, l := range c.lines {
		if !stays[i] {
			e.deletes = append(e.deletes, l.Rule)
		}
	}
	return e
}
