// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitWords(t *testing.T) {
	for _, test := range []struct {
		line string
		want []Word
	}{
		{``, nil},
		{" \t ", nil},
		{`a b`, []Word{{"a", 1}, {"b", 3}}},
		{"  a\t\tb  ", []Word{{"a", 3}, {"b", 6}}},
		{`"a"b`, []Word{{"a", 1}, {"b", 4}}},
		{`"a""b"`, []Word{{"a", 1}, {"b", 4}}},
		{`a"b c"`, []Word{{"ab c", 1}}},
		{`a"b c"d`, []Word{{"ab c", 1}, {"d", 7}}},
		{`""`, []Word{{"", 1}}},
		{`a ""  b`, []Word{{"a", 1}, {"", 3}, {"b", 7}}},
		{`a""b`, []Word{{"a", 1}, {"b", 4}}},
		{`a\ b`, []Word{{`a\`, 1}, {"b", 4}}},
		{`'a b'`, []Word{{"'a", 1}, {"b'", 4}}},
		{`"a\"b"`, []Word{{`a"b`, 1}}},
		{`"a\\b"`, []Word{{`a\b`, 1}}},
		{`"it\'s"`, []Word{{"it's", 1}}},
		{`"\a"`, []Word{{"a", 1}}},
		{`x"a\"b"c`, []Word{{`xa"b`, 1}, {"c", 8}}},
		{"\"a\tb\"", []Word{{"a\tb", 1}}},
		{`né "東 京"`, []Word{{"né", 1}, {"東 京", 5}}},
		{strings.Repeat("w", 1023), []Word{{strings.Repeat("w", 1023), 1}}},
	} {
		got, err := SplitWords(test.line)
		if err != nil {
			t.Errorf("%q: %v", test.line, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q: -want +got\n%s", test.line, diff)
		}
	}
}

func TestSplitWordsRefuses(t *testing.T) {
	words := strings.Repeat("w ", 255)
	for _, test := range []struct {
		line   string
		column int
		reason string
	}{
		{`a "b`, 3, "quote does not close"},
		{`a b"c`, 4, "quote does not close"},
		{`a "b\"`, 3, "quote does not close"},
		{`"a" "b\`, 5, "quote does not close"},
		{"a\x00b", 2, "NUL byte"},
		{"a\nb", 2, "newline: a rule is one line"},
		{"a\rb", 2, "carriage return inside a line"},
		{"a \x1b[0m", 3, "control character 0x1b"},
		{"\"a\x7f\"", 3, "control character 0x7f"},
		{"n\xe9 b", 2, "byte 0xe9 is not UTF-8"},
		{"a " + strings.Repeat("w", 1024), 3, "word of 1024 bytes: at most 1,023"},
		{words + "last", 511, "more than 255 words"},
		{strings.Repeat(strings.Repeat("w", 999)+" ", 10) + "x", 10001, "line over 10,000 bytes"},
	} {
		_, err := SplitWords(test.line)
		want := &SyntaxError{1, test.column, test.line, test.reason}
		var got *SyntaxError
		if !errors.As(err, &got) {
			t.Errorf("%.40q: error %v", test.line, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40q: -want +got\n%s", test.line, diff)
		}
	}
	if _, err := SplitWords(words); err != nil {
		t.Errorf("255 words: %v", err)
	}
}

func TestAppendWord(t *testing.T) {
	for word, want := range map[string]string{
		"":       `""`,
		"a":      `a`,
		"a b":    `"a b"`,
		"a\tb":   "\"a\tb\"",
		`a"b`:    `"a\"b"`,
		`a\b`:    `a\b`,
		`a\ b`:   `"a\\ b"`,
		`it's`:   `it's`,
		`[x] #!`: `"[x] #!"`,
		"né":     "né",
	} {
		got := string(AppendWord([]byte("x "), word))
		if got != "x "+want {
			t.Errorf("%q: got %s, want x %s", word, got, want)
		}
	}
}

func TestSyntaxErrorPicture(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, test := range []struct {
		err  SyntaxError
		want string
	}{
		{SyntaxError{3, 4, "-A x", "bad"}, "line 3, column 4: bad\n-A x\n   ^"},
		{SyntaxError{1, 5, "-A x", "end"}, "line 1, column 5: end\n-A x\n    ^"},
		{SyntaxError{1, 1, "", "empty"}, "line 1, column 1: empty\n\n^"},
		{SyntaxError{1, 4, "\té\x00x", "nul"}, "line 1, column 4: nul\n\té\\x00x\n\t ^"},
		{SyntaxError{1, 5, "\x1bé\xffx", "x"}, "line 1, column 5: x\n\\x1bé\\xffx\n         ^"},
		{SyntaxError{2, 201, long, "mid"}, "line 2, column 201: mid\n..." + strings.Repeat("é", 50) +
			"...\n   " + strings.Repeat(" ", 30) + "^"},
		{SyntaxError{0, 0, "a", "zero"}, "line 0, column 0: zero\na\n^"},
	} {
		if diff := cmp.Diff(test.want, test.err.Error()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}
