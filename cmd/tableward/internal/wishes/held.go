// SPDX-License-Identifier: Apache-2.0

// Package wishes finds the messages that lead from one version of the rules files to the next.
//
// What a runtime holds is what it was sent and did not refuse. A new version is compared with
// that, not with the version before: what was refused then is not held, so that it is sent
// again and never withdrawn, which could take a stranger's equal rule away.
package wishes

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Message is a message and its table.
type Message struct {
	Table rules.TableID
	transaction.Message
}

// Held is what a runtime holds for its owners, by the messages that it has taken. The zero
// Held is empty. Not safe for concurrent use.
type Held struct {
	chains   map[chainKey]content
	lists    map[listKey]list
	policies map[chainKey]policy
}

type chainKey struct {
	table rules.TableID
	chain string
}

type listKey struct {
	chainKey
	owner string
}

// content is a chain of an owner's own.
type content struct {
	owner string
	rules []rules.Rule
}

// list is what an owner has in a kernel chain, and keeps out of it.
type list struct {
	top, bottom, bans []rules.Rule
	placed            []transaction.Edit // near the top, and before and after anchors
}

type policy struct{ owner, target string }

// Clone returns a copy that can be changed by itself.
func (h *Held) Clone() *Held {
	return &Held{chains: maps.Clone(h.chains), lists: maps.Clone(h.lists), policies: maps.Clone(h.policies)}
}

// HasChain tells whether an owner has written the chain.
func (h *Held) HasChain(id rules.TableID, name string) bool {
	_, found := h.chains[chainKey{id, name}]
	return found
}

// Apply adds a message that the runtime has taken. Of two owners who write the same thing
// the first has it, as in the runtime.
func (h *Held) Apply(m Message) {
	h.init()
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		for _, c := range b.Chains {
			k := chainKey{m.Table, c.Name}
			if old, found := h.chains[k]; !found || old.owner == m.Owner {
				h.chains[k] = content{m.Owner, c.Rules}
			}
		}
	case transaction.DeleteChains:
		for _, name := range b.Chains {
			k := chainKey{m.Table, name}
			if h.chains[k].owner == m.Owner {
				delete(h.chains, k)
			}
		}
	case transaction.EditRules:
		k := listKey{chainKey{m.Table, b.Chain}, m.Owner}
		if l := h.lists[k].edited(b.Edits); l.empty() {
			delete(h.lists, k)
		} else {
			h.lists[k] = l
		}
	case transaction.SetPolicy:
		h.applyPolicy(m.Owner, chainKey{m.Table, b.Chain}, b.Policy)
	}
}

func (h *Held) init() {
	if h.chains == nil {
		h.chains = map[chainKey]content{}
	}
	if h.lists == nil {
		h.lists = map[listKey]list{}
	}
	if h.policies == nil {
		h.policies = map[chainKey]policy{}
	}
}

func (h *Held) applyPolicy(owner string, k chainKey, target string) {
	switch old, found := h.policies[k]; {
	case found && old.owner != owner:
	case target == "-":
		delete(h.policies, k)
	default:
		h.policies[k] = policy{owner, target}
	}
}

// edited returns the list after edits, as the runtime keeps it: a rule given again keeps its
// place. The list itself is not changed.
func (l list) edited(edits []transaction.Edit) list {
	l = list{slices.Clone(l.top), slices.Clone(l.bottom), slices.Clone(l.bans), slices.Clone(l.placed)}
	for _, e := range edits {
		l.edit(e)
	}
	return l
}

func (l *list) edit(e transaction.Edit) {
	if e.Op != transaction.Ban {
		l.bans = without(l.bans, e.Rule)
	}
	if e.Op != transaction.InsertTop && e.Op != transaction.InsertFirst {
		l.top = without(l.top, e.Rule)
	}
	if e.Op != transaction.InsertBottom {
		l.bottom = without(l.bottom, e.Rule)
	}
	l.placed = slices.DeleteFunc(l.placed, func(o transaction.Edit) bool { return is(e.Rule)(o.Rule) && !alike(o, e) })
	switch e.Op {
	case transaction.InsertFirst:
		if !slices.ContainsFunc(l.top, is(e.Rule)) {
			l.top = slices.Insert(l.top, 0, e.Rule)
		}
	case transaction.InsertTop:
		l.top = with(l.top, e.Rule)
	case transaction.InsertBottom:
		l.bottom = with(l.bottom, e.Rule)
	case transaction.Ban:
		l.bans = with(l.bans, e.Rule)
	case transaction.InsertNear, transaction.InsertBefore, transaction.InsertAfter:
		if !slices.ContainsFunc(l.placed, func(o transaction.Edit) bool { return alike(o, e) }) {
			l.placed = append(l.placed, e)
		}
	}
}

// alike tells whether two edits say the same.
func alike(a, b transaction.Edit) bool {
	return a.Op == b.Op && a.Anchor == b.Anchor && a.Rule.String() == b.Rule.String()
}

// with returns a list that has the rule: where it is, or else at the end.
func with(rs []rules.Rule, r rules.Rule) []rules.Rule {
	if slices.ContainsFunc(rs, is(r)) {
		return rs
	}
	return append(rs, r)
}

// rules returns all rules of the list, bans too.
func (l list) rules() []rules.Rule {
	out := slices.Concat(l.top, l.bottom, l.bans)
	for _, e := range l.placed {
		out = append(out, e.Rule)
	}
	return out
}

func (l list) empty() bool { return len(l.rules()) == 0 }

// equal tells whether two lists say the same; the order of bans says nothing.
func (l list) equal(o list) bool {
	banned := func(r rules.Rule) bool { return slices.ContainsFunc(o.bans, is(r)) }
	return equal(l.top, o.top) && equal(l.bottom, o.bottom) && slices.EqualFunc(l.placed, o.placed, alike) &&
		len(l.bans) == len(o.bans) && !slices.ContainsFunc(l.bans, func(r rules.Rule) bool { return !banned(r) })
}

func equal(a, b []rules.Rule) bool {
	return slices.EqualFunc(a, b, sameRule)
}

func is(r rules.Rule) func(rules.Rule) bool {
	return func(o rules.Rule) bool { return o.String() == r.String() }
}

func without(rs []rules.Rule, r rules.Rule) []rules.Rule { return slices.DeleteFunc(rs, is(r)) }
