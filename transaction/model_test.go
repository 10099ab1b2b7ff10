// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"cmp"
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
	foreign   map[string][]string // what strangers have in kernel chains
	lists     map[string]map[string]*modelList
	policies  map[string]string
}

type modelList struct {
	prio        int
	top, bottom []string
}

func newModel(grace bool) *model {
	return &model{
		grace:  grace,
		wanted: map[string][]string{}, spoken: map[string]bool{}, overrides: map[string][]string{}, stubbed: map[string]bool{},
		foreign: map[string][]string{
			"INPUT":       {"-s 192.0.2.1/32 -j ACCEPT", "-i eth9 -j DOCKER-USER", "-s 192.0.2.2/32 -j ACCEPT"},
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
		for _, e := range b.Edits {
			m.edit(msg, b.Chain, e)
		}
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
	without := func(list []string) []string {
		return slices.DeleteFunc(list, func(s string) bool { return s == text })
	}
	switch e.Op {
	case transaction.InsertTop, transaction.InsertFirst:
		l.bottom = without(l.bottom)
		if slices.Contains(l.top, text) {
			break
		}
		if e.Op == transaction.InsertFirst {
			l.top = slices.Insert(l.top, 0, text)
		} else {
			l.top = append(l.top, text)
		}
	case transaction.InsertBottom:
		l.top = without(l.top)
		if !slices.Contains(l.bottom, text) {
			l.bottom = append(l.bottom, text)
		}
	default:
		l.top, l.bottom = without(l.top), without(l.bottom)
	}
	// What somebody lists, or has removed while nobody does, is a stranger's no more.
	m.foreign[kernel] = without(m.foreign[kernel])
}

// kernelChain is a kernel chain's whole content.
func (m *model) kernelChain(kernel string) []string {
	owners := slices.SortedFunc(maps.Keys(m.lists[kernel]), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.lists[kernel][a].prio, m.lists[kernel][b].prio), cmp.Compare(a, b))
	})
	var top, bottom []string
	for _, o := range owners {
		top = append(top, m.lists[kernel][o].top...)
	}
	for _, o := range owners {
		for _, r := range m.lists[kernel][o].bottom {
			if !slices.Contains(top, r) {
				bottom = append(bottom, r)
			}
		}
	}
	return slices.Concat(unique(top), m.foreign[kernel], unique(bottom))
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
		all[kernel] = m.kernelChain(kernel)
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
		if slices.Contains(l.top, r) || slices.Contains(l.bottom, r) {
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
