// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"errors"

	"github.com/tableward/tableward/rules"
)

// check judges a message by itself and by what stands when it comes. It changes nothing.
func (t *Txn) check(m Message) error {
	var err *Error
	switch b := m.Body.(type) {
	case RewriteChains:
		err = t.checkRewrite(m, b)
	case DeleteChains:
		err = t.checkDelete(m, b)
	case HandOver:
		err = t.checkHandOver(m, b)
	case EditRules:
		err = t.checkEdit(m, b)
	case SetPolicy:
		err = t.checkPolicy(m, b)
	case OverrideStub:
		err = t.checkOverride(m, b)
	case Refresh, EndGrace, InSync, Cleanup:
	default:
		err = t.errorf(m, ErrInvalid, "", "", "a message needs a body")
	}
	if err != nil {
		return err
	}
	return nil
}

func (t *Txn) checkRewrite(m Message, b RewriteChains) *Error {
	seen := make(map[string]bool, len(b.Chains))
	for _, c := range b.Chains {
		if seen[c.Name] {
			return t.errorf(m, ErrInvalid, c.Name, "", "the chain is given twice in one message")
		}
		seen[c.Name] = true
		if err := t.checkOwnName(m, c.Name); err != nil {
			return err
		}
		if err := t.checkNotForeign(m, c.Name); err != nil {
			return err
		}
		if err := t.checkOwner(m, c.Name); err != nil {
			return err
		}
		if err := t.checkNoLists(m, c.Name); err != nil {
			return err
		}
		if have := t.get(c.Name); have.exists() && have.content != Foreign && t.holds(have, c.Rules) {
			continue // the kernel has taken them
		}
		rs := c.Rules
		if have := t.get(c.Name); have != nil && have.wanted {
			from, to := span(have.rules, rs)
			rs = rs[from:to]
		}
		if err := t.checkRules(m, c.Name, rs); err != nil {
			return err
		}
	}
	return nil
}

// span is where rules are new: from and to, less what they have at their beginning and at their
// end in common with what was there.
func span(was, rs []rules.Rule) (from, to int) {
	to = len(rs)
	for from < min(len(was), to) && was[from].String() == rs[from].String() {
		from++
	}
	for was = was[from:]; len(was) > 0 && to > from && was[len(was)-1].String() == rs[to-1].String(); to-- {
		was = was[:len(was)-1]
	}
	return from, to
}

func (t *Txn) checkDelete(m Message, b DeleteChains) *Error {
	for _, name := range b.Chains {
		if err := t.checkNotForeign(m, name); err != nil {
			return err
		}
		if err := t.checkOwner(m, name); err != nil {
			return err
		}
		if err := t.checkNoLists(m, name); err != nil {
			return err
		}
	}
	return nil
}

func (t *Txn) checkHandOver(m Message, b HandOver) *Error {
	for _, name := range b.Chains {
		if c := t.get(name); c == nil || !c.wanted {
			return t.errorf(m, ErrInvalid, name, "", "nobody has written the chain, so it cannot be handed over")
		}
		if err := t.checkOwner(m, name); err != nil {
			return err
		}
	}
	return nil
}

// checkNoLists refuses to take over a chain that owners insert rules into.
func (t *Txn) checkNoLists(m Message, name string) *Error {
	if c := t.get(name); c != nil && len(c.lists) > 0 {
		return t.errorf(m, ErrInvalid, name, "", "rules are inserted into this chain, so it cannot be written or deleted as a whole")
	}
	return nil
}

func (t *Txn) checkEdit(m Message, b EditRules) *Error {
	c := t.get(b.Chain)
	if c != nil && c.ours && !c.builtin || c == nil && t.s.oursByName(b.Chain) {
		return t.errorf(m, ErrInvalid, b.Chain, "", "the chain is ours: rewrite it instead of inserting rules")
	}
	if err := rules.CheckChainName(b.Chain); err != nil {
		return t.errorf(m, ErrBadName, b.Chain, "", "%v", err)
	}
	for _, e := range b.Edits {
		if err := t.checkOneEdit(m, b.Chain, c, e); err != nil {
			return err
		}
	}
	return nil
}

func (t *Txn) checkOneEdit(m Message, name string, c *chain, e Edit) *Error {
	if err := t.checkRule(m, name, e.Rule); err != nil {
		return err
	}
	if e.Op < InsertTop || e.Op > Ban {
		return t.errorf(m, ErrInvalid, name, e.Rule.String(), "unknown edit %d", e.Op)
	}
	if err := t.checkAnchor(m, name, e); err != nil {
		return err
	}
	if c == nil {
		return nil
	}
	for owner, l := range c.lists {
		if owner == m.Owner {
			continue
		}
		switch {
		case e.Op == Ban && t.spotIn(l, e.Rule).place != nowhere:
			return t.errorf(m, ErrBanned, name, e.Rule.String(), "owner %q lists the rule, so it cannot be kept out", owner)
		case e.Op < Remove && t.find(l.bans, e.Rule) >= 0:
			return t.errorf(m, ErrBanned, name, e.Rule.String(), "owner %q keeps the rule out", owner)
		}
	}
	return nil
}

func (t *Txn) checkPolicy(m Message, b SetPolicy) *Error {
	if !rules.IsBuiltin(t.s.cfg.Table.Name, b.Chain) {
		return t.errorf(m, ErrInvalid, b.Chain, "", "only a built-in chain has a policy")
	}
	if b.Policy != "ACCEPT" && b.Policy != "DROP" && b.Policy != "-" {
		return t.errorf(m, ErrInvalid, b.Chain, "", "policy %q: ACCEPT, DROP, or - to release it", b.Policy)
	}
	if c := t.get(b.Chain); c.wantedPolicy != "" && c.policyOwner != m.Owner {
		return t.errorf(m, ErrOwned, b.Chain, "", "owner %q holds the policy", c.policyOwner)
	}
	return nil
}

func (t *Txn) checkOverride(m Message, b OverrideStub) *Error {
	if err := t.checkOwnName(m, b.Chain); err != nil {
		return err
	}
	if err := t.checkNotForeign(m, b.Chain); err != nil {
		return err
	}
	return t.checkRules(m, b.Chain, b.Rules)
}

// checkOwnName judges a name as that of a chain of ours.
func (t *Txn) checkOwnName(m Message, name string) *Error {
	if err := rules.CheckChainName(name); err != nil {
		return t.errorf(m, ErrBadName, name, "", "%v", err)
	}
	if rules.IsVerdict(name) || rules.IsExtension(name) || t.s.extensions[name] {
		return t.errorf(m, ErrBadName, name, "", "%s is a target of iptables: a chain of that name would change what -j %s means; choose another name", name, name)
	}
	return nil
}

// checkNotForeign refuses what belongs to somebody else. Without any prefix every chain
// that is not built in may be written.
func (t *Txn) checkNotForeign(m Message, name string) *Error {
	if rules.IsBuiltin(t.s.cfg.Table.Name, name) {
		return t.errorf(m, ErrNotOurs, name, "", "chain %s is built in and is not ours: insert rules instead", name)
	}
	if c := t.get(name); c.exists() && c.content == Foreign && len(t.s.cfg.Prefixes) > 0 {
		return t.errorf(m, ErrNotOurs, name, "", "chain %s exists and is not ours", name)
	}
	return nil
}

func (t *Txn) checkOwner(m Message, name string) *Error {
	if c := t.get(name); c != nil && c.owned && c.owner != m.Owner {
		return t.errorf(m, ErrOwned, name, "", "owner %q holds the chain; it must delete it or hand it over first", c.owner)
	}
	return nil
}

// checkRules refuses what no batch could make right: a zero rule, a jump to a built-in chain.
func (t *Txn) checkRules(m Message, name string, rs []rules.Rule) *Error {
	for _, r := range rs {
		if err := t.checkRule(m, name, r); err != nil {
			return err
		}
	}
	return nil
}

func (t *Txn) checkRule(m Message, name string, r rules.Rule) *Error {
	if r.IsZero() {
		return t.errorf(m, ErrInvalid, name, "", "an empty rule")
	}
	if target := r.Target(); rules.IsBuiltin(t.s.cfg.Table.Name, target) {
		return t.errorf(m, ErrUnknownTarget, name, r.String(), "chain %s is built in: nothing can jump to it", target)
	}
	if t.s.sound[r.String()] {
		return nil
	}
	if err := rules.CheckRule(t.s.cfg.Table, r); err != nil {
		var re *rules.RuleError
		e := t.errorf(m, ErrInvalid, name, r.String(), "%v", err)
		if errors.As(err, &re) {
			e.Reason, e.Column, e.Advice = re.Reason, re.Column, re.Advice
		}
		return e
	}
	// A message is checked in each round of planning its batch.
	t.s.sound[r.String()] = true
	return nil
}
