// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"fmt"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Log is a message log.
type Log struct {
	Header  Header
	Entries []Entry // in the order of the file, which is that of time
}

// Header is the first line of a log.
type Header struct {
	About    string // one sentence for people
	Backend  dataplane.Backend
	Prefixes []string
	Owners   []string // those whose InSync messages end grace
	Grace    bool
	Seed     []Seed // what the kernel holds before anything happens
	Sets     []Set  // the ipsets that exist
}

// Seed is restore input of one IP version.
type Seed struct {
	IPVersion rules.IPVersion
	Restore   string

	line, column int
}

// Set names an ipset.
type Set struct {
	IPVersion rules.IPVersion
	Name      string
}

// Entry is one line of a log: a message, or something that happens to the kernel.
type Entry struct {
	At      time.Duration
	Message *Message
	Kernel  *Kernel

	line, column int
}

// Message is a message for a table. An InSync message is for all tables, and has none.
type Message struct {
	Table rules.TableID
	transaction.Message
	// Refused is set when the rules of the message are no rules, so that it has no body.
	Refused *transaction.Error
}

// Kernel is what somebody else does to the kernel, or what fails in it. One field is set.
type Kernel struct {
	IPVersion rules.IPVersion
	Table     string // of Holds and Fail
	Restore   string // restore input that somebody else applies
	Holds     string // save text that somebody else makes the table hold
	Fail      *Fault
	AddSets   []Set
	DropSets  []Set
}

// Fault makes operations fail.
type Fault struct {
	On     string // "modify", "delete", "read" or "any"
	Times  int
	Exit   int
	Stderr string
	Hang   bool   // no answer within the deadline
	Killed bool   // ended by a signal
	Spawn  string // the errno with which the tool did not even start: "ENOMEM", "ENOENT", ...
}

// Error says where a log is wrong.
type Error struct {
	Line   int // from 1
	Column int // from 1, in bytes
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}
