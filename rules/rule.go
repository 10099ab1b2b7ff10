// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"sync"
)

// Rule is one validated rule without its chain. The zero Rule has no text. Rules are equal
// if their String is.
type Rule struct {
	text   string
	target string
	isGoto bool
	sets   []string
}

// The limits of a rule: what restore input adds to it must still fit into a line.
// iptables-restore 1.8.9 reads 251 words of a line (measured: MAX_ARGC is 255, of which it
// needs four), and "-I chain 1" takes three.
const (
	maxRuleText  = maxLine - 40
	maxRuleWords = 248
)

// ParseRule tokenises and validates a rule written without its chain, as "-s 10.0.0.0/8 -j
// DROP". The result's String is canonical: ParseRule of it gives the same Rule.
//
// The error is a *SyntaxError of line 1. Refused is what SplitWords refuses, an empty rule,
// a rule with a chain ("-A INPUT ..."), a word that iptables-restore could take for a command
// or for an option that makes it do something else, a second target, a target or ipset whose
// name cannot be one, an unknown short option, a number as the first word, a name that save
// could not print so that it reads back, over 248 words or 9,960 bytes. Whether matches and values are right is
// not judged.
func ParseRule(text string) (Rule, error) {
	if err := checkLine(text); err != nil {
		return Rule{}, err
	}
	buf := wordBuffers.Get().(*[]Word)
	words, err := appendWords((*buf)[:0], text, 0)
	defer func() {
		clear(words)
		*buf = words[:0]
		wordBuffers.Put(buf)
	}()
	if err != nil {
		return Rule{}, err
	}
	rule, err := ruleOf(text, words)
	if err != nil {
		return Rule{}, err
	}
	return rule, nil
}

// wordBuffers saves an allocation of about a kilobyte for each rule.
var wordBuffers = sync.Pool{New: func() any { return new([]Word) }}

// MustParseRule is ParseRule for rules known at compile time; it panics on an error.
func MustParseRule(text string) Rule {
	rule, err := ParseRule(text)
	if err != nil {
		panic(fmt.Sprintf("rules: %q: %v", text, err))
	}
	return rule
}

// ruleOf validates the words of a rule that stands in a line.
func ruleOf(line string, words []Word) (Rule, *SyntaxError) {
	if len(words) == 0 {
		return Rule{}, &SyntaxError{1, 1, line, "an empty rule"}
	}
	s := scan{line: line, words: words}
	if err := s.run(); err != nil {
		return Rule{}, err
	}
	words = s.words
	if len(words) > maxRuleWords {
		return Rule{}, &SyntaxError{1, words[maxRuleWords].Column, line,
			fmt.Sprintf("more than %d words: iptables-restore reads 251 of a line", maxRuleWords)}
	}
	var buf [512]byte
	canonical := appendJoined(buf[:0], words)
	if len(canonical) > maxRuleText {
		return Rule{}, &SyntaxError{1, words[0].Column, line,
			fmt.Sprintf("rule of %d bytes: at most 9,960", len(canonical))}
	}
	rule := Rule{target: s.target, isGoto: s.isGoto, sets: s.sets}
	// Text that is canonical already is kept, which saves a copy for each rule.
	if written := line[words[0].Column-1:]; len(written) >= len(canonical) &&
		written[:len(canonical)] == string(canonical) {
		rule.text = written[:len(canonical)]
	} else {
		rule.text = string(canonical)
	}
	return rule, nil
}

func appendJoined(dst []byte, words []Word) []byte {
	for i, w := range words {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = AppendWord(dst, w.Text)
	}
	return dst
}

// String returns the canonical text: words joined by one blank, quoted where needed.
func (r Rule) String() string { return r.text }

// Target returns the word after -j or -g, "" without one.
func (r Rule) Target() string { return r.target }

// IsGoto tells whether the target was given with -g, and so is always a chain.
func (r Rule) IsGoto() bool { return r.isGoto }

// Jump returns the chain that the rule jumps or goes to; "" when its target is a verdict,
// an extension, or absent. After -g the target is a chain whatever its name.
func (r Rule) Jump() string {
	if !r.isGoto && (IsVerdict(r.target) || IsExtension(r.target)) {
		return ""
	}
	return r.target
}

// Sets returns the ipsets that the rule names, in order, each once. The slice must not be
// changed.
func (r Rule) Sets() []string { return r.sets }

// IsZero tells whether r is the zero Rule.
func (r Rule) IsZero() bool { return r.text == "" }

// Chain is a chain's wanted content.
type Chain struct {
	Name  string
	Rules []Rule
}
