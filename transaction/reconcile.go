// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// edits is what turns a kernel chain that was read into what its owners list.
type edits struct {
	deletes []rules.Rule // every copy by its own text, in the order read
	inserts []rules.Rule // at the head; the last one first when rendered
	appends []rules.Rule
	result  []rules.SavedRule // the chain afterwards
}

func (e *edits) empty() bool { return len(e.deletes)+len(e.inserts)+len(e.appends) == 0 }

// reconcile plans the smallest change by whole rules that gives: the top lists in order,
// then what everybody else has, then the bottom lists in order; exactly one copy of each
// listed rule, none of a banned or withdrawn one. A bottom rule that is there already stays
// where it is, since later rules of strangers below it are no drift.
//
// Rules are deleted by text, never by index: an index that is out of date by one foreign
// edit takes away a stranger's rule.
func (t *Txn) reconcile(c *chain) edits {
	top, bottom, bans := t.listed(c)
	kept := map[string]bool{}
	for _, r := range slices.Concat(top, bottom) {
		for _, line := range t.s.canonOf(r) {
			kept[line] = true
		}
	}
	drop := map[string]bool{} // texts of which every copy goes
	for _, r := range slices.Concat(bans, c.removed) {
		for _, line := range t.s.canonOf(r) {
			if !kept[line] {
				drop[line] = true
			}
		}
	}
	copies := map[string]int{}
	for _, l := range c.lines {
		copies[lineKey(l)]++
	}
	standing := t.standingTop(c.lines, top, copies)
	bottomStands := t.bottomStands(c.lines, bottom, copies)
	for _, r := range top[:len(top)-standing] {
		t.mark(drop, r)
	}
	for _, r := range bottom[bottomStands:] {
		t.mark(drop, r)
	}
	return t.assemble(c.lines, drop, top[:len(top)-standing], bottom[bottomStands:])
}

func (t *Txn) mark(drop map[string]bool, r rules.Rule) {
	for _, line := range t.s.canonOf(r) {
		drop[line] = true
	}
}

// assemble deletes every line of drop, inserts and appends, and says what results.
func (t *Txn) assemble(lines []rules.SavedRule, drop map[string]bool, inserts, appends []rules.Rule) edits {
	e := edits{inserts: inserts, appends: appends}
	for _, r := range inserts {
		e.result = append(e.result, t.saved(r, true)...)
	}
	for _, l := range lines {
		if k := lineKey(l); k != "" && drop[k] {
			e.deletes = append(e.deletes, l.Rule)
			continue
		}
		e.result = append(e.result, l)
	}
	for _, r := range appends {
		e.result = append(e.result, t.saved(r, false)...)
	}
	return e
}

// saved returns the lines that a rule will read back as. An insert of a rule that stands
// for several puts each at the head, so that they end up reversed.
func (t *Txn) saved(r rules.Rule, inserted bool) []rules.SavedRule {
	var out []rules.SavedRule
	for _, line := range t.s.canonOf(r) {
		one, err := rules.ParseRule(line)
		if err != nil {
			one = r
		}
		out = append(out, rules.SavedRule{Text: line, Rule: one})
	}
	if inserted {
		slices.Reverse(out)
	}
	return out
}

// standingTop is the number of rules at the end of the top list that stand at the head of
// the chain already, in order, with no second copy anywhere; what is listed above them is
// then only inserted. With a second copy it is 0: a delete by text takes the first copy.
func (t *Txn) standingTop(lines []rules.SavedRule, top []rules.Rule, copies map[string]int) int {
	for n := len(top); n > 0; n-- {
		if t.standsAt(lines, top[len(top)-n:], true, copies) {
			return n
		}
	}
	return 0
}

// standsAt tells whether the rules stand at the head of lines.
func (t *Txn) standsAt(lines []rules.SavedRule, list []rules.Rule, inserted bool, copies map[string]int) bool {
	i := 0
	for _, r := range list {
		for _, l := range t.saved(r, inserted) {
			if i >= len(lines) || lineKey(lines[i]) != lineKey(l) || copies[lineKey(l)] != 1 {
				return false
			}
			i++
		}
	}
	return true
}

// bottomStands is the number of rules at the beginning of the bottom list that are in the
// chain already, in order, once each, when all that follow are missing; else 0.
func (t *Txn) bottomStands(lines []rules.SavedRule, bottom []rules.Rule, copies map[string]int) int {
	at, n := 0, 0
	for _, r := range bottom {
		end, ok := t.nextAt(lines, at, r, copies)
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

// nextAt finds the lines of a rule, each once, at or after place at.
func (t *Txn) nextAt(lines []rules.SavedRule, at int, r rules.Rule, copies map[string]int) (end int, ok bool) {
	for _, want := range t.s.canonOf(r) {
		if copies[want] != 1 {
			return 0, false
		}
		i := slices.IndexFunc(lines[at:], func(l rules.SavedRule) bool { return lineKey(l) == want })
		if i < 0 {
			return 0, false
		}
		at += i + 1
	}
	return at, true
}
