// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"strconv"
	"strings"
)

// simVersion is the release of the tools that the simulator imitates.
const simVersion = "v1.8.9"

const (
	maxChainName = 28
	maxWord      = 1023
	// maxWords is how many words a line may have; the tools count their name, -t and the
	// table's name as well, to 254.
	maxWords = 251
)

// toolError is what a tool leaves behind when it fails.
type toolError struct {
	exit   int
	stderr string
}

// wordError is what is wrong with the words of a line, before the line's number is known.
type wordError struct {
	text string
	bare bool // the tools print it without their name
}

// programMark stands for the tool's name in a wordError.
const programMark = "\x00"

var natDrop = &wordError{text: "\nThe \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited.\n\n"}

func unknownOption(w string) *wordError { return &wordError{text: "unknown option \"" + w + "\""} }
func badArgument(w string) *wordError {
	return &wordError{text: "Bad argument `" + w + "'", bare: true}
}
func needsArgument(w string) *wordError {
	return &wordError{text: "option \"" + w + "\" requires an argument"}
}

// program returns the name under which the tool speaks.
func (r *simRun) program() string {
	if r.sim.backend == Legacy {
		return toolFamily(r.v) + "-restore"
	}
	return toolFamily(r.v) + "-nft-restore"
}

func (r *simRun) version() string {
	if r.sim.backend == Legacy {
		return simVersion + " (legacy)"
	}
	return simVersion + " (nf_tables)"
}

// parse is the form of an error found while reading the current line.
func (r *simRun) parse(text string) *toolError { return r.bad(&wordError{text: text}) }

func (r *simRun) bad(e *wordError) *toolError {
	p := r.program()
	text := strings.ReplaceAll(e.text, programMark, p)
	if !e.bare {
		text = p + " " + r.version() + ": " + text
	}
	return &toolError{2, text + "\nError occurred at line: " + itoa(r.line) +
		"\nTry `" + p + " -h' or '" + p + " --help' for more information.\n"}
}

// failed is the form of an error found while executing a line.
func (r *simRun) failed(line int, reason string) *toolError {
	text := "line " + itoa(line) + " failed"
	if reason != "" && r.sim.backend == NFT {
		text += ": " + reason + "."
	}
	return r.plain(1, text)
}

func (r *simRun) plain(exit int, text string) *toolError {
	return &toolError{exit, r.program() + ": " + text + "\n"}
}

// field cuts the next word off text, as strtok with blanks does.
func field(text *[]byte) []byte {
	s := *text
	for len(s) > 0 && isBlank(s[0]) {
		s = s[1:]
	}
	n := 0
	for n < len(s) && !isBlank(s[n]) {
		n++
	}
	*text = s[n:]
	return s[:n]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// skipCounters cuts "[packets:bytes]" off the front of a line.
func skipCounters(text []byte) ([]byte, bool) {
	end := bytes.IndexByte(text, ']')
	if end < 0 || bytes.IndexByte(text[:end], ':') < 0 {
		return nil, false
	}
	return text[end+1:], true
}

// splitWords takes a line apart as the tools do: only double quotes, a backslash escapes
// within them, the closing quote ends a word, and an open quote swallows the rest of the
// line with its end. It appends to dst.
func splitWords(dst []string, line string) ([]string, *wordError) {
	for i := 0; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		word, n := cutWord(line[i:])
		i += n
		if len(word) > maxWord {
			return dst, &wordError{text: "Parameter too long!"}
		}
		dst = append(dst, word)
	}
	return dst, nil
}

// cutWord returns the word at the front of s, and how many bytes it takes up. Most words
// have no quotes and need no copy.
func cutWord(s string) (string, int) {
	for i := range len(s) {
		switch {
		case isBlank(s[i]):
			return s[:i], i
		case s[i] == '"':
			return cutQuoted(s, i)
		}
	}
	return s, len(s)
}

// cutQuoted is cutWord where the first quote is at byte i.
func cutQuoted(s string, i int) (string, int) {
	word := append(make([]byte, 0, len(s)), s[:i]...)
	for i++; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return string(word), i + 1
		case s[i] == '\\' && i+1 < len(s):
			i++
			word = append(word, s[i])
		case s[i] != '\\':
			word = append(word, s[i])
		}
	}
	return string(append(word, '\n')), len(s)
}

func itoa(n int) string { return strconv.Itoa(n) }
