// SPDX-License-Identifier: Apache-2.0

package wishes

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Diff returns the messages that make the runtime hold what want says, and nothing else:
// those that withdraw, which have no id yet, and then those of want that are needed, by
// index. Sent in this order as one piece, they are one block of each table, so that nothing
// is missing in between. Withdrawals come first because a thing can change its owner.
func (h *Held) Diff(want []Message) (withdraw []Message, send []int) {
	goal := &Held{}
	for _, m := range want {
		goal.Apply(m)
	}
	withdraw = slices.Concat(h.releases(goal), h.removals(goal, want), h.deletes(goal, want))
	now := h.Clone()
	for _, m := range withdraw {
		now.Apply(m)
	}
	for i, m := range want {
		if now.lacks(goal, m) {
			send = append(send, i)
			now.Apply(m)
		}
	}
	return withdraw, send
}

// releases gives up the policies that goal does not hold.
func (h *Held) releases(goal *Held) []Message {
	var out []Message
	for _, k := range sorted(h.policies, chainKey.compare) {
		if p := h.policies[k]; goal.policies[k].owner != p.owner || goal.policies[k].target == "" {
			out = append(out, message(k.table, p.owner, transaction.SetPolicy{Chain: k.chain, Policy: "-"}))
		}
	}
	return out
}

// removals withdraws rules and bans that goal does not have, or has in another place.
func (h *Held) removals(goal *Held, want []Message) []Message {
	var out []Message
	for _, k := range sorted(h.lists, listKey.compare) {
		if h.lists[k].equal(goal.lists[k]) {
			continue
		}
		var edits []transaction.Edit
		for _, r := range h.lists[k].surplus(k, goal, want) {
			edits = append(edits, transaction.Edit{Op: transaction.Remove, Rule: r})
		}
		if len(edits) > 0 {
			out = append(out, message(k.table, k.owner, transaction.EditRules{Chain: k.chain, Edits: edits}))
		}
	}
	return out
}

// deletes takes away the chains that goal does not have, or has for another owner. What want
// deletes itself is left to it.
func (h *Held) deletes(goal *Held, want []Message) []Message {
	asked := map[listKey]bool{}
	for _, m := range want {
		if b, ok := m.Body.(transaction.DeleteChains); ok {
			for _, name := range b.Chains {
				asked[listKey{chainKey{m.Table, name}, m.Owner}] = true
			}
		}
	}
	var out []Message
	for _, k := range sorted(h.chains, chainKey.compare) {
		owner := h.chains[k].owner
		c, found := goal.chains[k]
		if found && c.owner == owner || !found && asked[listKey{k, owner}] {
			continue
		}
		out = append(out, message(k.table, owner, transaction.DeleteChains{Chains: []string{k.chain}}))
	}
	return out
}

// surplus returns what has to leave a list so that the messages lead to goal. What stays in
// its order is not moved, and keeps its counters; but where messages move a rule about, one
// after the other, that may not do, and then all of the list has to leave.
func (l list) surplus(k listKey, goal *Held, want []Message) []rules.Rule {
	wanted := goal.lists[k]
	out := l.outside(wanted)
	now := &Held{lists: map[listKey]list{k: l.dropped(out)}}
	for _, m := range want {
		if b, ok := m.Body.(transaction.EditRules); ok && b.Chain == k.chain && m.Table == k.table && m.Owner == k.owner && now.lacks(goal, m) {
			now.Apply(m)
		}
	}
	if now.lists[k].equal(wanted) {
		return out
	}
	return l.rules()
}

func (l list) dropped(rs []rules.Rule) list {
	edits := make([]transaction.Edit, len(rs))
	for i, r := range rs {
		edits[i] = transaction.Edit{Op: transaction.Remove, Rule: r}
	}
	return l.edited(edits)
}

// outside returns what goal does not have, or has in an order that edits, which append at
// the bottom and at anchors and put in front at the top, cannot make of this.
func (l list) outside(goal list) []rules.Rule {
	stays := map[string]bool{}
	for _, r := range goal.bans {
		stays[r.String()] = slices.ContainsFunc(l.bans, is(r))
	}
	for _, r := range prefix(l.bottom, goal.bottom, sameRule) {
		stays[r.String()] = true
	}
	for _, e := range prefix(l.placed, goal.placed, alike) {
		stays[e.Rule.String()] = true
	}
	top, want := slices.Clone(l.top), slices.Clone(goal.top)
	slices.Reverse(top)
	slices.Reverse(want)
	for _, r := range prefix(top, want, sameRule) {
		stays[r.String()] = true
	}
	return slices.DeleteFunc(l.rules(), func(r rules.Rule) bool { return stays[r.String()] })
}

// prefix returns as much of the beginning of want as has, in this order, with whatever
// between.
func prefix[T any](has, want []T, same func(a, b T) bool) []T {
	for i, w := range want {
		at := slices.IndexFunc(has, func(h T) bool { return same(h, w) })
		if at < 0 {
			return want[:i]
		}
		has = has[at+1:]
	}
	return want
}

func sameRule(a, b rules.Rule) bool { return a.String() == b.String() }

// lacks tells whether a message of goal has to be sent. A delete always is: it costs nothing
// where the chain is gone, and takes it away where somebody has made it again.
func (h *Held) lacks(goal *Held, m Message) bool {
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		for _, c := range b.Chains {
			k := chainKey{m.Table, c.Name}
			now, found := h.chains[k]
			if wanted, ok := goal.chains[k]; ok && (!found || now.owner != wanted.owner || !equal(now.rules, wanted.rules)) {
				return true
			}
		}
		return false
	case transaction.EditRules:
		k := listKey{chainKey{m.Table, b.Chain}, m.Owner}
		now := h.lists[k]
		return !now.equal(goal.lists[k]) && !now.equal(now.edited(b.Edits))
	case transaction.SetPolicy:
		k := chainKey{m.Table, b.Chain}
		return h.policies[k] != goal.policies[k]
	}
	return true
}

func message(id rules.TableID, owner string, body transaction.Body) Message {
	return Message{id, transaction.Message{Owner: owner, Body: body}}
}

func (k chainKey) compare(o chainKey) int {
	return cmp.Or(k.table.Compare(o.table), cmp.Compare(k.chain, o.chain))
}

func (k listKey) compare(o listKey) int {
	return cmp.Or(k.chainKey.compare(o.chainKey), cmp.Compare(k.owner, o.owner))
}

func sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
