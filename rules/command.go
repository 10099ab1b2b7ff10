// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"strconv"
	"strings"
)

// commandLine reads "[packets:bytes] -A chain rule" and the other commands.
func (p *restoreParser) commandLine(begin int) *SyntaxError {
	if p.block == nil {
		return p.fail(begin+1, "a command outside of a table")
	}
	if p.line[begin] == '[' {
		end := strings.IndexByte(p.line[begin:], ']') + 1
		if !isCounters(p.line[begin : begin+end]) {
			return p.fail(begin+1, "unknown kind of line: counters are [packets:bytes]")
		}
		begin += end
	}
	words, err := appendWords(p.words[:0], p.line, begin)
	p.words = words
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return p.fail(begin+1, "counters without a command")
	}
	letter, err := p.command(words[0])
	if err != nil {
		return err
	}
	return p.arguments(letter, words)
}

// command returns the letter of the command that a word is.
func (p *restoreParser) command(w Word) (byte, *SyntaxError) {
	if len(w.Text) < 2 || w.Text[0] != '-' {
		return 0, p.fail(w.Column, "unknown kind of line: a command is expected")
	}
	letter := w.Text[1]
	if letter == '-' {
		var ambiguous bool
		letter, ambiguous = longCommand(w.Text[2:])
		if ambiguous {
			return 0, p.fail(w.Column, "command %q is ambiguous", w.Text)
		}
	}
	isCommand := strings.IndexByte(commandLetters, letter) >= 0
	switch {
	case strings.IndexByte("CLS", letter) >= 0:
		return 0, p.fail(w.Column, "command %q changes nothing", w.Text)
	case !isCommand:
		return 0, p.fail(w.Column, "unknown kind of line: %q is no command", w.Text)
	case w.Text[1] != '-' && len(w.Text) > 2:
		return 0, p.fail(w.Column, "unknown command %q: a blank belongs after -%c", w.Text, letter)
	}
	return letter, nil
}

// longCommand returns the letter of a long option, which getopt takes by any unambiguous
// prefix; 0 for none and for those that a rule may have.
func longCommand(name string) (letter byte, ambiguous bool) {
	candidates := 0
	for _, f := range forbiddenOptions {
		if f.name == name {
			return f.letter, false
		}
		if strings.HasPrefix(f.name, name) {
			letter = f.letter
			candidates++
		}
	}
	if candidates > 0 {
		for core := range coreOptions {
			if strings.HasPrefix(core, name) {
				candidates++
			}
		}
	}
	return letter, candidates > 1
}

// arguments reads what follows a command.
func (p *restoreParser) arguments(letter byte, words []Word) *SyntaxError {
	switch letter {
	case 'A', 'I', 'D', 'R':
		return p.ruleCommand(letter, words)
	case 'F':
		return p.chainCommand(Flush, words, 0, 1)
	case 'X':
		return p.chainCommand(DeleteChain, words, 0, 1)
	case 'Z':
		return p.chainCommand(Zero, words, 0, 1)
	case 'N':
		return p.chainCommand(NewChain, words, 1, 1)
	case 'P':
		return p.chainCommand(Policy, words, 2, 2)
	default:
		return p.chainCommand(Rename, words, 2, 2)
	}
}

// chainCommand reads a command without a rule, with least to most arguments: the chain, and
// a policy or a name.
func (p *restoreParser) chainCommand(c Command, words []Word, least, most int) *SyntaxError {
	args := words[1:]
	if len(args) < least {
		return p.fail(len(p.line)+1, "%s needs %d argument(s)", words[0].Text, least)
	}
	if len(args) > most {
		return p.fail(args[most].Column, "unexpected word after %s", words[0].Text)
	}
	l := Line{Command: c}
	if len(args) > 0 {
		l.Chain, l.Column = args[0].Text, args[0].Column
		if err := CheckChainName(l.Chain); err != nil {
			return p.fail(l.Column, "%v", err)
		}
	}
	switch c {
	case Policy:
		l.Policy = args[1].Text
	case Rename:
		l.NewName = args[1].Text
		if err := CheckChainName(l.NewName); err != nil {
			return p.fail(args[1].Column, "%v", err)
		}
	}
	p.add(l)
	return nil
}

// ruleCommand reads -A, -I, -D and -R: the chain, for the last three an index, and a rule.
func (p *restoreParser) ruleCommand(letter byte, words []Word) *SyntaxError {
	if len(words) < 2 {
		return p.fail(len(p.line)+1, "%s needs a chain", words[0].Text)
	}
	l := Line{Chain: words[1].Text, Column: words[1].Column}
	if err := CheckChainName(l.Chain); err != nil {
		return p.fail(l.Column, "%v", err)
	}
	rule := words[2:]
	if letter != 'A' && len(rule) > 0 && !beginsRule(rule[0].Text) {
		index, err := strconv.ParseUint(rule[0].Text, 10, 31)
		if err != nil || index == 0 || !isNumber(rule[0].Text) {
			return p.fail(rule[0].Column, "%q is neither an index from 1 to %d nor the begin of a rule", rule[0].Text, math.MaxInt32)
		}
		l.Index = int(index)
		rule = rule[1:]
	}
	l.Command = map[byte]Command{'A': Append, 'I': Insert, 'D': Delete, 'R': Replace}[letter]
	if letter == 'R' && l.Index == 0 {
		return p.fail(len(p.line)+1, "%s needs an index", words[0].Text)
	}
	if letter == 'D' && l.Index != 0 {
		if len(rule) > 0 {
			return p.fail(rule[0].Column, "unexpected word after the index")
		}
		l.Command = DeleteIndex
		p.add(l)
		return nil
	}
	return p.addRule(l, rule)
}

// addRule adds a line that ends with a rule.
func (p *restoreParser) addRule(l Line, words []Word) *SyntaxError {
	if len(words) == 0 {
		return p.fail(len(p.line)+1, "a rule without text")
	}
	l.RuleColumn = words[0].Column
	rule, err := ruleOf(p.line, words)
	if err != nil {
		return err
	}
	l.Rule = rule
	p.add(l)
	return nil
}

// beginsRule tells whether the tool takes a word for an option or its negation, and not for
// an index.
func beginsRule(word string) bool {
	return word != "" && (word[0] == '-' || word[0] == '!')
}
