// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// Message is one wish of one owner for one table. It is a unit: all of it is applied, or none.
type Message struct {
	ID       string // names the message in answers, plans and errors
	Owner    string // who speaks; may be empty, which is an owner like any other
	Priority int    // place of the owner's rules in kernel chains: lower is nearer to the top
	Body     Body
}

// Body is what a message asks for: one of the types of this file.
type Body interface {
	// Kind is the word for the body in logs and output: "rewrite", "delete", ...
	Kind() string
	// clone returns a body that shares no memory which the caller could still change.
	clone() Body
}

// Clone returns a message that shares no memory with m, so that a caller who changes a
// slice after sending it changes nothing here.
func (m Message) Clone() Message {
	if m.Body != nil {
		m.Body = m.Body.clone()
	}
	return m
}

// Size is about how many bytes of restore input the message asks for.
func (m Message) Size() int {
	n := 0
	switch b := m.Body.(type) {
	case RewriteChains:
		for _, c := range b.Chains {
			n += len(c.Name)
			for _, r := range c.Rules {
				n += len(c.Name) + len(r.String()) + 5
			}
		}
	case EditRules:
		for _, e := range b.Edits {
			n += len(b.Chain) + len(e.Rule.String()) + 5
		}
	case OverrideStub:
		for _, r := range b.Rules {
			n += len(b.Chain) + len(r.String()) + 5
		}
	}
	return n + 32
}

// RewriteChains makes each chain hold exactly the rules given. Chains that are not named
// are not touched.
type RewriteChains struct{ Chains []rules.Chain }

// DeleteChains takes the content of chains away. A chain that a rule of ours still reaches
// becomes a stub, one that only a stranger's rule reaches is condemned, any other goes.
// A chain that is not there is no error.
type DeleteChains struct{ Chains []string }

// HandOver gives chains of the sender to another owner, content and all: from then on only
// that owner may write or delete them.
type HandOver struct {
	Chains []string
	To     string
}

// Op is what one Edit does with its rule.
type Op uint8

// The edits of kernel chains. A rule that is listed again in the same way keeps its place
// among the owner's rules; listed in another way it moves.
const (
	InsertTop    Op = iota + 1 // at the end of the owner's top list
	InsertFirst                // at the head of the owner's top list
	InsertBottom               // at the end of the owner's bottom list
	// InsertNear puts the rule below all top lists. It is no drift when somebody puts other
	// rules above it: of two programs that want to be first the one that says this gives way.
	InsertNear
	// InsertBefore keeps the rule right above its Anchor, and InsertAfter right below. While
	// there is no anchor the rule stays where it is, or, where it is not in the chain yet, comes
	// to the top as by InsertNear, or to the bottom as by InsertBottom: then the order is the one
	// wished wherever the anchor appears between. The refresh that sees the anchor moves the
	// rule, in one block.
	InsertBefore
	InsertAfter
	Remove // the owner lists the rule no more; without a lister every copy goes, once
	Ban    // as Remove, and the rule is kept out from now on
)

// Edit is one change of an owner's lists.
type Edit struct {
	Op     Op
	Rule   rules.Rule
	Anchor Anchor // of InsertBefore and InsertAfter only
}

// EditRules changes the owner's lists of one kernel chain, a chain that is not ours.
type EditRules struct {
	Chain string
	Edits []Edit
	// NoStub rejects the message where a rule that it inserts would need a stub: a rule of
	// a kernel chain with a stub behind it drops traffic for want of a chain nobody sent.
	NoStub bool
}

// InsertRule returns the body that lists rule at the top (InsertTop, InsertFirst), near it
// (InsertNear) or at the bottom (InsertBottom) of a kernel chain.
func InsertRule(chain string, rule rules.Rule, at Op) EditRules {
	return EditRules{Chain: chain, Edits: []Edit{{Op: at, Rule: rule}}}
}

// InsertRuleBefore returns the body that keeps rule right above an anchor of a kernel chain.
// Rules of several owners at one anchor stand by priority and owner, those of one owner in the
// order in which they were listed.
func InsertRuleBefore(chain string, rule rules.Rule, anchor Anchor) EditRules {
	return EditRules{Chain: chain, Edits: []Edit{{Op: InsertBefore, Rule: rule, Anchor: anchor}}}
}

// InsertRuleAfter is InsertRuleBefore for the place right below the anchor.
func InsertRuleAfter(chain string, rule rules.Rule, anchor Anchor) EditRules {
	return EditRules{Chain: chain, Edits: []Edit{{Op: InsertAfter, Rule: rule, Anchor: anchor}}}
}

// RemoveRule returns the body that withdraws rule; with keepOut it is banned as well.
func RemoveRule(chain string, rule rules.Rule, keepOut bool) EditRules {
	op := Remove
	if keepOut {
		op = Ban
	}
	return EditRules{Chain: chain, Edits: []Edit{{Op: op, Rule: rule}}}
}

// SetPolicy sets the policy of a built-in chain: ACCEPT or DROP. "-" releases it: the
// policy stays as it is and is no longer held.
type SetPolicy struct{ Chain, Policy string }

// OverrideStub sets what a stub of Chain holds instead of the stub's rule, or with Remove
// takes the override away. It acts at once where the chain is a stub now.
type OverrideStub struct {
	Chain  string
	Rules  []rules.Rule
	Remove bool
}

// Refresh repairs what differs from the wishes, as far as Snapshot shows it. A nil Snapshot
// means what State.Observe was last given.
type Refresh struct{ Snapshot *rules.Snapshot }

// EndGrace ends the grace of the table: what ours needs and nobody wrote becomes a stub.
type EndGrace struct{}

// InSync says that the owner has sent all that it wants. When every declared owner has,
// grace ends.
type InSync struct{}

// Cleanup deletes the orphans that an earlier read had already shown. Snapshot as in Refresh.
type Cleanup struct{ Snapshot *rules.Snapshot }

// Kind implements Body.
func (RewriteChains) Kind() string { return "rewrite" }

// Kind implements Body.
func (DeleteChains) Kind() string { return "delete" }

// Kind implements Body.
func (HandOver) Kind() string { return "handover" }

// Kind implements Body: "remove" when nothing is inserted, else "insert".
func (e EditRules) Kind() string {
	for _, edit := range e.Edits {
		if edit.Op != Remove && edit.Op != Ban {
			return "insert"
		}
	}
	return "remove"
}

// Kind implements Body.
func (SetPolicy) Kind() string { return "policy" }

// Kind implements Body.
func (OverrideStub) Kind() string { return "stub" }

// Kind implements Body.
func (Refresh) Kind() string { return "refresh" }

// Kind implements Body.
func (EndGrace) Kind() string { return "endgrace" }

// Kind implements Body.
func (InSync) Kind() string { return "insync" }

// Kind implements Body.
func (Cleanup) Kind() string { return "cleanup" }

func (b RewriteChains) clone() Body {
	chains := slices.Clone(b.Chains)
	for i := range chains {
		chains[i].Rules = slices.Clone(chains[i].Rules)
	}
	return RewriteChains{Chains: chains}
}

func (b DeleteChains) clone() Body { return DeleteChains{Chains: slices.Clone(b.Chains)} }

func (b HandOver) clone() Body { return HandOver{Chains: slices.Clone(b.Chains), To: b.To} }

func (e EditRules) clone() Body {
	e.Edits = slices.Clone(e.Edits)
	return e
}

func (b SetPolicy) clone() Body { return b }

func (b OverrideStub) clone() Body {
	b.Rules = slices.Clone(b.Rules)
	return b
}

func (b Refresh) clone() Body  { return b }
func (b EndGrace) clone() Body { return b }
func (b InSync) clone() Body   { return b }
func (b Cleanup) clone() Body  { return b }

// key names one thing that a message writes; the last writer of a batch wins it.
type key struct {
	kind  byte // 'c' chain, 'r' rule of a kernel chain, 'p' policy, 'o' override, 'h' owner
	chain string
	owner string
	rule  string
}

// eachKey calls f for each thing that m writes. Messages that write nothing themselves
// (Refresh, EndGrace, ...) have none and so are never superseded.
func (m Message) eachKey(f func(key)) {
	switch b := m.Body.(type) {
	case RewriteChains:
		for _, c := range b.Chains {
			f(key{kind: 'c', chain: c.Name})
		}
	case DeleteChains:
		for _, name := range b.Chains {
			f(key{kind: 'c', chain: name})
		}
	case HandOver:
		for _, name := range b.Chains {
			f(key{kind: 'h', chain: name})
		}
	case EditRules:
		for _, e := range b.Edits {
			f(key{kind: 'r', chain: b.Chain, owner: m.Owner, rule: e.Rule.String()})
		}
	case SetPolicy:
		f(key{kind: 'p', chain: b.Chain})
	case OverrideStub:
		f(key{kind: 'o', chain: b.Chain})
	}
}

// EachChain calls f with each chain that m writes or changes, perhaps several times with one.
func (m Message) EachChain(f func(name string)) { m.eachKey(func(k key) { f(k.chain) }) }
