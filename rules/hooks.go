// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
)

// Hooks is a set of built-in chains.
type Hooks uint8

// The built-in chains, in the order in which the kernel numbers its hooks.
const (
	HookPrerouting Hooks = 1 << iota
	HookInput
	HookForward
	HookOutput
	HookPostrouting
)

var hookNames = [...]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// HookOf returns the set of that one built-in chain, the empty set for any other name.
func HookOf(builtin string) Hooks {
	if i := slices.Index(hookNames[:], builtin); i >= 0 {
		return 1 << i
	}
	return 0
}

// Names returns the names of the chains, in the kernel's order.
func (h Hooks) Names() []string {
	var names []string
	for i, name := range hookNames {
		if h&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Refusal says where a backend's kernel does not take a rule because of what it names.
type Refusal struct {
	Feature string // "-j MASQUERADE", "-m owner", "-m policy --dir in"
	// Column is where the feature's word begins in Rule.String, in bytes from 1: the name of
	// the target or match, or the option if it is about one.
	Column int
	// Table: nowhere in this table, not even in a chain that nothing reaches. Reached and
	// Direct are empty then.
	Table   bool
	Reached Hooks  // refused when it stands in a user chain that these reach, however far below
	Direct  Hooks  // refused when it stands in these themselves; Reached is part of it
	Advice  string // where it belongs, why, and what to write instead, without a full stop
}

// RefusalsOf returns what in a rule the kernel behind a backend, "nft" or "legacy", does not
// take everywhere in a table, each feature once, in the order of the rule's words. It is nil
// for a rule that can stand anywhere, and where nothing is known of the backend or the table.
//
// It judges what the rule names, not the values, and takes a target that is an extension's
// name for that extension even if there is a chain of the name. What it knows was measured on
// the kernel and with the tools that hooks.json names; others may take more. The legacy kernel
// does not look for hooks behind a rule that is a bare "-j ACCEPT", DROP, RETURN or QUEUE: in
// that chain, Reached and Direct do not hold for what follows.
func RefusalsOf(backend string, id TableID, r Rule) []Refusal {
	t := loadHooks().table(backend, id)
	if t == nil || !t.mayRefuse(r) {
		return nil
	}
	return t.refusals(r)
}

// refusalTable has what one backend does not take everywhere in one table, by the name of a
// target or match.
type refusalTable struct {
	targets, matches map[string]*restricted
	options          []string // of all of them, for the quick answer
}

// restricted is a target or match that is refused somewhere, or has options that are.
type restricted struct {
	whole   *Refusal // nil if it is refused for its options alone
	options []restrictedOption
}

type restrictedOption struct {
	name, value string // "--dir", "in"; value "" is any
	Refusal
}

// mayRefuse is the quick answer for nearly all rules. It takes quoted text for words, and
// options for those of any match: what it says yes to is looked at closely.
func (t *refusalTable) mayRefuse(r Rule) bool {
	optional := false // something is named that is refused for its options alone
	named := func(x *restricted) bool {
		optional = optional || x != nil
		return x != nil && x.whole != nil
	}
	if !r.isGoto && named(t.targets[r.target]) {
		return true
	}
	for rest := r.text; rest != ""; {
		word, next := rest, ""
		if blank := strings.IndexByte(rest, ' '); blank >= 0 {
			word, next = rest[:blank], rest[blank+1:]
		}
		rest = next
		if len(word) < 2 || word[0] != '-' {
			continue
		}
		name, odd := matchName(word, next)
		if odd || name != "" && named(t.matches[name]) || optional && t.mayBeOption(word) {
			return true
		}
	}
	return false
}

// matchName returns the name of the match that a word which begins with "-" loads, "" if it
// does not. It is odd if it may load one, in a way that few people write.
func matchName(word, next string) (name string, odd bool) {
	switch {
	case word == "-m" || word == "--match":
		if blank := strings.IndexByte(next, ' '); blank >= 0 {
			return next[:blank], false
		}
		return next, false
	case word[1] == 'm':
		return word[2:], false
	case word[1] == 'f': // "-fm owner"
		return "", len(word) > 2
	case strings.HasPrefix(word, "--ma"):
		word, _, _ = strings.Cut(word, "=")
		return "", strings.HasPrefix("--match", word)
	}
	return "", false
}

func (t *refusalTable) mayBeOption(word string) bool {
	if !strings.HasPrefix(word, "--") {
		return false
	}
	word, _, _ = strings.Cut(word, "=")
	return slices.ContainsFunc(t.options, func(option string) bool { return abbreviates(word, option) })
}

// refusals walks the rule's words as getopt does.
func (t *refusalTable) refusals(r Rule) []Refusal {
	buf := wordBuffers.Get().(*[]Word)
	words, _ := appendWords((*buf)[:0], r.text, 0) // a Rule's text has been read before
	defer func() {
		clear(words)
		*buf = words[:0]
		wordBuffers.Put(buf)
	}()
	w := refusalWalk{table: t, scan: scan{line: r.text, words: words, sets: r.sets, lenient: true}}
	next := option{next: inOption}
	for i := range words {
		next = w.step(i, next)
	}
	if w.bridged {
		w.found = slices.DeleteFunc(w.found, func(f Refusal) bool { return strings.HasPrefix(f.Feature, "-m physdev ") })
	}
	return w.found
}

// refusalWalk is a scan that notes which targets, matches and options come.
type refusalWalk struct {
	scan
	table  *refusalTable
	loaded [5]*restricted // with options; four matches and a target is all that a rule can have
	found  []Refusal
	// bridged: the kernel takes physdev's other options everywhere beside this one.
	bridged bool
}

// step judges word i behind the option before.
func (w *refusalWalk) step(i int, before option) option {
	word := w.words[i]
	isOption := len(word.Text) > 1 && word.Text[0] == '-' && (before.next&inValue == 0 || before.next == inBoth)
	w.match, w.target, w.isGoto = "", "", false
	next, _ := w.scan.step(i, before)
	switch {
	case w.match != "":
		w.load(w.table.matches[w.match], word, w.match)
	case w.target != "" && !w.isGoto:
		w.load(w.table.targets[w.target], word, w.target)
	case isOption && strings.HasPrefix(word.Text, "--"):
		w.option(i)
	}
	return next
}

// load notes a target or match whose name ends the word.
func (w *refusalWalk) load(x *restricted, word Word, name string) {
	if x == nil {
		return
	}
	if x.whole != nil {
		w.add(*x.whole, word.Column+len(word.Text)-len(name))
	}
	if at := slices.Index(w.loaded[:], nil); at >= 0 && len(x.options) > 0 && !slices.Contains(w.loaded[:], x) {
		w.loaded[at] = x
	}
}

// option notes an option of what has been loaded.
func (w *refusalWalk) option(i int) {
	word := w.words[i]
	name, value, assigned := strings.Cut(word.Text, "=")
	if !assigned && i+1 < len(w.words) {
		value = w.words[i+1].Text
	}
	if abbreviates(name, "--physdev-is-bridged") && !(i > 0 && w.words[i-1].Text == "!") {
		w.bridged = true
	}
	for _, x := range w.loaded {
		if x == nil {
			return
		}
		for j := range x.options {
			if o := &x.options[j]; abbreviates(name, o.name) && (o.value == "" || o.value == value) {
				w.add(o.Refusal, word.Column)
			}
		}
	}
}

// abbreviates tells whether getopt may take name for that option, whose module is loaded.
// Whether the abbreviation is ambiguous does not matter: then the tool refuses the rule.
func abbreviates(name, option string) bool {
	if name == option {
		return true
	}
	if !strings.HasPrefix(option, name) {
		return false
	}
	_, other := longOptions[name[2:]]
	return !other
}

func (w *refusalWalk) add(r Refusal, column int) {
	if slices.ContainsFunc(w.found, func(have Refusal) bool { return have.Feature == r.Feature }) {
		return
	}
	r.Column = column
	w.found = append(w.found, r)
}
