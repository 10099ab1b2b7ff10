// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tableward/tableward/rules"
)

// The reasons for which a message is refused before the kernel sees it; Error wraps one.
var (
	// ErrNotOurs: the chain exists and belongs to somebody else.
	ErrNotOurs = errors.New("not ours")
	// ErrOwned: another owner holds the chain, the rule or the policy.
	ErrOwned = errors.New("owned by another owner")
	// ErrBadName: no chain can have that name.
	ErrBadName = errors.New("bad chain name")
	// ErrUnknownTarget: the target is neither a verdict, an extension, nor a chain that can be.
	ErrUnknownTarget = errors.New("unknown target")
	// ErrLoop: the jumps would go in a circle.
	ErrLoop = errors.New("loop")
	// ErrDepth: the chains would be nested deeper than the kernel allows.
	ErrDepth = errors.New("nested too deeply")
	// ErrBanned: a rule is both listed by one owner and kept out by another.
	ErrBanned = errors.New("banned")
	// ErrInvalid: the message itself makes no sense.
	ErrInvalid = errors.New("invalid message")
	// ErrDependency: another message of the same owner, which this one needs, was refused.
	ErrDependency = errors.New("depends on a refused message")
)

// Error says why a message is refused: which message, chain and rule, and what to do.
type Error struct {
	Table  rules.TableID
	ID     string // of the message
	Owner  string
	Chain  string
	Rule   string // the offending rule, without its chain; may be empty
	Column int    // in Rule, from 1, in bytes; 0 when no place can be named
	Reason string // a sentence for people
	Advice string // what to do about it, a sentence; may be empty
	Hook   string // the built-in chain from which the rule is not allowed; may be empty
	// Command shows the refusal again, in a network namespace of its own; see Reproduce. It may
	// be empty.
	Command string
	With    []string // ids of the other messages of a conflict, in order
	Err     error    // one of the reasons above, or what the dataplane said

	early bool // judged by Apply, so that a later refusal may change it
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s: message %q", e.Table, e.ID)
	if e.Owner != "" {
		fmt.Fprintf(&b, " of %s", e.Owner)
	}
	if e.Chain != "" {
		fmt.Fprintf(&b, ": chain %s", e.Chain)
	}
	if e.Rule != "" {
		fmt.Fprintf(&b, ": rule %q", e.Rule)
	}
	fmt.Fprintf(&b, ": %s", e.Reason)
	if e.Advice != "" {
		fmt.Fprintf(&b, "; %s", e.Advice)
	}
	return b.String()
}

// Unwrap returns the reason, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// errorf makes an Error about a chain of message m.
func (t *Txn) errorf(m Message, err error, chain, rule, format string, args ...any) *Error {
	e := &Error{
		Table: t.s.cfg.Table, ID: m.ID, Owner: m.Owner, Chain: chain, Rule: rule,
		Reason: fmt.Sprintf(format, args...), Err: err,
	}
	switch err {
	case ErrLoop, ErrDepth, ErrUnknownTarget, ErrDependency:
		e.Column = targetColumn(rule)
	}
	return e
}

// targetColumn is where a rule's target stands, 0 without one.
func targetColumn(text string) int {
	r, err := rules.ParseRule(text)
	if err != nil || r.Target() == "" {
		return 0
	}
	words, _ := rules.SplitWords(text)
	for i := len(words) - 1; i >= 0; i-- {
		if words[i].Text == r.Target() {
			return words[i].Column
		}
	}
	return 0
}
