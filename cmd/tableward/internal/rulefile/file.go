// SPDX-License-Identifier: Apache-2.0

// Package rulefile turns rules files, in the syntax of iptables-save, into messages.
//
// A file says what its owner wants, not what is to be done: a declared chain is rewritten as
// a whole, every other chain is a kernel chain into which rules are inserted. What restore
// input could say beyond that (flush, replace by index, rename, zero) is refused, since it
// depends on what the table holds at the time. A rule of a kernel chain may have a comment
// above it that names the rule of others by which it stands, such as
//
//	# place: before chain DOCKER-USER
//	-A FORWARD -j web
//
// or "after", or a comment's text instead of a chain (# place: after comment "the gate"), or
// just "near": near the top, with no need to be first. To iptables-restore it is a comment.
//
// A file is refused as a whole, with the first
// place that is wrong; a message that cannot be carried out is judged later, by itself.
package rulefile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Options are what the command line says about all files.
type Options struct {
	// Owner is the owner of all files; "" takes it from each file's name.
	Owner string
	// IPv6 makes tables IPv6 where the file does not say; names that end in ".v6.rules" do.
	IPv6 bool
	// Policies makes messages of policies; without it they are noted and ignored.
	Policies bool
	// StubMissing lets a rule of a kernel chain jump to a chain that nobody declares.
	StubMissing bool
	// Priority is the place of the owner's rules in kernel chains.
	Priority int
	// Label stands for the file in the ids of its messages; "" is the base name.
	Label string
}

// File is a file that was not refused.
type File struct {
	Name     string // as given
	Owner    string
	Messages []Message // in file order
	Declared []Declaration
	Hooks    []Hook
	Findings []Finding
	// PoliciesIgnored tells that the file says policies, which Options leave out.
	PoliciesIgnored bool
}

// Message is a message and the lines that it came from.
type Message struct {
	Table rules.TableID
	transaction.Message
	Head  rules.Line   // the declaration, or the first line
	Rules []rules.Line // those with a rule, in file order
}

// Declaration is a chain that the file declares.
type Declaration struct {
	Table rules.TableID
	Line  rules.Line
}

// Hook is a rule of a kernel chain that jumps to a chain which the file does not declare.
type Hook struct {
	Table  rules.TableID
	Target string
	Line   rules.Line
	Column int // of the target, in the line
}

// Finding is something odd that is no reason to refuse the file.
type Finding struct {
	Line   rules.Line
	Column int
	Reason string
}

// Error is why a file is refused. Its Err has Line 0 when the file could not be read at all.
type Error struct {
	File string // as given
	Err  *rules.SyntaxError
}

// Error returns the place and the reason, the line, and a caret under the column.
func (e *Error) Error() string { return Locate(e.File, e.Err) }

// Unwrap returns the place in the file.
func (e *Error) Unwrap() error { return e.Err }

// Unreadable is the refusal of a file that could not be read.
func Unreadable(name string, err error) *Error {
	return &Error{File: name, Err: &rules.SyntaxError{Reason: err.Error()}}
}

// Locate writes a place in a file as compilers do, "web.rules:3:5: reason", and below it the
// line with a caret.
func Locate(file string, e *rules.SyntaxError) string {
	if e.Line == 0 {
		return file + ": " + e.Reason
	}
	bare := *e
	bare.Reason = ""
	_, picture, _ := strings.Cut(bare.Error(), "\n")
	return fmt.Sprintf("%s:%d:%d: %s\n%s", file, e.Line, e.Column, e.Reason, picture)
}

// OwnerOf returns the owner that a file's name stands for: the base name up to its first dot.
func OwnerOf(name string) string {
	owner, _, _ := strings.Cut(filepath.Base(name), ".")
	return owner
}

// isV6 tells whether a file's name says that its tables are IPv6.
func isV6(name string) bool { return strings.HasSuffix(name, ".v6.rules") }
