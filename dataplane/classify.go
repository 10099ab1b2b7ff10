// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The forms in which the tools name a line, on either backend. Texts that a rule's author
// chose (a comment, a chain's name) may stand in the same output, so each form is tied to
// the start of its line.
var (
	programPrefix = regexp.MustCompile(`^\S*ip(?:6?|\[6\])tables\S*( v[0-9.]+)?( \([a-z_]+\))?:? ?`)
	lineOccurred  = regexp.MustCompile(`(?m)^Error occurred at line: (\d+)$`)
	lineFailed    = regexp.MustCompile(`(?m)^\S*ip6?tables\S*: line (\d+) failed(?:: (.*))?$`)
	lineKernel    = regexp.MustCompile(`(?m)^line (\d+): (\S+ failed \(.*\): .*)$`)
	linePolicy    = regexp.MustCompile("(?m)^\\S*ip6?tables\\S* v[^:]*: (Can't set policy `.*' on `.*' line (\\d+): .*)$")
	lineExpected  = regexp.MustCompile(`(?m)COMMIT expected at line \d+$`)
	tableUnknown  = regexp.MustCompile(`(?m)unable to initialize table '(.*)'|line \d+ table name '(.*)' invalid|^Table .(.*)' does not exist`)
)

// maxReason bounds a reason. A word of a rule, which may stand in one, has up to 1,023 bytes.
const maxReason = 2048

// noFamily is what is said where IPv6 is absent, and, in an error of a line, of a rule.
const noFamily = "Address family not supported by protocol"

// lockHeld is the reason where nobody can be named.
const lockHeld = "the xtables lock is held by another program"

// Exact texts that say what an environment lacks or is short of, in the order in which they
// are looked for.
var environment = []struct {
	text   string
	class  Class
	reason string // "" keeps the tool's words
}{
	{"can't open lock file", Unavailable, ""},
	{"Can't lock ", Busy, lockHeld},
	{"holding the xtables lock", Busy, lockHeld},
	{"Permission denied (you must be root)", Unavailable, "no permission: CAP_NET_ADMIN is missing"},
	{"Failed to initialize nft", Unavailable, ""},
	{"Cannot initialize: ", Unavailable, ""},
	{noFamily, Unavailable, ""},
	{"failed (Operation not permitted)", Unavailable, ""},
	{"Message too long", TooLarge, ""},
	// While a block is sent that is a shortage which passes. Behind that, what the kernel has to
	// say of one block's rules is more than the tool's socket holds, which in a user namespace
	// cannot be made larger: the same block fails so each time.
	{"sendmsg() failed: No buffer space available", Busy, ""},
	{"No buffer space available", TooLarge, ""},
	{"calloc failed", Busy, ""},
	{"Cannot allocate memory", Busy, ""},
	{"Resource temporarily unavailable", Busy, ""},
}

// Apart tells whether all Lines are at fault. If it returns false only the first is, and of
// a loop not even that one need be.
//
// nf_tables refuses a rule at once, and goes on to the next; or, for a loop, for too many
// chains in a row, for where it is reached from, when it has looked at the whole table, which
// it then does again after each rule of the block, and names every one after which the table
// is bad: the first that made it so, and all that follow. So lines that have others between
// them, which add rules and are not named, were refused at once.
func (e *RestoreError) Apart() bool {
	return len(e.Lines) > 0 && !strings.Contains(e.Lines[0].Reason, "("+errLinks+")") &&
		!slices.ContainsFunc(e.Lines, func(l LineError) bool { return l.Follows })
}

// maxSaid is how many bytes nft says of what the kernel refused, behind the line with its
// own name. What is longer is cut there.
const maxSaid = 1023

// Classify turns a tool's exit code and standard error into an error; it returns nil for
// exit code 0. The input is what the tool was given. A negative exit code, or one above
// 128, means that the tool was killed by a signal.
//
// This is the one place where words of the tools are interpreted, for both backends and
// both IP versions.
func Classify(exitCode int, stderr string, input []byte) *RestoreError {
	return classify(exitCode, stderr, input, 0)
}

// classify is Classify for a tool that had been given so many lines before this input, and
// counts them.
func classify(exitCode int, stderr string, input []byte, before int) *RestoreError {
	if exitCode == 0 {
		return nil
	}
	e := &RestoreError{ExitCode: exitCode, Stderr: stderr, Class: RejectedSomewhere}
	if exitCode < 0 || exitCode > 128 {
		e.Class, e.Reason = Unknown, firstWords(stderr)
		if e.Reason == "" {
			e.Reason = "the tool was killed"
		}
		return e
	}
	if classifyEnvironment(e) {
		return e
	}
	named := namedLines(e)
	if e.Reason == "" {
		e.Reason = firstWords(stderr)
	}
	lines := bytes.SplitAfter(input, []byte("\n"))
	for i := range named {
		named[i].Line -= before
		if named[i].Reason == "" {
			named[i].Reason = e.Reason
		}
		if !named[i].find(lines) {
			named = named[:i]
			break
		}
	}
	if len(named) > 0 {
		e.Class, e.Line, e.Text = Rejected, named[0].Line, named[0].Text
		follow(named, lines)
		e.Lines = named
	}
	return e
}

// find looks up the text of a line. It fails where the line can be nobody's fault.
func (l *LineError) find(lines [][]byte) bool {
	// Behind the last newline there is no line.
	if l.Line < 1 || l.Line > len(lines) || len(lines[l.Line-1]) == 0 || slices.ContainsFunc(lines[:l.Line], tooLong) {
		return false
	}
	l.Text = strings.TrimRight(string(lines[l.Line-1]), "\r\n")
	// What the kernel refuses, and what nft finds at the end, is put down to the COMMIT line.
	return strings.TrimSpace(l.Text) != "COMMIT" || strings.HasPrefix(l.Reason, "Bad argument")
}

// follow marks the lines that follow each other.
func follow(named []LineError, lines [][]byte) {
	for i := range named[1:] {
		from, to := named[i].Line, named[i+1].Line-1
		named[i+1].Follows = from > to || !slices.ContainsFunc(lines[from:to], addsRule)
	}
}

// addsRule tells whether a line adds a rule: after each of those nf_tables looks at the table.
func addsRule(line []byte) bool {
	if len(line) > 0 && line[0] == '[' {
		_, line, _ = bytes.Cut(line, []byte("] "))
	}
	return len(line) > 1 && line[0] == '-' && strings.IndexByte("AIR-", line[1]) >= 0
}

// tooLong tells whether the tools read a line as two, and count two. Their buffer has
// 10,240 bytes.
func tooLong(line []byte) bool { return len(line) > 10239 }

// classifyEnvironment recognises what is nobody's fault in the input. Only exit codes and
// lines that a rule cannot forge count: a rule's own words stand in back quotes or after
// an option's name, on lines that F1 errors begin.
func classifyEnvironment(e *RestoreError) bool {
	if m := tableUnknown.FindStringSubmatch(e.Stderr); m != nil && !lineKernel.MatchString(e.Stderr) {
		e.Class, e.Reason = Unavailable, "table "+m[1]+m[2]+m[3]+" is not available"
		return true
	}
	// Exit code 2 is the parser's: the words around the line are about the rule.
	if e.ExitCode == 2 {
		return false
	}
	for _, v := range environment {
		i := strings.Index(e.Stderr, v.text)
		if i < 0 || v.text == noFamily && lineKernel.MatchString(e.Stderr) {
			continue
		}
		e.Class, e.Reason = v.class, v.reason
		if e.Reason == "" {
			begin := strings.LastIndexByte(e.Stderr[:i], '\n') + 1
			e.Reason = firstWords(e.Stderr[begin:])
		}
		if e.Class == Unavailable && strings.Contains(e.Stderr[i:], "Permission denied") {
			e.Err = os.ErrPermission
		}
		return true
	}
	return false
}

// namedLines returns the lines that the tool blames, none if it blames none, and sets the
// reason.
func namedLines(e *RestoreError) []LineError {
	if e.ExitCode == 4 {
		if named := kernelLines(e.Stderr); named != nil {
			e.Reason = named[0].Reason
			return named
		}
	}
	if m := lineOccurred.FindStringSubmatch(e.Stderr); m != nil {
		return []LineError{{Line: atoi(m[1])}}
	}
	if m := linePolicy.FindStringSubmatch(e.Stderr); m != nil {
		e.Reason = m[1]
		return []LineError{{Line: atoi(m[2])}}
	}
	if lineExpected.MatchString(e.Stderr) {
		return nil
	}
	if m := lineFailed.FindStringSubmatch(e.Stderr); m != nil {
		e.Reason = strings.TrimSuffix(m[2], ".")
		if e.Reason == "" {
			e.Reason = "line " + m[1] + " failed"
		}
		return []LineError{{Line: atoi(m[1])}}
	}
	return nil
}

// kernelLines returns the lines that nft names for the kernel, each once: a line can stand
// for several rules. The last may be cut in the middle, and is then left out.
func kernelLines(stderr string) []LineError {
	found := lineKernel.FindAllStringSubmatchIndex(stderr, -1)
	var named []LineError
	for i, m := range found {
		if i > 0 && m[1]-found[0][0] >= maxSaid {
			break
		}
		line := atoi(stderr[m[2]:m[3]])
		if len(named) == 0 || named[len(named)-1].Line != line {
			named = append(named, LineError{Line: line, Reason: stderr[m[4]:m[5]]})
		}
	}
	return named
}

// firstWords returns the first line with anything to say, without the program's name and
// without what merely accompanies an error.
func firstWords(stderr string) string {
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "Warning:") || strings.HasPrefix(line, "# Warning:") ||
			strings.HasPrefix(line, "Error occurred at line:") || strings.HasPrefix(line, "Try `") {
			continue
		}
		for range 2 {
			line = programPrefix.ReplaceAllString(line, "")
		}
		if line = strings.TrimSpace(line); line != "" {
			return strings.ToValidUTF8(line[:min(len(line), maxReason)], "\uFFFD")
		}
	}
	return ""
}

// ownReason is what a refusal says of a rule, wherever the rule stood: without the number of
// a line, which is all that a legacy tool says when the kernel refuses, and without the
// chain, which is the last that nft says.
func ownReason(e *RestoreError) string {
	if m := lineFailed.FindStringSubmatch(e.Stderr); m != nil && m[2] == "" {
		return untold
	}
	reason, _, _ := strings.Cut(e.Reason, ": rule in chain ")
	return reason
}

// untold is the reason where a legacy tool gives none.
const untold = "the kernel refuses it and the tool does not say why"

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
