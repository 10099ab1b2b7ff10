// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// position is where the next word of a rule may stand for getopt.
type position uint8

const (
	inOption position             = 1 << iota // read as an option, if it begins like one
	inValue                                   // taken as the value of the option before it
	inBoth   = inOption | inValue             // not known which
)

// kind is what an option means for a rule.
type kind uint8

const (
	kindPlain     kind = iota
	kindForbidden      // makes the tool do something else than to take this rule
	kindMatch          // -m: loads options
	kindJump           // -j
	kindGoto           // -g
	kindSet            // its value is the name of an ipset
	kindOldSet         // --set: a set's name if the latest -m is set (iptables 1.4)
	kindText           // free text, where people expect single quotes to quote
	kindName           // its value is a name that iptables-save prints without quotes
	kindString         // --string: iptables-save escapes quotes in it but no backslashes
	kindPolicy         // --pol: of -m policy, without that an abbreviation of --policy
	kindNew            // --new: of -j CLUSTERIP, without that an abbreviation of --new-chain
)

type option struct {
	kind kind
	next position // of the word behind it
}

// coreOptions are the options of iptables itself that a rule may have, long and short.
var coreOptions = map[string]option{
	"source": {kindPlain, inValue}, "src": {kindPlain, inValue},
	"destination": {kindPlain, inValue}, "dst": {kindPlain, inValue},
	"protocol": {kindPlain, inValue}, "proto": {kindPlain, inValue},
	"in-interface": {kindName, inValue}, "out-interface": {kindName, inValue},
	"jump": {kindJump, inValue}, "goto": {kindGoto, inValue}, "match": {kindMatch, inValue},
	// A second word may follow; the tool takes it only if it does not begin like an option.
	"set-counters": {kindPlain, inValue},
	"fragments":    {kindPlain, inOption},
}

// shortOptions are the letters that a rule may have; each other letter is forbidden or
// unknown to the tool.
var shortOptions = map[byte]option{
	's': {kindPlain, inValue}, 'd': {kindPlain, inValue}, 'p': {kindPlain, inValue},
	'i': {kindName, inValue}, 'o': {kindName, inValue}, 'c': {kindPlain, inValue},
	'j': {kindJump, inValue}, 'g': {kindGoto, inValue}, 'm': {kindMatch, inValue},
	'f': {kindPlain, inOption},
}

// forbiddenLetters are the short options that a rule may not have, commandLetters those of
// them that are commands. Source: the optstring of iptables-restore 1.8.9,
// "-:A:C:D:R:I:L::S::M:F::Z::N:X::E:P:Vh::o:p:s:d:j:i:bvw::W::nt:m:xc:g:46f".
const (
	commandLetters   = "ACDRILSFZNXEP"
	forbiddenLetters = commandLetters + "MVhvwWntxb46"
)

// forbiddenOptions maps each long option that a rule may not have to its letter. getopt takes
// any unambiguous prefix for them, so every prefix is forbidden too.
var forbiddenOptions = []struct {
	name   string
	letter byte
}{
	{"append", 'A'}, {"check", 'C'}, {"delete", 'D'}, {"insert", 'I'}, {"replace", 'R'},
	{"list", 'L'}, {"list-rules", 'S'}, {"flush", 'F'}, {"zero", 'Z'}, {"new-chain", 'N'},
	{"delete-chain", 'X'}, {"rename-chain", 'E'}, {"policy", 'P'}, {"table", 't'},
	{"modprobe", 'M'}, {"wait", 'w'}, {"wait-interval", 'W'}, {"verbose", 'v'},
	{"version", 'V'}, {"help", 'h'}, {"numeric", 'n'}, {"exact", 'x'},
	{"line-numbers", '0'}, {"ipv4", '4'}, {"ipv6", '6'},
}

// longOptions has every long option that is known in full.
var longOptions = func() map[string]option {
	all := map[string]option{
		"match-set": {kindSet, inValue}, "add-set": {kindSet, inValue},
		"del-set": {kindSet, inValue}, "map-set": {kindSet, inValue},
		"set":     {kindOldSet, inBoth},
		"comment": {kindText, inValue}, "log-prefix": {kindText, inValue},
		"nflog-prefix": {kindText, inValue}, "string": {kindString, inValue},
		"pol": {kindPolicy, inValue}, "new": {kindNew, inOption},
	}
	for name, o := range coreOptions {
		all[name] = o
	}
	for _, f := range forbiddenOptions {
		all[f.name] = option{kindForbidden, inOption}
	}
	for list, o := range map[string]option{
		valueOptions: {kindPlain, inValue}, nameOptions: {kindName, inValue},
		flagOptions: {kindPlain, inOption}, eitherOptions: {kindPlain, inBoth},
	} {
		for _, name := range strings.Fields(list) {
			all[name] = o
		}
	}
	return all
}()

// abbreviable are the options of extensions whose abbreviations must not be taken for plain
// ones, in the order in which they are looked for.
var abbreviable = []struct {
	names []string
	kind  kind
}{
	{[]string{"match-set", "add-set", "del-set", "map-set"}, kindSet},
	{strings.Fields(nameOptions), kindName},
	{[]string{"string"}, kindString},
}

// longOption returns what getopt may make of a long option: name is without "--" and "=".
//
// A name that is not known in full may be an abbreviation. Where a core option is among the
// candidates, getopt takes that one or fails, so its meaning is certain; an extension's
// option may be there or not, so its abbreviations stay open.
func longOption(name string) option {
	if o, known := longOptions[name]; known {
		return o
	}
	if forbiddenLetter(name) != 0 {
		return option{kindForbidden, inOption}
	}
	for full, o := range coreOptions {
		if strings.HasPrefix(full, name) {
			return o
		}
	}
	for _, a := range abbreviable {
		for _, full := range a.names {
			if strings.HasPrefix(full, name) {
				return option{a.kind, inBoth}
			}
		}
	}
	return option{kindPlain, inBoth}
}

// forbiddenLetter returns the letter of the forbidden long option that name is or
// abbreviates, 0 if there is none.
func forbiddenLetter(name string) byte {
	for _, f := range forbiddenOptions {
		if f.name == name {
			return f.letter
		}
	}
	for _, f := range forbiddenOptions {
		if strings.HasPrefix(f.name, name) {
			return f.letter
		}
	}
	return 0
}
