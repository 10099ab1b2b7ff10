// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// SyntaxError says where text is wrong and why. It prints the line with a caret.
type SyntaxError struct {
	Line   int    // from 1; for a single rule 1
	Column int    // from 1, in bytes
	Text   string // the line
	Reason string
}

// Error returns three lines: the place and the reason, the line, and a caret under the
// column. Control characters and bytes that are not UTF-8 are shown escaped; of a long line
// only the surroundings of the column are shown.
func (e *SyntaxError) Error() string {
	line, caret := e.picture()
	return fmt.Sprintf("line %d, column %d: %s\n%s\n%s^", e.Line, e.Column, e.Reason, line, caret)
}

// Picture returns the line and a caret below the column, each line behind indent and with its
// line feed; without a Column the line alone. It is shown as Error shows it.
func (e *SyntaxError) Picture(indent string) string {
	line, caret := e.picture()
	if e.Column < 1 {
		return indent + line + "\n"
	}
	return indent + line + "\n" + indent + caret + "^\n"
}

// The part of a long line that is shown, in bytes before and after the column.
const (
	shownBefore = 60
	shownAfter  = 40
)

// picture returns the line as shown and the space before the caret. A TAB stays a TAB in
// both, because only the terminal knows its width.
func (e *SyntaxError) picture() (line, caret string) {
	var shown, pad strings.Builder
	at := min(max(e.Column-1, 0), len(e.Text))
	begin, end := 0, len(e.Text)
	if len(e.Text) > shownBefore+shownAfter {
		begin, end = max(at-shownBefore, 0), min(at+shownAfter, len(e.Text))
	}
	for begin > 0 && !utf8.RuneStart(e.Text[begin]) {
		begin--
	}
	if begin > 0 {
		shown.WriteString("...")
		pad.WriteString("   ")
	}
	for i := begin; i < end; {
		r, size := utf8.DecodeRuneInString(e.Text[i:])
		cell := showRune(r, e.Text[i:i+size])
		shown.WriteString(cell)
		if i < at {
			pad.WriteString(padFor(cell))
		}
		i += size
	}
	if end < len(e.Text) {
		shown.WriteString("...")
	}
	return shown.String(), pad.String()
}

// showRune returns r as it may be sent to a terminal.
func showRune(r rune, raw string) string {
	if r != '\t' && (unicode.IsControl(r) || r == utf8.RuneError && len(raw) == 1) {
		quoted := strconv.Quote(raw)
		return quoted[1 : len(quoted)-1]
	}
	return raw
}

func padFor(cell string) string {
	if cell == "\t" {
		return cell
	}
	return strings.Repeat(" ", utf8.RuneCountInString(cell))
}

// escaped returns text with control characters and bytes that are not UTF-8 written as in a
// Go string, everything else as it is.
func escaped(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		b.WriteString(showRune(r, text[i:i+size]))
		i += size
	}
	return b.String()
}
