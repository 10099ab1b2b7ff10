// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"strings"
)

// Class says what a failed operation means for its caller: whose fault it is, and whether
// it makes sense to try again.
type Class uint8

// The classes. The zero Class is none of them.
const (
	// Rejected: the input was refused, and the line named is at fault.
	Rejected Class = iota + 1
	// RejectedSomewhere: the input was refused, and no line can be trusted. A legacy tool
	// names the COMMIT line for whatever the kernel refuses.
	RejectedSomewhere
	// Busy: passing trouble: a held lock, a spawn that failed for want of memory.
	Busy
	// TooLarge: this environment cannot take as much in one block.
	TooLarge
	// Unavailable: something is absent: a tool, a table, IPv6, a namespace, or a permission,
	// which is an os.ErrPermission.
	Unavailable
	// Unknown: killed, crashed, or out of time. Whether the input was applied is not known:
	// read before the next plan.
	Unknown
)

var classNames = [...]string{
	Rejected: "rejected", RejectedSomewhere: "rejected-somewhere", Busy: "busy",
	TooLarge: "too-large", Unavailable: "unavailable", Unknown: "unknown",
}

// String returns the class as it stands in logs and transcripts: "rejected-somewhere".
func (c Class) String() string {
	if int(c) < len(classNames) && classNames[c] != "" {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// RestoreError is the error of every operation of this package: what the tool said, and
// what that means.
type RestoreError struct {
	Class    Class
	Line     int    // line of the input, from 1; 0 when no line can be trusted
	Text     string // that line of the input
	ExitCode int
	Stderr   string // as the tool wrote it
	Reason   string // the tool's own words on one line, without the program's name
	// Lines are all that the tool named, in order; the first is Line. Only nft names several,
	// of what the kernel refuses, and no more than fit into 1 KiB. See Apart.
	Lines []LineError
	Err   error // the cause below, where there is one
	// CountersLost tells that the tool was killed while it may have been replacing a legacy
	// table: rule counters of the whole table may be zero now, foreign ones included.
	CountersLost bool
}

// LineError is what a tool said of one line of its input.
type LineError struct {
	Line   int    // from 1
	Text   string // of the input
	Reason string // the tool's own words
	// Follows tells that no rule of the input stands between this line and the one named
	// before it.
	Follows bool
}

// Error returns the class, the line and the reason.
func (e *RestoreError) Error() string {
	var b strings.Builder
	b.WriteString(e.Class.String())
	if e.Line > 0 {
		fmt.Fprintf(&b, " at line %d", e.Line)
	}
	if e.Reason != "" {
		b.WriteString(": ")
		b.WriteString(e.Reason)
	} else if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Text != "" {
		fmt.Fprintf(&b, " (%s)", e.Text)
	}
	return b.String()
}

// Unwrap returns the cause below.
func (e *RestoreError) Unwrap() error { return e.Err }

// asRestoreError gives err the form that operations promise; what it does not know stays
// undecided.
func asRestoreError(err error) error {
	var re *RestoreError
	if err == nil || errors.As(err, &re) {
		return err
	}
	return &RestoreError{Class: Unknown, ExitCode: -1, Reason: err.Error(), Err: err}
}
