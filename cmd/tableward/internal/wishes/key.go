// SPDX-License-Identifier: Apache-2.0

package wishes

import (
	"fmt"
	"strings"

	"github.com/tableward/tableward/transaction"
)

// Key is equal for messages that ask for the same thing, whatever their ids.
func (m Message) Key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n%s", m.Table, m.Owner, m.Body.Kind())
	switch body := m.Body.(type) {
	case transaction.RewriteChains:
		for _, c := range body.Chains {
			fmt.Fprintf(&b, "\n:%s", c.Name)
			for _, r := range c.Rules {
				b.WriteString("\n" + r.String())
			}
		}
	case transaction.DeleteChains:
		b.WriteString("\n" + strings.Join(body.Chains, " "))
	case transaction.EditRules:
		b.WriteString("\n" + body.Chain)
		for _, e := range body.Edits {
			fmt.Fprintf(&b, "\n%d %s", e.Op, e.Rule)
			if e.Anchor != (transaction.Anchor{}) {
				fmt.Fprintf(&b, "\n by %s", e.Anchor)
			}
		}
	case transaction.SetPolicy:
		b.WriteString("\n" + body.Chain + " " + body.Policy)
	}
	return b.String()
}

// Withdrawal returns the message that takes all back that m inserts into a kernel chain.
func (m Message) Withdrawal() Message {
	b, _ := m.Body.(transaction.EditRules)
	back := transaction.EditRules{Chain: b.Chain}
	for _, e := range b.Edits {
		back.Edits = append(back.Edits, transaction.Edit{Op: transaction.Remove, Rule: e.Rule})
	}
	return message(m.Table, m.Owner, back)
}
