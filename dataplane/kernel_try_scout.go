// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"strings"
)

// A legacy tool does not say what the kernel refuses. But what it refuses it mostly refuses
// for what kind of rule it is, not for an address in it. So one rule of each kind is tried
// first, and where that is refused the others of its kind are tried alone, before all that
// is left is tried in groups. That is a matter of speed alone: nothing is taken to be good,
// or bad, because of its kind.

const (
	// maxKinds is how many kinds are looked at.
	maxKinds = 64
	// fewUnits is how many units are searched as fast without.
	fewUnits = 4
)

// kind is what a rule says without its values, and where it is to be tried.
type kind struct {
	words string
	at    places
	chain string // if it is built in
}

// scouts try one rule of each kind.
func (t *trial) scouts() []task {
	t.kinds, t.naming = nil, false
	units := open(t.units)
	if t.backend != Legacy || len(units) < fewUnits {
		return nil
	}
	t.kinds = map[kind][]*item{}
	var scouts []*unit
	for _, u := range units {
		for _, it := range u.items {
			if it.asked() == 0 {
				continue
			}
			k := t.kindOf(it)
			if t.kinds[k] == nil && len(t.kinds) < maxKinds {
				scouts = append(scouts, &unit{items: []*item{it}, whole: u})
			}
			if t.kinds[k] != nil || len(t.kinds) < maxKinds {
				t.kinds[k] = append(t.kinds[k], it)
			}
		}
	}
	return t.tasks(scouts)
}

// suspects try the rules of the kinds that were refused, one of each unit.
func (t *trial) suspects() []task {
	var suspects []*unit
	seen := map[*unit]bool{}
	for _, u := range t.units {
		if u.met == 0 {
			continue
		}
		b := u.bads[len(u.bads)-1]
		if b.item == nil || b.re.Class != RejectedSomewhere {
			continue
		}
		for _, it := range t.kinds[t.kindOf(b.item)] {
			if !seen[it.unit] && it.unit.open() {
				seen[it.unit] = true
				suspects = append(suspects, &unit{items: []*item{it}, whole: it.unit})
			}
		}
	}
	return t.tasks(suspects)
}

func (t *trial) kindOf(it *item) kind {
	k := kind{at: it.need}
	if t.builtin(it.chain) {
		k.chain = it.chain
	}
	var b strings.Builder
	named := false
	for word := range strings.SplitSeq(it.text, " ") {
		if named && t.names[word] {
			word = "chain"
		}
		if named || strings.HasPrefix(word, "-") {
			b.WriteString(word + " ")
		}
		named = slices.Contains([]string{"-m", "-j", "-g", "-p"}, word)
	}
	k.words = b.String()
	return k
}
