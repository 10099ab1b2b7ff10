// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"

	"github.com/tableward/tableward/rules"
)

// resolveKernel brings a kernel chain's policy and our rules in it in order.
func (t *Txn) resolveKernel(c *chain, writes []write) []write {
	cause := t.cause[c.name]
	if policy := cmp.Or(c.wantedPolicy, c.leftPolicy); policy != "" && policy != c.policy {
		c.policy = policy
		if i, ok := t.writer[key{kind: 'p', chain: c.name}]; ok {
			cause = i
		}
		l := rules.Line{Command: rules.Declare, Chain: c.name, Policy: c.policy}
		writes = append(writes, write{section: policies, chain: c.name, cause: cause, lines: []rules.Line{l}})
	}
	switch {
	case c.blind && len(c.lists) > 0:
		t.keepDirty(c.name) // where our rules stand cannot be known before they are read
	case c.blind:
	case len(c.lists) > 0 || c.rows != nil || c.removed != nil || c.unhook != nil:
		writes = t.resolveRules(c, writes)
	}
	return writes
}

// resolveRules writes the changes of a kernel chain's rules.
func (t *Txn) resolveRules(c *chain, writes []write) []write {
	c.rows, c.removed = t.reconcile(c), nil
	e := c.editsOf(c.rows)
	authors := t.authors(c.name)
	if len(e.inserts)+len(e.appends) > 0 {
		t.touchDirty(c.needs)
	}
	t.plan.Frees = t.plan.Frees || len(e.deletes) > 0
	for _, r := range e.deletes {
		writes = append(writes, t.ruleWrite(ruleDeletes, rules.Delete, c.name, r, authors))
	}
	for _, i := range e.inserts {
		w := t.ruleWrite(ruleInserts, rules.Insert, c.name, i.rule, authors)
		w.lines[0].Index = i.index
		writes = append(writes, w)
	}
	for _, r := range e.appends {
		writes = append(writes, t.ruleWrite(ruleAppends, rules.Append, c.name, r, authors))
	}
	c.put = e.puts()
	t.setListJumps(c)
	lines := make([]rules.SavedRule, len(c.rows))
	for i, r := range c.rows {
		lines[i] = r.SavedRule
	}
	if len(e.deletes)+len(e.inserts)+len(e.appends) > 0 {
		c.digest = 0
	}
	c.lines, c.rows = lines, nil
	return writes
}

// authors returns, for the rules of a kernel chain by each text that they have, the message of
// the batch that wrote them last.
func (t *Txn) authors(chain string) map[string]int {
	out := map[string]int{}
	for i, m := range t.msgs {
		b, ok := m.Body.(EditRules)
		if !ok || b.Chain != chain {
			continue
		}
		for _, e := range b.Edits {
			out[e.Rule.String()] = i
			for _, line := range t.s.canonOf(e.Rule) {
				out[line] = i
			}
		}
	}
	return out
}

// ruleWrite is one line of a kernel chain, with the message that last wrote the rule. A rule
// that is put in and that no message of the batch wrote is a repair.
func (t *Txn) ruleWrite(s section, cmd rules.Command, chain string, r rules.Rule, authors map[string]int) write {
	w := write{
		section: s, chain: chain, cause: t.cause[chain], repair: cmd != rules.Delete,
		lines: []rules.Line{{Command: cmd, Chain: chain, Rule: r}},
	}
	if i, ok := authors[r.String()]; ok {
		w.cause, w.repair = i, false
	}
	return w
}
