// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"fmt"

	"github.com/tableward/tableward/rules"
)

// Result is the final answer to a message.
type Result uint8

// The results.
const (
	// Applied: the kernel holds the message's effect.
	Applied Result = iota + 1
	// Superseded: later messages of the same batch, themselves in the kernel, write all that
	// it writes.
	Superseded
	// Rejected: its own fault; Err says which chain and rule, and why.
	Rejected
	// Conflict: it fails only together with other messages, which Err names.
	Conflict
	// Unavailable: the environment is absent (tool, table, IPv6, permission), or the runtime
	// stopped before the message was in the kernel.
	Unavailable
)

// String returns the word used in output.
func (r Result) String() string {
	words := [...]string{"none", "applied", "superseded", "rejected", "conflict", "unavailable"}
	if int(r) < len(words) {
		return words[r]
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}

// Answer is the one answer that each accepted message gets.
type Answer struct {
	ID     string
	Owner  string
	Table  rules.TableID
	Kind   string // of the message: "rewrite", "delete", "insert", "remove", ...
	Result Result
	Err    error // nil when Applied or Superseded; else a *transaction.Error, or wraps ErrStopped or the dataplane's error
}

var (
	// ErrPending: the wait for an answer ended before the answer came. It is no answer: the
	// message stays, and is applied when it can be.
	ErrPending = errors.New("no answer yet; the message stays")
	// ErrStopped: the runtime has stopped, or is stopping.
	ErrStopped = errors.New("the runtime has stopped")
	// ErrBusy: as many messages wait for the table as Options.MaxPending allows.
	ErrBusy = errors.New("too many messages wait for the table")
	// ErrNotStarted: Start has not been called.
	ErrNotStarted = errors.New("the runtime has not been started")
)
