// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Why a saved rule cannot be sent again, beside the errors of ParseRule.
var (
	errUnsupported = errors.New("the tool that read the rule does not know this revision of its extension")
	errNotUTF8     = errors.New("the rule is not UTF-8")
	errNewline     = errors.New("the rule holds a newline")
	errWarning     = errors.New("a warning of the tool was printed into the rule")
	errNoText      = errors.New("the rule matches everything and does nothing: it has no text")
)

// savedRule judges the text of one saved rule, and returns the chain that it jumps to: for
// damaged rules as good as can be told.
func savedRule(text string) (SavedRule, string) {
	err := savedError(text)
	if err == nil {
		var rule Rule
		if rule, err = ParseRule(text); err == nil {
			return SavedRule{Text: rule.text, Rule: rule}, rule.Jump()
		}
	}
	return SavedRule{Text: escaped(text), Err: err}, savedJump(text)
}

func savedError(text string) error {
	switch {
	case text == "":
		return errNoText
	case !utf8.ValidString(text):
		return errNotUTF8
	case strings.Contains(text, "tables-legacy tables present, use "):
		return errWarning
	case strings.Contains(text, "\n"):
		return errNewline
	case unsupportedRevision(text):
		return errUnsupported
	}
	return nil
}

// unsupportedRevision looks for "[unsupported revision]" outside of quotes.
func unsupportedRevision(text string) bool {
	const mark = "[unsupported revision]"
	var words savedWords
	for {
		before, after, found := strings.Cut(text, mark)
		if !found {
			return false
		}
		if words.feed(before); !words.quoted {
			return true
		}
		words.feed(mark)
		text = after
	}
}

// savedJump finds the chain after -j or -g in text that ParseRule refuses.
func savedJump(text string) string {
	words := savedWords{keep: true}
	words.feed(text)
	words.end()
	s := scan{line: text, words: words.words, lenient: true}
	_ = s.run() // lenient: the kernel holds the rule, right or wrong
	return Rule{target: s.target, isGoto: s.isGoto}.Jump()
}

// savedWords splits what iptables-save prints, which is not what iptables-restore reads:
// names of chains, interfaces and sets are printed as they are, so that a quote inside of a
// word or in one of these names opens nothing.
type savedWords struct {
	quoted  bool // inside of quotes
	escape  bool // behind a backslash inside of quotes
	inWord  bool
	rawNext bool // the word after -j and the like is a name

	word  []byte
	keep  bool
	words []Word
}

// feed reads on.
func (s *savedWords) feed(text string) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case s.escape:
			s.escape = false
			s.word = append(s.word, c)
		case s.quoted && c == '\\':
			s.escape = true
		case s.quoted && c == '"':
			s.quoted = false
			s.inWord = true
			s.end()
		case s.quoted:
			s.word = append(s.word, c)
		case isBlank(c) || c == '\n':
			s.end()
		case c == '"' && !s.inWord && !s.rawNext:
			s.quoted = true
		default:
			s.inWord = true
			s.word = append(s.word, c)
		}
	}
}

// end ends the word at hand, if there is one.
func (s *savedWords) end() {
	if !s.inWord {
		return
	}
	s.inWord = false
	s.rawNext = printsName(string(s.word))
	if s.keep {
		s.words = append(s.words, Word{Text: string(s.word)})
	}
	s.word = s.word[:0]
}

// printsName tells whether iptables-save prints a name without quotes behind an option.
func printsName(option string) bool {
	switch option {
	case "-j", "-g", "-i", "-o", "--match-set", "--add-set", "--del-set", "--map-set":
		return true
	}
	return false
}
