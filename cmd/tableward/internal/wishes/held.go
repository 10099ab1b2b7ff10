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
type list struct{ top, bottom, bans []rules.Rule }

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
	l = list{slices.Clone(l.top), slices.Clone(l.bottom), slices.Clone(l.bans)}
	for _, e := range edits {
		l.edit(e)
	}
	return l
}

func (l *list) edit(e transaction.Edit) {
	switch e.Op {
	case transaction.InsertTop, transaction.InsertFirst:
		l.bottom, l.bans = without(l.bottom, e.Rule), without(l.bans, e.Rule)
		switch {
		case slices.ContainsFunc(l.top, is(e.Rule)):
		case e.Op == transaction.InsertFirst:
			l.top = slices.Insert(l.top, 0, e.Rule)
		default:
			l.top = append(l.top, e.Rule)
		}
	case transaction.InsertBottom:
		l.top, l.bans = without(l.top, e.Rule), without(l.bans, e.Rule)
		if !slices.ContainsFunc(l.bottom, is(e.Rule)) {
			l.bottom = append(l.bottom, e.Rule)
		}
	case transaction.Remove:
		l.top, l.bottom, l.bans = without(l.top, e.Rule), without(l.bottom, e.Rule), without(l.bans, e.Rule)
	case transaction.Ban:
		l.top, l.bottom = without(l.top, e.Rule), without(l.bottom, e.Rule)
		if !slices.ContainsFunc(l.bans, is(e.Rule)) {
			l.bans = append(l.bans, e.Rule)
		}
	}
}

func (l list) empty() bool { return len(l.top)+len(l.bottom)+len(l.bans) == 0 }

// equal tells whether two lists say the same; the order of bans says nothing.
func (l list) equal(o list) bool {
	banned := func(r rules.Rule) bool { return slices.ContainsFunc(o.bans, is(r)) }
	return equal(l.top, o.top) && equal(l.bottom, o.bottom) &&
		len(l.bans) == len(o.bans) && !slices.ContainsFunc(l.bans, func(r rules.Rule) bool { return !banned(r) })
}

func equal(a, b []rules.Rule) bool {
	return slices.EqualFunc(a, b, func(a, b rules.Rule) bool { return a.String() == b.String() })
}

func is(r rules.Rule) func(rules.Rule) bool {
	return func(o rules.Rule) bool { return o.String() == r.String() }
}

func without(rs []rules.Rule, r rules.Rule) []rules.Rule { return slices.DeleteFunc(rs, is(r)) }
