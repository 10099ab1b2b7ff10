// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// becomes tells what is wrong with what a rule has become.
func becomes(r rules.Rule, got []savedTextRule) string {
	want := 1 // for each pair of addresses
	for _, letter := range []byte{'s', 'd'} {
		for _, addresses := range valuesOf(r, letter) {
			want *= 1 + strings.Count(addresses, ",")
		}
	}
	if len(got) != want {
		return fmt.Sprintf("it has become %d rules, not %d: %v", len(got), want, got)
	}
	for _, saved := range got {
		switch {
		case saved.Text == "" && r.Target() == "": // nothing but counters, or "-p all"
		case saved.Err != nil:
			return fmt.Sprintf("what it has become cannot be sent again: %v: %s", saved.Err, saved.Text)
		case saved.Rule.Target() != r.Target() || saved.Rule.IsGoto() != r.IsGoto():
			return fmt.Sprintf("its target has become %q, not %q: %s", saved.Rule.Target(), r.Target(), saved.Text)
		case saved.counters != "[0:0]" && len(valuesOf(r, 'c')) == 0 && !strings.Contains(r.String(), "--set "):
			return "it has counters: " + saved.counters
		}
		for _, letter := range []byte{'i', 'o'} {
			want := slices.DeleteFunc(valuesOf(r, letter), func(name string) bool { return name == "+" })
			if have := valuesOf(saved.Rule, letter); !slices.Equal(have, want) {
				return fmt.Sprintf("-%c has become %q, not %q", letter, have, want)
			}
		}
	}
	return ""
}

// valuesOf returns the values of a core option in a rule that a tool has taken.
func valuesOf(r rules.Rule, letter byte) []string {
	words, err := rules.SplitWords(r.String())
	if err != nil {
		panic(err) // it has parsed
	}
	var out []string
	for i := 0; i < len(words); i++ {
		option, value, attached := optionOf(words[i].Text)
		if option == 0 {
			continue
		}
		if !attached {
			if i++; i == len(words) {
				break
			}
			value = words[i].Text
		}
		if option == letter {
			out = append(out, value)
		}
	}
	return out
}

// optionOf returns the letter of the core option that a word is, in full or cut short, and the
// value that is attached to it; 't' for an option whose value may look like an option, and 0
// for other words.
func optionOf(word string) (letter byte, value string, attached bool) {
	if name, long := strings.CutPrefix(word, "--"); long {
		if name, value, attached = strings.Cut(name, "="); name == "" || name == "set" {
			return 0, "", false // "set" is -m recent's, or short for set-counters
		}
		for _, o := range valuedOptions {
			if strings.HasPrefix(o.name, name) {
				return o.letter, value, attached
			}
		}
		return 0, "", false
	}
	letters := strings.TrimLeft(strings.TrimPrefix(word, "-"), "f")
	if word == letters || letters == "" {
		return 0, "", false
	}
	return letters[0], letters[1:], len(letters) > 1
}

var valuedOptions = []struct {
	name   string
	letter byte
}{
	{"source", 's'}, {"src", 's'}, {"destination", 'd'}, {"dst", 'd'}, {"protocol", 'p'}, {"proto", 'p'},
	{"match", 'm'}, {"in-interface", 'i'}, {"out-interface", 'o'}, {"jump", 'j'}, {"goto", 'g'}, {"set-counters", 'c'},
	{"comment", 't'}, {"log-prefix", 't'}, {"nflog-prefix", 't'}, {"name", 't'}, {"string", 't'}, {"hashlimit-name", 't'},
	{"physdev-in", 't'}, {"physdev-out", 't'}, {"helper", 't'}, {"label", 't'}, {"genre", 't'},
}
