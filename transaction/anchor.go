// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tableward/tableward/rules"
)

// ErrAnchor means that the anchor of an edit is none, cannot be, or is the edit's own rule.
var ErrAnchor = errors.New("bad anchor")

// AnchorKind says how an Anchor names a rule.
type AnchorKind uint8

// The kinds of anchors.
const (
	AnchorJump    AnchorKind = iota + 1 // the first rule of the chain that jumps or goes to the chain Name
	AnchorComment                       // the first rule of the chain with a comment that is Name, to the byte
)

// Anchor names a rule of a kernel chain, whosever it is, by which others are placed. It is
// looked for at each write and refresh, so that those others follow where it goes.
type Anchor struct {
	Kind AnchorKind
	Name string
}

// JumpTo is the anchor of the first rule that jumps or goes to a chain.
func JumpTo(chain string) Anchor { return Anchor{AnchorJump, chain} }

// Commented is the anchor of the first rule with a comment: "-m comment --comment TEXT".
func Commented(text string) Anchor { return Anchor{AnchorComment, text} }

// String says it in words.
func (a Anchor) String() string {
	switch a.Kind {
	case AnchorJump:
		return "the first rule that jumps to chain " + a.Name
	case AnchorComment:
		return "the first rule with the comment " + strconv.Quote(a.Name)
	}
	return fmt.Sprintf("anchor of unknown kind %d, %q", a.Kind, a.Name)
}

// MissingAnchor is a rule whose anchor is not there, so that it stands where it can: see
// InsertBefore and InsertAfter.
type MissingAnchor struct {
	Chain string
	Owner string
	Edit  // Op is InsertBefore or InsertAfter
}

// String says it in words.
func (m MissingAnchor) String() string {
	side := "before"
	if m.Op == InsertAfter {
		side = "after"
	}
	return fmt.Sprintf("chain %s: rule %q of owner %q is to stand %s %s, and there is none", m.Chain, m.Rule, m.Owner, side, m.Anchor)
}

// MissingAnchors returns the rules of kernel chains whose anchors are not there, as far as is
// known, by chain, then in the order in which the rules stand. A rule whose anchor is only to
// be had from a circle (two rules each of which is the other's anchor) is among them.
func (s *State) MissingAnchors() []MissingAnchor {
	t := s.Begin()
	var out []MissingAnchor
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		c := s.chains[name]
		if c.content != Foreign || c.blind || !c.anchors() {
			continue
		}
		w := t.listed(c)
		_, lost := t.settle(c, w)
		for i, a := range w.anchored {
			if lost[i] {
				out = append(out, MissingAnchor{name, a.owner, a.Edit})
			}
		}
	}
	return out
}

// anchors tells whether rules of a kernel chain are placed by anchors.
func (c *chain) anchors() bool {
	for _, l := range c.lists {
		for _, e := range l.placed {
			if e.Op != InsertNear {
				return true
			}
		}
	}
	return false
}

// rules returns all that an owner lists, bans not among them.
func (l *ownerList) rules() []rules.Rule {
	out := slices.Concat(l.top, l.bottom)
	for _, e := range l.placed {
		out = append(out, e.Rule)
	}
	return out
}

// byOrder returns the owners of a kernel chain's lists by (priority, owner).
func (c *chain) byOrder() []string {
	return slices.SortedFunc(maps.Keys(c.lists), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.lists[a].priority, c.lists[b].priority), cmp.Compare(a, b))
	})
}

// matches tells whether a rule is what an anchor names.
func (t *Txn) matches(r rules.Rule, a Anchor) bool {
	if a.Kind == AnchorJump {
		return t.s.jump(r) == a.Name
	}
	return hasComment(r, a.Name)
}

// hasComment tells whether one of a rule's comments is text.
func hasComment(r rules.Rule, text string) bool {
	const option = "--comment"
	if !strings.Contains(r.String(), option) {
		return false // most rules have none, and are spared the splitting
	}
	words, _ := rules.SplitWords(r.String())
	for i, w := range words {
		if w.Text == option+"="+text || w.Text == text && i > 0 && words[i-1].Text == option {
			return true
		}
	}
	return false
}

// checkAnchor judges what an edit is placed by.
func (t *Txn) checkAnchor(m Message, chain string, e Edit) *Error {
	bad := func(advice, format string, args ...any) *Error {
		err := t.errorf(m, ErrAnchor, chain, e.Rule.String(), format, args...)
		err.Advice = advice
		return err
	}
	a := e.Anchor
	switch {
	case e.Op != InsertBefore && e.Op != InsertAfter:
		if a != (Anchor{}) {
			return bad("take the anchor away, or insert before or after it", "an anchor is given, but the rule is not inserted before or after one")
		}
		return nil
	case a == Anchor{}:
		return bad("give the chain that its rule jumps to, or its comment", "no anchor is given: before or after which rule?")
	case a.Kind != AnchorJump && a.Kind != AnchorComment:
		return bad("an anchor is a jump to a chain or a comment", "unknown kind of anchor %d", a.Kind)
	case a.Name == "":
		return bad("give the chain that its rule jumps to, or its comment", "the anchor has an empty name")
	}
	if reason := t.cannotBe(a); reason != "" {
		return bad("", "no rule can be the anchor: %s", reason)
	}
	if t.matches(e.Rule, a) {
		return bad("give another anchor, such as a comment that this rule does not have",
			"the rule is its own anchor: it is itself %s", strings.Replace(a.String(), "the first", "a", 1))
	}
	return nil
}

// cannotBe says why no rule of the table can be an anchor; "" if one can.
func (t *Txn) cannotBe(a Anchor) string {
	if a.Kind == AnchorComment {
		text := string(rules.AppendWord([]byte("-m comment --comment "), a.Name))
		r, err := rules.ParseRule(text)
		if err == nil {
			err = rules.CheckRule(t.s.cfg.Table, r)
		}
		var syntax *rules.SyntaxError
		var rule *rules.RuleError
		switch {
		case errors.As(err, &syntax):
			return fmt.Sprintf("comment %q: %s", a.Name, syntax.Reason)
		case errors.As(err, &rule):
			return fmt.Sprintf("comment %q: %s", a.Name, rule.Reason)
		}
		return ""
	}
	switch err := rules.CheckChainName(a.Name); {
	case err != nil:
		return err.Error()
	case rules.IsBuiltin(t.s.cfg.Table.Name, a.Name):
		return fmt.Sprintf("chain %s is built in, and nothing can jump to it", a.Name)
	case rules.IsVerdict(a.Name) || rules.IsExtension(a.Name) || t.s.extensions[a.Name]:
		return fmt.Sprintf("%s is a target of iptables and no chain", a.Name)
	}
	return ""
}
