// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/transaction"
)

// model derives the whole table from the wishes, from scratch and in the dumbest way. It
// knows the seed of the property tests.
type model struct {
	grace     bool
	wanted    map[string][]string
	spoken    map[string]bool // written or deleted in this run
	overrides map[string][]string
	stubbed   map[string]bool     // earlier chains that became stubs: their content is lost for good
	rows      map[string][]string // what kernel chains hold, rules of strangers and ours
	lists     map[string]map[string]*modelList
	policies  map[string]string
}

type modelList struct {
	prio        int
	top, bottom []string
	placed      []modelPlaced
	bans        []string
}

type modelPlaced struct {
	op     transaction.Op
	text   string
	anchor transaction.Anchor
}

func newModel(grace bool) *model {
	return &model{
		grace:  grace,
		wanted: map[string][]string{}, spoken: map[string]bool{}, overrides: map[string][]string{}, stubbed: map[string]bool{},
		rows: map[string][]string{
			"INPUT":       {"-s 192.0.2.1/32 -j ACCEPT", "-i eth9 -j DOCKER-USER", `-s 192.0.2.2/32 -m comment --comment "the gate" -j ACCEPT`},
			"FORWARD":     {"-j tw-old"},
			"DOCKER-USER": {"-j RETURN"},
		},
		lists:    map[string]map[string]*modelList{"INPUT": {}, "FORWARD": {}, "DOCKER-USER": {}},
		policies: map[string]string{"INPUT": "ACCEPT", "FORWARD": "ACCEPT", "OUTPUT": "ACCEPT", "DOCKER-USER": "-"},
	}
}

func (m *model) apply(msg transaction.Message) {
	switch b := msg.Body.(type) {
	case transaction.RewriteChains:
		for _, c := range b.Chains {
			m.wanted[c.Name] = []string{}
			for _, r := range c.Rules {
				m.wanted[c.Name] = append(m.wanted[c.Name], r.String())
			}
			m.spoken[c.Name] = true
		}
	case transaction.DeleteChains:
		for _, name := range b.Chains {
			delete(m.wanted, name)
			m.spoken[name] = true
		}
	case transaction.OverrideStub:
		delete(m.overrides, b.Chain)
		if !b.Remove {
			m.overrides[b.Chain] = []string{}
			for _, r := range b.Rules {
				m.overrides[b.Chain] = append(m.overrides[b.Chain], r.String())
			}
		}
	case transaction.EndGrace:
		m.grace = false
	case transaction.SetPolicy:
		if b.Policy != "-" {
			m.policies[b.Chain] = b.Policy
		}
	case transaction.EditRules:
		gone := map[string]bool{}
		for _, e := range b.Edits {
			was := m.placeOf(b.Chain, e.Rule.String())
			m.edit(msg, b.Chain, e)
			// What is withdrawn, or has another place now, is as if it had not been there.
			if is := m.placeOf(b.Chain, e.Rule.String()); is == "" && e.Op >= transaction.Remove || was != "" && is != was {
				gone[e.Rule.String()] = true
			}
		}
		m.settle(b.Chain, gone)
	}
}

func (m *model) edit(msg transaction.Message, kernel string, e transaction.Edit) {
	text := e.Rule.String()
	l := m.lists[kernel][msg.Owner]
	if l == nil {
		l = &modelList{}
		m.lists[kernel][msg.Owner] = l
	}
	l.prio = msg.Priority
	l.bans = without(l.bans, text)
	if e.Op == transaction.Ban {
		l.bans = append(l.bans, text)
	}
	if was := m.placeIn(l, text); was != modelPlace(e) || was == "" {
		l.top, l.bottom = without(l.top, text), without(l.bottom, text)
		l.placed = slices.DeleteFunc(l.placed, func(p modelPlaced) bool { return p.text == text })
		switch e.Op {
		case transaction.InsertTop:
			l.top = append(l.top, text)
		case transaction.InsertFirst:
			l.top = slices.Insert(l.top, 0, text)
		case transaction.InsertBottom:
			l.bottom = append(l.bottom, text)
		case transaction.InsertNear, transaction.InsertBefore, transaction.InsertAfter:
			l.placed = append(l.placed, modelPlaced{e.Op, text, e.Anchor})
		}
	}
}

// owners returns the lists of a kernel chain by (priority, owner).
func (m *model) owners(kernel string) []*modelList {
	owners := slices.SortedFunc(maps.Keys(m.lists[kernel]), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.lists[kernel][a].prio, m.lists[kernel][b].prio), cmp.Compare(a, b))
	})
	var out []*modelList
	for _, o := range owners {
		out = append(out, m.lists[kernel][o])
	}
	return out
}

// modelPlace says in a word where an edit wants a rule; "" nowhere.
func modelPlace(e transaction.Edit) string {
	switch e.Op {
	case transaction.InsertTop, transaction.InsertFirst:
		return "4"
	case transaction.InsertBefore, transaction.InsertAfter:
		return fmt.Sprint("3 ", e.Op, " ", e.Anchor)
	case transaction.InsertNear:
		return "2"
	case transaction.InsertBottom:
		return "1"
	}
	return ""
}

func (m *model) placeIn(l *modelList, text string) string {
	switch {
	case slices.Contains(l.top, text):
		return "4"
	case slices.Contains(l.bottom, text):
		return "1"
	}
	for _, p := range l.placed {
		if p.text == text {
			return modelPlace(transaction.Edit{Op: p.op, Anchor: p.anchor})
		}
	}
	return ""
}

func (m *model) placeOf(kernel, text string) string {
	best := ""
	for _, l := range m.owners(kernel) {
		if p := m.placeIn(l, text); p != "" && (best == "" || p[0] > best[0]) {
			best = p
		}
	}
	return best
}

// settle puts a kernel chain in order, from what it holds and the lists.
func (m *model) settle(kernel string, gone map[string]bool) {
	rows := slices.DeleteFunc(slices.Clone(m.rows[kernel]), func(r string) bool { return gone[r] })
	var top, near, bottom []string
	var at []modelPlaced
	for _, l := range m.owners(kernel) {
		top = append(top, l.top...)
		rows = slices.DeleteFunc(rows, func(r string) bool { return slices.Contains(l.bans, r) })
	}
	for _, l := range m.owners(kernel) {
		for _, p := range l.placed {
			place := modelPlace(transaction.Edit{Op: p.op, Anchor: p.anchor})
			switch {
			case m.placeOf(kernel, p.text) != place:
			case p.op == transaction.InsertNear:
				near = append(near, p.text)
			case !slices.ContainsFunc(at, func(o modelPlaced) bool { return o.text == p.text }):
				at = append(at, p)
			}
		}
		for _, r := range l.bottom {
			if m.placeOf(kernel, r) == "1" {
				bottom = append(bottom, r)
			}
		}
	}
	lost := map[string]bool{}
	for {
		out, adrift := modelArrange(rows, unique(top), unique(near), unique(bottom), at, lost)
		if len(adrift) == 0 {
			m.rows[kernel] = out
			return
		}
		for _, text := range adrift {
			lost[text] = true
		}
	}
}

// modelArrange builds a kernel chain anew: all that is not where it may stay is taken out and
// put in again.
func modelArrange(rows, top, near, bottom []string, at []modelPlaced, lost map[string]bool) (out, adrift []string) {
	var pending []modelPlaced
	var inner []string
	for _, p := range at {
		switch {
		case !lost[p.text]:
			pending = append(pending, p)
			rows = without(rows, p.text)
		case p.op == transaction.InsertBefore:
			near = append(near, p.text)
		default:
			inner = append(inner, p.text)
		}
	}
	bottom = append(inner, bottom...)
	for _, r := range top {
		rows = without(rows, r)
	}
	// A list may stay where it is when what is there is in order and once each, and at the bottom
	// is the list's beginning.
	has := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(r string) bool { return !slices.Contains(rows, r) })
	}
	inOrder := func(list []string) bool {
		return slices.Equal(list, slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return !slices.Contains(list, r) }))
	}
	if !inOrder(has(near)) {
		rows = slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return slices.Contains(near, r) })
	}
	behind := -1
	for _, r := range near {
		if i := slices.Index(rows, r); i >= 0 {
			behind = i
		} else {
			behind++
			rows = slices.Insert(slices.Clone(rows), behind, r)
		}
	}
	there := has(bottom)
	if !inOrder(there) || !slices.Equal(there, bottom[:len(there)]) {
		rows, there = slices.DeleteFunc(slices.Clone(rows), func(r string) bool { return slices.Contains(bottom, r) }), nil
	}
	out = slices.Concat(top, rows, bottom[len(there):])
	for len(pending) > 0 {
		var rest []modelPlaced
		befores, afters := map[int][]string{}, map[int][]string{}
		for _, p := range pending {
			i := slices.IndexFunc(out, func(r string) bool { return modelMatch(r, p.anchor) })
			switch {
			case i < 0:
				rest = append(rest, p)
			case p.op == transaction.InsertBefore:
				befores[i] = append(befores[i], p.text)
			default:
				afters[i] = append(afters[i], p.text)
			}
		}
		if len(rest) == len(pending) {
			for _, p := range rest {
				if !slices.ContainsFunc(rest, func(o modelPlaced) bool { return o != p && modelMatch(o.text, p.anchor) }) {
					adrift = append(adrift, p.text)
				}
			}
			if len(adrift) == 0 { // they go in circles
				for _, p := range rest {
					adrift = append(adrift, p.text)
				}
			}
			return nil, adrift
		}
		var next []string
		for i, r := range out {
			next = slices.Concat(next, befores[i], []string{r}, afters[i])
		}
		out, pending = next, rest
	}
	return out, nil
}

func modelMatch(r string, a transaction.Anchor) bool {
	if a.Kind == transaction.AnchorJump {
		return strings.HasSuffix(r, "-j "+a.Name)
	}
	return strings.Contains(r, "--comment "+a.Name+" ") || strings.Contains(r, `--comment "`+a.Name+`" `)
}

func without(list []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == text })
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// tables derives every chain's content.
func (m *model) chains() map[string][]string {
	earlier := map[string][]string{"tw-old": {"-j tw-e"}, "tw-e": {"-s 192.0.2.3/32 -j DROP"}}
	all := map[string][]string{}
	for kernel := range m.lists {
		all[kernel] = m.rows[kernel]
	}
	maps.Copy(all, m.wanted)
	// Ours needs what it jumps to; a stub's override may need more.
	needed := func() map[string]bool {
		out := map[string]bool{}
		for name, rs := range all {
			for _, r := range rs {
				if target := target(r); target != "" && m.ours(name, r, earlier) {
					out[target] = true
				}
			}
		}
		return out
	}
	for changed := true; changed; {
		changed = false
		for target := range needed() {
			if _, there := all[target]; there || !strings.HasPrefix(target, "tw-") {
				continue
			}
			if _, old := earlier[target]; old && !m.spoken[target] && !m.stubbed[target] && m.grace {
				continue
			}
			all[target] = []string{`-m comment --comment "tableward: missing chain" -j DROP`}
			if o, ok := m.overrides[target]; ok {
				all[target] = o
			}
			m.stubbed[target] = true
			changed = true
		}
	}
	for name, rs := range earlier {
		if _, there := all[name]; !there && !m.spoken[name] && !m.stubbed[name] {
			all[name] = rs
		}
	}
	m.condemn(all)
	return all
}

// ours tells whether a rule of a chain is ours rather than a stranger's.
func (m *model) ours(chain, r string, earlier map[string][]string) bool {
	lists, kernel := m.lists[chain]
	if !kernel {
		return true
	}
	for _, l := range lists {
		if m.placeIn(l, r) != "" {
			return true
		}
	}
	return false
}

// condemn keeps the names that only a stranger's rule reaches.
func (m *model) condemn(all map[string][]string) {
	for _, rs := range maps.Clone(all) {
		for _, r := range rs {
			if t := target(r); strings.HasPrefix(t, "tw-") && all[t] == nil {
				all[t] = []string{`-m comment --comment "tableward: condemned chain" -j DROP`}
			}
		}
	}
}

func target(r string) string {
	_, name, _ := strings.Cut(r, "-j ")
	if strings.HasPrefix(name, "tw-") {
		return name
	}
	return ""
}

func (m *model) save() []string {
	all := m.chains()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "tw-") {
			out = append(out, ":"+name+" -")
		}
	}
	for name, policy := range m.policies {
		out = append(out, ":"+name+" "+policy)
	}
	slices.Sort(out)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, r := range all[name] {
			out = append(out, strings.TrimRight("-A "+name+" "+r, " "))
		}
	}
	return out
}
