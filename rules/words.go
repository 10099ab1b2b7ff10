// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// The limits of iptables-restore 1.8.9: a word over 1,023 bytes ends it ("Parameter too
// long!"); a line is cut where a buffer of 10,240 bytes ends, and what follows counts as the
// next line. Ours is lower, so that a rule of the longest line still fits with another chain.
const (
	maxWord  = 1023
	maxWords = 255
	maxLine  = 10_000
)

// Word is one word of a line as iptables-restore reads it.
type Word struct {
	Text   string
	Column int // from 1, in bytes; of the opening quote where the word begins with one
}

// SplitWords splits a line as iptables-restore does (add_param_to_argv, 1.8.9): blanks and
// TABs separate, a double quote opens a quoted part in which a backslash makes the next byte
// literal, and the closing quote ends the word, so that `"a"b` is two words and `a"b c"` is
// the one word "ab c". Outside of quotes a backslash and a single quote are plain.
//
// The error is a *SyntaxError of line 1: open quote, control character other than TAB, text
// that is not UTF-8, over 255 words, a word over 1,023 bytes, a line over 10,000 bytes.
func SplitWords(line string) ([]Word, error) {
	if err := checkLine(line); err != nil {
		return nil, err
	}
	words, err := appendWords(nil, line, 0)
	if err != nil {
		return nil, err
	}
	return words, nil
}

// checkLine refuses bytes that may not stand in any line.
func checkLine(line string) *SyntaxError {
	if len(line) > maxLine {
		return &SyntaxError{1, maxLine + 1, line, "line over 10,000 bytes"}
	}
	for i := 0; i < len(line); {
		c := line[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' || c == 0x7F {
				return &SyntaxError{1, i + 1, line, controlReason(c)}
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(line[i:])
		if r == utf8.RuneError && size == 1 {
			return &SyntaxError{1, i + 1, line, fmt.Sprintf("byte 0x%02x is not UTF-8", c)}
		}
		i += size
	}
	return nil
}

func controlReason(c byte) string {
	switch c {
	case 0:
		return "NUL byte"
	case '\n':
		return "newline: a rule is one line"
	case '\r':
		return "carriage return inside a line"
	}
	return fmt.Sprintf("control character 0x%02x", c)
}

// appendWords appends the words of line from byte offset from on. The line has passed
// checkLine.
func appendWords(dst []Word, line string, from int) ([]Word, *SyntaxError) {
	for i := from; i < len(line); {
		if isBlank(line[i]) {
			i++
			continue
		}
		text, end := wordAt(line, i)
		if end < 0 {
			return dst, &SyntaxError{1, i + strings.IndexByte(line[i:], '"') + 1, line, "quote does not close"}
		}
		if len(text) > maxWord {
			return dst, &SyntaxError{1, i + 1, line, fmt.Sprintf("word of %d bytes: at most 1,023", len(text))}
		}
		if len(dst) == maxWords {
			return dst, &SyntaxError{1, i + 1, line, "more than 255 words"}
		}
		dst = append(dst, Word{text, i + 1})
		i = end
	}
	return dst, nil
}

// wordAt returns the word that begins at i and the offset behind it, -1 for an open quote.
func wordAt(line string, i int) (string, int) {
	j := i
	for j < len(line) && !isBlank(line[j]) && line[j] != '"' {
		j++
	}
	if j == len(line) || line[j] != '"' {
		return line[i:j], j
	}
	quoted, end := quotedAt(line, j+1)
	if j > i {
		quoted = line[i:j] + quoted
	}
	return quoted, end
}

// quotedAt returns the quoted part that begins at i, behind its quote, and the offset behind
// the closing quote, -1 without one.
func quotedAt(line string, i int) (string, int) {
	stop := strings.IndexAny(line[i:], `"\`)
	if stop < 0 {
		return "", -1
	}
	if line[i+stop] == '"' {
		return line[i : i+stop], i + stop + 1
	}
	var b strings.Builder
	for ; i < len(line); i++ {
		switch line[i] {
		case '"':
			return b.String(), i + 1
		case '\\':
			i++
			if i == len(line) {
				return "", -1
			}
		}
		b.WriteByte(line[i])
	}
	return "", -1
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// AppendWord appends word so that SplitWords reads it back, quoted only where needed: when
// it is empty or has a blank, a TAB or a double quote. A backslash alone needs none, because
// it is literal outside of quotes.
func AppendWord(dst []byte, word string) []byte {
	if word != "" && !strings.ContainsAny(word, " \t\"") {
		return append(dst, word...)
	}
	dst = append(dst, '"')
	for i := 0; i < len(word); i++ {
		if word[i] == '"' || word[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, word[i])
	}
	return append(dst, '"')
}
