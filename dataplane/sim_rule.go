// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"strings"

	"github.com/tableward/tableward/rules"
)

// simRule is one rule, taken apart once and shared by all places where its text stands.
type simRule struct {
	text     string // canonical words, one blank between them
	hash     uint64 // FNV-1a of text
	target   string
	isGoto   bool
	in, out  bool // has -i, -o
	sets     []string
	words    int
	counted  bool // has -c
	commands bool // a command stands among the words: the line needs the long way
	err      *wordError

	forbid        uint8  // built-in chains from which the kernel refuses it, see hookBit
	here          uint8  // built-in chains that nf_tables alone does not take it in, see optionForbid
	errno         string // what the kernel says of it wherever it stands in this table
	unconditional bool   // a verdict without any match

	more    []*simRule // what the tool makes of it besides, one rule each
	nothing bool       // the tool skips the line: -6 in an IPv4 table

	saved rules.SavedRule // as Read gives it, once asked for
}

// maxCache bounds a table's cache of rules by text; when it is full it begins anew.
const maxCache = 1 << 16

// ruleOf returns the rule whose text, without its chain, is given.
func (t *simTable) ruleOf(text []byte) *simRule {
	if sr := t.cache[string(text)]; sr != nil {
		return sr
	}
	key := string(text)
	words, err := splitWords(make([]string, 0, 16), key)
	sr := t.newRule(words)
	if err != nil {
		sr.err = err
	}
	if len(t.cache) >= maxCache {
		clear(t.cache)
	}
	t.cache[key] = sr
	return sr
}

func (t *simTable) newRule(words []string) *simRule {
	sr := &simRule{words: len(words)}
	buf := make([]byte, 0, 128)
	if text := sr.examine(buf, t.sim.backend, t.id, words); text != nil {
		sr.setText(string(text))
		sr.unconditional = sr.isVerdictAlone()
		return sr
	}
	sr.setText(string(appendWords(buf, words)))
	if k := t.known[sr.text]; k != nil {
		sr.answer(k)
	}
	sr.unconditional = sr.isVerdictAlone()
	return sr
}

// isVerdictAlone tells whether the rule is a verdict without any match. To the legacy kernel
// "-i +" is one.
func (sr *simRule) isVerdictAlone() bool {
	return !sr.isGoto && rules.IsVerdict(sr.target) && len(sr.text) == len("-j ")+len(sr.target) && !sr.in && !sr.out
}

func (sr *simRule) setText(text string) {
	sr.text, sr.hash = text, 14695981039346656037
	for i := range len(text) {
		sr.hash = (sr.hash ^ uint64(text[i])) * 1099511628211
	}
}

// retarget returns the rule with another chain as its target, after a rename.
func (sr *simRule) retarget(name string) *simRule {
	n := *sr
	n.target, n.saved = name, rules.SavedRule{}
	words, _ := splitWords(nil, sr.text)
	var b []byte
	for i, w := range words {
		if i > 0 {
			b = append(b, ' ')
			if isTarget(words[i-1]) {
				w = name
			}
		}
		b = rules.AppendWord(b, w)
	}
	n.setText(string(b))
	return &n
}

// canon returns what is read back.
func (sr *simRule) canon() rules.Canon {
	if sr.nothing {
		return rules.Canon{}
	}
	out := rules.Canon{sr.text}
	for _, next := range sr.more {
		out = append(out, next.text)
	}
	return out
}

// savedRule returns the rule as Read gives it.
func (sr *simRule) savedRule() rules.SavedRule {
	if sr.saved.Text == "" && sr.saved.Err == nil {
		if r, err := rules.ParseRule(sr.text); err == nil {
			sr.saved = rules.SavedRule{Text: sr.text, Rule: r}
		} else {
			sr.saved = savedAs(sr.text)
		}
	}
	return sr.saved
}

// savedAs returns what a rule that cannot be sent again looks like when it has been read.
func savedAs(text string) rules.SavedRule {
	set, err := rules.ParseSave(strings.NewReader("*filter\n:c - [0:0]\n-A c " + text + "\nCOMMIT\n"))
	if err != nil || len(set.Tables) != 1 || len(set.Tables[0].Chains[0].Rules) != 1 {
		return rules.SavedRule{Text: text, Err: err}
	}
	return set.Tables[0].Chains[0].Rules[0]
}

// slow handles a command line that is not the plain "-A chain rule".
func (r *simRun) slow(text []byte) *toolError {
	words, err := splitWords(make([]string, 0, 16), string(text))
	switch {
	case err != nil:
		return r.bad(err)
	case len(words) > maxWords:
		return r.parse("Parser cannot handle more arguments")
	case len(words) == 0:
		return r.parse("no command specified")
	case words[0] == "" || words[0][0] != '-':
		return r.bad(badArgument(words[0]))
	}
	at := -1
	for i, w := range words {
		if commandOf(w) == 0 || i > 0 && takesWord(words[i-1]) {
			continue
		}
		if at >= 0 {
			return r.parse("Cannot use -" + string(commandOf(w)) + " with -" + string(commandOf(words[at])))
		}
		at = i
	}
	if at < 0 {
		if sr := r.t.newRule(words); sr.err != nil {
			return r.bad(sr.err)
		}
		return r.parse("no command specified")
	}
	return r.dispatch(commandOf(words[at]), words[at], words[:at], words[at+1:])
}

// dispatch handles the command op, written as word, between the words around it.
func (r *simRun) dispatch(op byte, word string, before, args []string) *toolError {
	var chain string
	switch op {
	case 'F', 'X', 'Z':
		chain, args = cutArg(args)
	default:
		// The chain is the next word, whatever it looks like.
		if len(args) == 0 {
			return r.bad(needsArgument(word))
		}
		chain, args = args[0], args[1:]
	}
	cmd := simCmd{op: op}
	switch op {
	case 'A':
	case 'I', 'D', 'R':
		if len(args) > 0 && args[0] != "" && args[0][0] != '-' && args[0][0] != '!' {
			if cmd.index = atoi(args[0]); cmd.index < 1 {
				return r.parse("Invalid rule number `" + args[0] + "'")
			}
			if args = args[1:]; op == 'D' {
				cmd.op = 'd'
			}
		} else if op == 'R' {
			return r.parse("-R requires a rule number")
		}
	case 'P', 'E':
		if cmd.arg, args = cutArg(args); cmd.arg == "" {
			if op == 'P' {
				return r.parse("-P requires a chain and a policy")
			}
			return r.parse("-E requires old-chain-name and new-chain-name")
		}
	case 'N':
		if te := r.nameNFT(chain); te != nil {
			return te
		}
	}
	rest := args
	if len(before) > 0 {
		rest = append(append([]string(nil), before...), args...)
	}
	switch cmd.op {
	case 'A', 'I', 'D', 'R':
		return r.queue(cmd.op, cmd.index, []byte(chain), nil, r.t.newRule(rest))
	}
	if len(rest) > 0 {
		if strings.HasPrefix(rest[0], "-") {
			return r.parse("Illegal option `" + rest[0] + "' with this command")
		}
		return r.bad(badArgument(rest[0]))
	}
	if op == 'P' && cmd.arg == "DROP" && r.t.id.Name == "nat" {
		return r.bad(natDrop) // a declaration may say it
	}
	if len(chain) > maxChainName {
		return r.parse("chain name `" + chain + "' too long (must be under 29 chars)")
	}
	return r.queue(cmd.op, cmd.index, []byte(chain), []byte(cmd.arg), nil)
}

// cutArg cuts off the first word unless it is an option.
func cutArg(words []string) (string, []string) {
	if len(words) == 0 || strings.HasPrefix(words[0], "-") || words[0] == "!" {
		return "", words
	}
	return words[0], words[1:]
}

// commandOf returns the letter of a command's short option, 0 for any other word.
func commandOf(w string) byte {
	if len(w) == 2 && w[0] == '-' && strings.IndexByte("AIDRNFXPEZ", w[1]) >= 0 {
		return w[1]
	}
	if len(w) > 2 && w[0] == '-' && w[1] == '-' {
		return longCommands[w[2:]]
	}
	return 0
}

var longCommands = map[string]byte{
	"append": 'A', "insert": 'I', "delete": 'D', "replace": 'R', "new-chain": 'N', "new": 'N',
	"flush": 'F', "delete-chain": 'X', "policy": 'P', "rename-chain": 'E', "rename": 'E', "zero": 'Z',
}

func plainName(name []byte) bool {
	for _, c := range name {
		if c == '"' || c == '\t' {
			return false
		}
	}
	return name[0] != '-' && name[0] != '!'
}
