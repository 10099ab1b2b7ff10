// SPDX-License-Identifier: Apache-2.0

package dataplane

import "slices"

// settle works out which units are out by what is known now, and who reaches whom without
// them. A rule that is refused where nothing reaches it reaches nobody; but what is reached
// through a rule that is refused at a hook only, and is refused there itself, is at fault too.
func (t *trial) settle() {
	for _, u := range t.units {
		u.met = 0
		for i := range u.bads {
			if b := &u.bads[i]; u.fault == nil && b.at == unreached {
				u.fault = b
			}
		}
	}
	for again := true; again; {
		t.reach()
		again = false
		for _, u := range t.units {
			if u.fault == nil {
				u.fault = u.applies()
				again = again || u.fault != nil
			}
		}
	}
}

// applies returns the first refusal that was met where the unit is reached now.
func (u *unit) applies() *bad {
	for i := range u.bads {
		b := &u.bads[i]
		hit := b.item != nil && b.item.need&b.at != 0
		if b.item == nil {
			hit = slices.ContainsFunc(u.items, func(it *item) bool { return it.need&b.at != 0 })
		}
		if hit {
			return b
		}
	}
	return nil
}

// verdicts are the answer.
func (t *trial) verdicts() []Verdict {
	around := t.loops()
	at := map[*item]Verdict{}
	for _, it := range t.items {
		switch {
		case it.skipped != "":
			at[it] = Verdict{Index: it.index, Skipped: it.skipped}
		case it.unit.fault == nil && it.asked() != 0, t.nameless(it.unit):
			at[it] = Verdict{Index: it.index, Untried: true}
		}
	}
	for _, u := range t.units {
		if u.fault != nil && u.fault.chain == "" && !t.nameless(u) {
			it, v := t.faulty(u)
			at[it] = v
		}
	}
	for _, b := range t.bad {
		v := Verdict{Index: -1, Err: refusal(b.re, "")}
		i := slices.IndexFunc(t.items, func(it *item) bool { return it.chain == b.chain })
		if i < 0 {
			v.Chain = b.chain
			around = append(around, v)
			continue
		}
		at[t.items[i]] = v
	}
	var out []Verdict
	for _, it := range t.items {
		if v, found := at[it]; found {
			v.Chain, v.Unit = it.chain, it.unit.id
			out = append(out, v)
		}
	}
	return append(out, around...)
}

// nameless tells whether there was no time to find the rule of a unit that is refused. As
// long as some other unit has its answer, it is left for another time.
func (t *trial) nameless(u *unit) bool {
	return t.over && t.answered.Load() && u.fault != nil && u.fault.item == nil && u.fault.chain == ""
}

// faulty is the verdict on a unit that is out, and the rule that it is about.
func (t *trial) faulty(u *unit) (*item, Verdict) {
	it, v, text := u.fault.item, Verdict{}, ""
	if it == nil {
		i := slices.IndexFunc(u.items, func(it *item) bool { return it.skipped == "" })
		it, v.Index = u.items[i], -1
	} else {
		v.Index, text = it.index, it.text
	}
	if u.fault.at != unreached {
		v.Hook = t.hookOf(it, u.fault.at)
	}
	v.Err = refusal(u.fault.re, text)
	return it, v
}

// refusal is an error without what is true of the scratch block alone.
func refusal(re *RestoreError, text string) *RestoreError {
	e := *re
	e.Reason = ownReason(re)
	e.Class, e.Line, e.Text, e.Lines = Rejected, 0, text, nil
	return &e
}
