// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// Drift is what others have changed of one chain that is ours to keep, be it a chain of ours
// or our rules and the policy of a kernel chain.
type Drift struct {
	Chain  string
	Gone   bool   // the chain is not there any more
	Back   bool   // it was deleted, and is there again
	Policy string // the policy that was found; "" if it is right
	// Numbers of rules: not there; there, but nobody's wish; there more often than once; and in
	// another place. A rule that was changed is one that is missing and one that is extra. All
	// are 0 when what differs cannot be told.
	Missing, Extra, Doubled, Moved int
	Above                          string // the rule at the head of a kernel chain, where one of ours should be
}

// String says it in words.
func (d Drift) String() string {
	var what []string
	count := func(n int, of string) {
		if n == 1 {
			what = append(what, "1 rule "+of)
		} else if n > 1 {
			what = append(what, fmt.Sprintf("%d rules %s", n, of))
		}
	}
	switch {
	case d.Gone:
		what = append(what, "it is gone")
	case d.Back:
		what = append(what, "it was deleted and is back")
	}
	count(d.Missing, "missing")
	count(d.Extra, "added")
	count(d.Doubled, "doubled")
	count(d.Moved, "out of place")
	if d.Above != "" {
		what = append(what, "at the head is "+d.Above)
	}
	if d.Policy != "" {
		what = append(what, "its policy is "+d.Policy)
	}
	if len(what) == 0 {
		what = append(what, "its rules are not what they should be")
	}
	return "chain " + d.Chain + ": " + strings.Join(what, ", ")
}

// drifts returns the drift of the chains that are newly found to differ from the wishes, by
// name. What a plan of unknown outcome has perhaps written is none.
func (t *Txn) drifts() []Drift {
	var out []Drift
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		c, base := t.chains[name], t.s.chains[name]
		if c == nil || t.s.unsure[name] || c.broken {
			continue
		}
		if _, told := t.s.dirty[name]; told && base != nil && base.digest == c.digest && base.content == c.content {
			continue
		}
		if d, ok := t.driftOf(c, base); ok {
			out = append(out, d)
		}
	}
	return out
}

func (t *Txn) driftOf(c, base *chain) (Drift, bool) {
	d := Drift{Chain: c.name}
	switch {
	case c.content == Foreign:
		if c.wantedPolicy != "" && c.wantedPolicy != c.policy {
			d.Policy = c.policy
		}
		if len(c.lists) > 0 {
			var have, want []string
			for _, l := range c.lines {
				have = append(have, l.Text)
			}
			for _, r := range t.reconcile(c) {
				want = append(want, r.Text)
			}
			compare(&d, have, want)
			if d.Moved > 0 && len(want) > 0 && have[0] != want[0] && slices.Contains(have, want[0]) {
				d.Above = have[0]
			}
		}
		return d, d != Drift{Chain: c.name}
	case c.content == Absent:
		d.Gone = base.exists()
		return d, d.Gone
	case c.content == Condemned && !base.exists():
		d.Back = true
		return d, true
	case !base.exists() && !c.wanted:
		return d, false
	case c.content == Stub || c.content == Override:
		if t.needs.len(c.name) == 0 {
			return d, false // nobody changed anything: it can go
		}
	}
	rs, _ := t.presumed(c)
	switch {
	case c.blind && len(c.want) > 0:
		compare(&d, c.found, c.want)
	case !c.blind && c.isRead:
		t.compareText(&d, c.lines, rs)
	}
	return d, true
}

func (t *Txn) compareText(d *Drift, lines []rules.SavedRule, wish []rules.Rule) {
	have, want := make([]string, len(lines)), []string(nil)
	for i, l := range lines {
		have[i] = lineKey(l)
	}
	for _, r := range wish {
		want = append(want, t.s.canonOf(r)...)
	}
	compare(d, have, want)
}

// compare counts what have has less, more, more often and elsewhere than want.
func compare[T comparable](d *Drift, have, want []T) {
	count, wished := map[T]int{}, map[T]bool{}
	for _, r := range want {
		count[r]--
		wished[r] = true
	}
	for _, r := range have {
		count[r]++
	}
	for r, n := range count {
		switch {
		case n < 0:
			d.Missing -= n
		case n > 0 && wished[r]:
			d.Doubled += n
		case n > 0:
			d.Extra += n
		}
	}
	if *d == (Drift{Chain: d.Chain, Policy: d.Policy}) {
		stays, ok := common(have, want, len(want))
		d.Moved = len(want) - len(stays)
		if !ok {
			d.Moved = len(want) // too many to find out which
		}
	}
}
