// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"fmt"
	"strings"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// explain turns the tool's words into an error about a message, its chain and its rule.
func (c *core) explain(it *item) *transaction.Error {
	re := c.run.err
	if re == nil {
		return &transaction.Error{
			Table: c.id, ID: it.msg.ID, Owner: it.msg.Owner, Chain: firstChain(it.msg), Err: transaction.ErrOwned,
			Reason: "it is against what a later message did, which is in the kernel already",
		}
	}
	e := &transaction.Error{Table: c.id, ID: it.msg.ID, Owner: it.msg.Owner, Reason: re.Reason, Err: re}
	switch _, line, ok := c.run.txn.Plan().Origin(re.Line); {
	case ok && re.Class == dataplane.Rejected:
		e.Chain, e.Rule = line.Chain, line.Rule.String()
		e.Column = columnOf(e.Rule, e.Reason)
	default:
		e.Chain, e.Rule = onlyRule(it.msg)
	}
	if e.Reason == "" || strings.HasPrefix(e.Reason, "line ") && re.Class == dataplane.RejectedSomewhere {
		// Legacy names its COMMIT line and no reason; the line is of a block that nobody sees.
		e.Reason = "the kernel refused the message's rules without saying why"
		if chains, n := rulesOf(it.msg); n > 1 {
			e.Reason = fmt.Sprintf("the kernel refused one of the message's %d rules, in %s, without saying which or why", n, chainList(chains))
		}
		e.Reason += ": a target or match that is not allowed in this table or at this hook, or one that the kernel lacks"
	}
	return e
}

// rulesOf counts the rules that a message puts in, and names the chains that have some.
func rulesOf(m transaction.Message) (chains []string, n int) {
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		for _, c := range b.Chains {
			if n += len(c.Rules); len(c.Rules) > 0 {
				chains = append(chains, c.Name)
			}
		}
	case transaction.EditRules:
		return []string{b.Chain}, len(b.Edits)
	case transaction.OverrideStub:
		return []string{b.Chain}, len(b.Rules)
	}
	return chains, n
}

// chainList names chains for people, the first few of many.
func chainList(names []string) string {
	const most = 10
	if len(names) == 1 {
		return "chain " + names[0]
	}
	list := "chains " + strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// onlyRule is the first chain that a message is about, and its rule when it has only one.
func onlyRule(m transaction.Message) (chain, rule string) {
	var rs []rules.Rule
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		if len(b.Chains) == 1 {
			rs = b.Chains[0].Rules
		}
	case transaction.EditRules:
		for _, e := range b.Edits {
			rs = append(rs, e.Rule)
		}
	}
	if len(rs) == 1 {
		rule = rs[0].String()
	}
	return firstChain(m), rule
}

// firstChain is the first chain that a message is about.
func firstChain(m transaction.Message) string {
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		if len(b.Chains) > 0 {
			return b.Chains[0].Name
		}
	case transaction.DeleteChains:
		if len(b.Chains) > 0 {
			return b.Chains[0]
		}
	case transaction.HandOver:
		if len(b.Chains) > 0 {
			return b.Chains[0]
		}
	case transaction.EditRules:
		return b.Chain
	case transaction.SetPolicy:
		return b.Chain
	case transaction.OverrideStub:
		return b.Chain
	}
	return ""
}

// columnOf returns the column, from 1, of the word of a rule that the tool's words quote, or
// 0. The tools write `word' or "word".
func columnOf(rule, reason string) int {
	words, err := rules.SplitWords(rule)
	if err != nil {
		return 0
	}
	for _, w := range words {
		for _, quoted := range []string{"`" + w.Text + "'", `"` + w.Text + `"`} {
			if w.Text != "" && strings.Contains(reason, quoted) {
				return w.Column
			}
		}
	}
	return 0
}
