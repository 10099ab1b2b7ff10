// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// scan walks the words of a rule as getopt would and learns what it needs of them.
//
// getopt knows which options take a value, from modules that this package does not load. So
// the walk keeps the set of positions that a word may have, and judges a word as an option
// whenever it may be one. Taking a value for an option refuses too much; taking an option for
// a value would let a command through.
type scan struct {
	line  string
	words []Word

	target string
	isGoto bool
	sets   []string

	match     string // the latest -m
	policy    bool   // -m policy was seen
	clusterIP bool   // -j CLUSTERIP was seen

	// lenient goes on after a problem: text of the kernel is there, right or wrong.
	lenient bool
}

// run returns the first problem.
func (s *scan) run() *SyntaxError {
	next := option{next: inOption}
	if !s.lenient && isIndex(s.words[0].Text) {
		return s.fail(s.words[0].Column, "a rule cannot begin with %q: -I and -D would take it for an index", s.words[0].Text)
	}
	for i := 0; i < len(s.words); i++ {
		var err *SyntaxError
		next, err = s.step(i, next)
		if err != nil && !s.lenient {
			return err
		}
	}
	if next.next == inValue && (next.kind == kindJump || next.kind == kindGoto) && !s.lenient {
		last := s.words[len(s.words)-1]
		return s.fail(last.Column, "%q without a target", last.Text)
	}
	return nil
}

// isIndex tells whether the tool could read a word as a number, as strtoul does.
func isIndex(word string) bool {
	digits := strings.TrimLeft(word, " \t+")
	return digits != "" && digits[0] >= '0' && digits[0] <= '9'
}

// step judges word i behind the option before, and returns what it is to the word after it.
func (s *scan) step(i int, before option) (option, *SyntaxError) {
	word := s.words[i]
	optionLike := len(word.Text) > 1 && word.Text[0] == '-'
	if before.next&inValue != 0 && !(optionLike && before.next == inBoth) {
		// Before 1.8 the "!" might stand between an option and its value.
		if word.Text == "!" && before.kind != kindJump && before.kind != kindGoto {
			if before.kind == kindName && (i+1 == len(s.words) || strings.HasPrefix(s.words[i+1].Text, "-")) {
				return option{next: inOption}, s.printed(word, kindName)
			}
			return option{before.kind, inBoth}, nil
		}
		return option{next: inOption}, s.value(i, before.kind)
	}
	if !optionLike {
		return option{next: inOption}, nil
	}
	o, err := s.option(i)
	if before.next == inBoth {
		o.next |= inOption
		if err == nil {
			err = s.printed(word, before.kind)
		}
	}
	return o, err
}

// option judges word i as an option.
func (s *scan) option(i int) (option, *SyntaxError) {
	word := s.words[i]
	if word.Text[1] != '-' {
		return s.cluster(i)
	}
	if word.Text == "--" {
		return option{next: inOption}, s.fail(word.Column, `"--" ends the options: the rest would not be read as a rule`)
	}
	name, value, assigned := strings.Cut(word.Text[2:], "=")
	o := longOption(name)
	if o.kind == kindForbidden || o.kind == kindPolicy && !s.policy || o.kind == kindNew && !s.clusterIP {
		return option{next: inOption}, s.forbidden(i, word.Text, forbiddenLetter(name))
	}
	if assigned {
		return s.attached(i, o, len(word.Text)-len(value), len("="))
	}
	return o, nil
}

// cluster walks a word of short options letter by letter.
func (s *scan) cluster(i int) (option, *SyntaxError) {
	word := s.words[i]
	for at := 1; at < len(word.Text); at++ {
		letter := word.Text[at]
		if strings.IndexByte(forbiddenLetters, letter) >= 0 {
			return option{next: inOption}, s.forbidden(i, "-"+string(letter), letter)
		}
		o, known := shortOptions[letter]
		switch {
		case !known:
			// Where -p names a protocol the tool does not end here: it loads the protocol's
			// match and goes on, with this word's next letter but one word back.
			r, _ := utf8.DecodeRuneInString(word.Text[at:])
			return option{next: inBoth}, s.fail(word.Column, "unknown option %q", "-"+string(r))
		case o.next == inValue && at+1 < len(word.Text):
			return s.attached(i, o, at+1, 0)
		case o.next == inValue:
			return o, nil
		}
	}
	return option{next: inOption}, nil
}

// attached takes the value that begins at offset at of word i, behind a separator of sep
// bytes. A jump is cut in two words: iptables 1.8.9 takes "-jX" as a whole for the target's
// name, earlier versions take X. So is a goto: as one word it might be the value of an option
// that we do not know, and no goto at all.
func (s *scan) attached(i int, o option, at, sep int) (option, *SyntaxError) {
	word := s.words[i]
	value := Word{word.Text[at:], word.Column + at}
	if o.kind == kindName && strings.HasPrefix(value.Text, "-") {
		return o, s.fail(value.Column, "name %q begins like an option", value.Text) // it is printed apart
	}
	if o.kind != kindJump && o.kind != kindGoto {
		return option{next: inOption}, s.take(value, o.kind)
	}
	s.words[i].Text = word.Text[:at-sep]
	s.words = slices.Insert(s.words, i+1, value)
	return o, nil
}

// value takes word i as the value of an option.
func (s *scan) value(i int, k kind) *SyntaxError {
	if k == kindText {
		return s.singleQuotes(i)
	}
	return s.take(s.words[i], k)
}

func (s *scan) take(value Word, k kind) *SyntaxError {
	switch k {
	case kindMatch:
		s.match = value.Text
		s.policy = s.policy || value.Text == "policy"
	case kindJump, kindGoto:
		return s.setTarget(value, k == kindGoto)
	case kindName, kindString:
		return s.printed(value, k)
	case kindSet:
		return s.addSet(value)
	case kindOldSet:
		if s.match == "set" {
			return s.addSet(value)
		}
	}
	return nil
}

func (s *scan) setTarget(value Word, isGoto bool) *SyntaxError {
	if s.target != "" {
		return s.fail(value.Column, "a second target %q: the rule has %q", value.Text, s.target)
	}
	if value.Text == "" {
		return s.fail(value.Column, "an empty target")
	}
	s.clusterIP = value.Text == "CLUSTERIP"
	s.target, s.isGoto = value.Text, isGoto
	if !isGoto && (IsVerdict(value.Text) || IsExtension(value.Text)) {
		return nil
	}
	if err := CheckChainName(value.Text); err != nil {
		return s.fail(value.Column, "target: %v", err)
	}
	return nil
}

// maxSetName is IPSET_MAXNAMELEN less its NUL.
const maxSetName = 31

func (s *scan) addSet(value Word) *SyntaxError {
	switch name := value.Text; {
	case name == "":
		return s.fail(value.Column, "an empty set name")
	case len(name) > maxSetName:
		return s.fail(value.Column, "set name %q has %d bytes: at most %d", name, len(name), maxSetName)
	case name == "!":
		return s.printed(value, kindSet)
	case strings.ContainsAny(name, " \t\""):
		return s.fail(value.Column, "set name %q has a blank or a double quote: iptables prints it without quotes", name)
	}
	if !slices.Contains(s.sets, value.Text) {
		s.sets = append(s.sets, value.Text)
	}
	return nil
}

// printed refuses a value that iptables-save prints so that it reads back as more words, or
// hides the rules behind it.
func (s *scan) printed(value Word, k kind) *SyntaxError {
	switch k {
	case kindName, kindSet:
		if value.Text == "!" {
			return s.fail(value.Column, "a name %q: it reads back as a negation", value.Text)
		}
		if strings.ContainsAny(value.Text, " \t\"") {
			return s.fail(value.Column, "name %q has a blank or a double quote: iptables prints it without quotes", value.Text)
		}
	case kindString:
		if strings.Contains(value.Text, `\"`) {
			return s.fail(value.Column, "a backslash before a double quote: iptables prints it as an open quote")
		}
	}
	return nil
}

// singleQuotes refuses text that was quoted for a shell. Its words would be a bad argument
// for the tool, whose message does not say why.
func (s *scan) singleQuotes(i int) *SyntaxError {
	word := s.words[i]
	if !strings.HasPrefix(word.Text, "'") || len(word.Text) > 1 && strings.HasSuffix(word.Text, "'") {
		return nil
	}
	for _, later := range s.words[i+1:] {
		if strings.HasPrefix(later.Text, "--") {
			return nil
		}
		if strings.HasSuffix(later.Text, "'") {
			return s.fail(word.Column, "single quotes do not quote in iptables-restore: use double quotes")
		}
	}
	return nil
}

// forbidden is the refusal of an option by what it would do.
func (s *scan) forbidden(i int, written string, letter byte) *SyntaxError {
	reason := "is an option of the tool, not of a rule"
	switch {
	case strings.IndexByte(commandLetters, letter) >= 0 && i == 0:
		return s.fail(s.words[i].Column, "a rule is written without its chain: it cannot begin with %q", written)
	case strings.IndexByte(commandLetters, letter) >= 0:
		return s.fail(s.words[i].Column, "hidden command %q: a rule may only hold matches and a target", written)
	case letter == 'h' || letter == 'V':
		reason = "makes iptables-restore exit with 0 and apply nothing"
	case letter == '4' || letter == '6':
		reason = "makes the tool of the other IP version skip the rule and report success"
	case letter == 'M':
		reason = "makes the tool run a program"
	case letter == 't':
		reason = "names a table: a rule cannot choose its table"
	}
	return s.fail(s.words[i].Column, "%q %s", written, reason)
}

func (s *scan) fail(column int, format string, args ...any) *SyntaxError {
	return &SyntaxError{1, column, s.line, fmt.Sprintf(format, args...)}
}
