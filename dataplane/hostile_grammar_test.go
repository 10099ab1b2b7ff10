// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// hostileText is a rule text for one table, as an agent may write it or as nobody should.
type hostileText struct {
	table, text string
	spoiled     bool
}

// hostileGrammar makes rules out of the parts of those that the vocabulary knows as good for
// one combination, and then spoils every other one.
type hostileGrammar struct {
	*rand.Rand
	ip    rules.IPVersion
	rules map[string][]hostileRule // by table
	turn  map[string]int           // how often one of a table's was taken
	uses  map[string]bool          // the matches and targets that they have
}

// hostileRule is a rule of the vocabulary in parts, each an option with what belongs to it.
type hostileRule struct{ match, target [][]string }

// The core options as a rule has them, and the letters that stand for them.
var hostileOptions = map[byte][]string{
	's': {"--source", "--src", "--sour"}, 'd': {"--destination", "--dst", "--dest"},
	'p': {"--protocol", "--proto", "--prot"}, 'i': {"--in-interface", "--in-i"}, 'o': {"--out-interface", "--out", "--o"},
	'j': {"--jump", "--ju", "--j"}, 'g': {"--goto", "--go", "--g"}, 'm': {"--match", "--mat", "--ma"},
	'f': {"--fragments", "--fr"}, 'c': {"--set-counters", "--set-c"},
}

func newHostileGrammar(t testing.TB, seed uint64, b dataplane.Backend, v rules.IPVersion) *hostileGrammar {
	g := &hostileGrammar{Rand: rand.New(rand.NewPCG(seed, uint64(v))), ip: v, rules: make(map[string][]hostileRule), turn: make(map[string]int), uses: make(map[string]bool)}
	in := fmt.Sprintf("%s%d", b, v)
	for _, a := range vocabularyRules(t) {
		rule, err := rules.ParseRule(a.rule)
		if k, ok := dataplane.LookUp(in, a.table, a.rule); err != nil || !ok || k.Exit != 0 {
			continue
		}
		words, err := rules.SplitWords(rule.String())
		if err != nil {
			t.Fatal(err)
		}
		note(g.uses, rule)
		r := hostileParts(words)
		if rule.Jump() != "" {
			r.target = [][]string{{"-j", "tw-a"}}
		}
		g.rules[a.table] = append(g.rules[a.table], r)
	}
	return g
}

// note adds a rule's matches and target to uses.
func note(uses map[string]bool, r rules.Rule) {
	for _, match := range valuesOf(r, 'm') {
		uses["-m "+match] = true
	}
	if r.Target() != "" && r.Jump() == "" {
		uses["-j "+r.Target()] = true
	}
}

// hostileParts cuts a rule before each core option, or the "!" before it.
func hostileParts(words []rules.Word) hostileRule {
	var r hostileRule
	var part []string
	isTarget := false
	flush := func() {
		switch {
		case part == nil:
		case isTarget:
			r.target = append(r.target, part)
		default:
			r.match = append(r.match, part)
		}
		part, isTarget = nil, false
	}
	for i, w := range words {
		letter := hostileLetter(w.Text)
		if letter != 0 && (len(part) != 1 || part[0] != "!") {
			flush()
		}
		if w.Text == "!" && i+1 < len(words) && hostileLetter(words[i+1].Text) != 0 {
			flush()
		}
		isTarget = isTarget || letter == 'j' || letter == 'g'
		part = append(part, w.Text)
	}
	flush()
	return r
}

// hostileLetter returns the letter of a core option, 0 for other words.
func hostileLetter(word string) byte {
	if len(word) == 2 && word[0] == '-' && hostileOptions[word[1]] != nil {
		return word[1]
	}
	for letter, names := range hostileOptions {
		if slices.Contains(names, word) {
			return letter
		}
	}
	return 0
}

func (g *hostileGrammar) one(of ...string) string { return of[g.IntN(len(of))] }

// in tells true once in n times.
func (g *hostileGrammar) in(n int) bool { return g.IntN(n) == 0 }

// text makes one text.
func (g *hostileGrammar) text() hostileText {
	t := hostileText{table: g.one("filter", "filter", "nat", "mangle", "mangle", "raw", "security")}
	parts := g.parts(t.table)
	if t.spoiled = !g.in(4); t.spoiled {
		t.text = g.spoiled(parts)
		return t
	}
	words := g.written(parts)
	for i, w := range words {
		words[i] = g.quoted(w)
	}
	t.text = g.joined(words)
	return t
}

// parts makes a rule that is good, or nearly.
func (g *hostileGrammar) parts(table string) [][]string {
	from := g.rules[table]
	r := from[g.turn[table]%len(from)] // each in its turn
	g.turn[table]++
	parts, target := slices.Clone(r.match), r.target
	switch g.IntN(8) {
	case 0:
		target = from[g.IntN(len(from))].target
	case 1, 2, 3:
		target = [][]string{g.jump()}
	}
	for g.in(3) {
		parts = append(parts, g.extra(parts)...)
	}
	if g.in(6) {
		parts = append(parts, from[g.IntN(len(from))].match...)
	}
	parts = append(parts, target...)
	if g.in(8) {
		g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	}
	if len(parts) == 0 {
		parts = [][]string{{"-j", "RETURN"}}
	}
	return parts
}

func (g *hostileGrammar) jump() []string {
	if g.in(8) {
		return []string{"-g", g.one("tw-a", "tw-b", "DOCKER-USER")}
	}
	return []string{"-j", g.one("tw-a", "tw-a", "tw-b", "DOCKER-USER", "DOCKER-USER", "f\u00fcr", "RETURN", "ACCEPT", "ACCEPT", "ACCEPT", "ACCEPT",
		g.one("tw-a", "tw-b", "tw-missing", "ACCPET", "INPUT", "standard", "ERROR", "tcp", "a-name-of-more-than-28-letters", "a-name-of-exactly-28-letters"))}
}

// extra is a part that goes with most rules, unless its option is there already.
func (g *hostileGrammar) extra(have [][]string) [][]string {
	has := func(letter byte) bool {
		return slices.ContainsFunc(have, func(p []string) bool {
			return slices.ContainsFunc(p, func(w string) bool { return hostileLetter(w) == letter })
		})
	}
	part := []string{"-m", "comment", "--comment", g.value()}
	switch n := g.IntN(12); {
	case n == 0 && !has('s'):
		part = []string{"-s", g.address()}
	case n == 1 && !has('d'):
		part = []string{"-d", g.address()}
	case n == 2 && !has('i'):
		part = []string{"-i", g.one("eth0", "lo", "eth+", "br-0", "e\u00e90", "a\"b", "'eth0'")}
	case n == 3 && !has('o'):
		part = []string{"-o", g.one("eth1", "wg0", "$IF", "veth;x")}
	case n == 4:
		part = []string{"-m", "set", "--match-set", g.one("s1", "s1", "s1", "s6", "s6", "weave-;r^~$3]6!N", "weave-;r^~$3]6!N", "nosuchset"), g.one("src", "dst", "src,dst")}
	case n == 5:
		part = []string{"-m", "recent", "--rcheck", "--name", g.one("ssh", "ssh", g.value())}
	case n == 6:
		part = []string{"-m", "mark", "--mark", g.one("1", "0x10/0xf0", "0xffffffff")}
	case n == 7 && !has('c'):
		return [][]string{{"-c", g.one("5", "0"), "10"}}
	}
	if g.in(6) && part[1] != "comment" && !strings.Contains(part[1], ",") {
		at := 0
		if part[0] == "-m" {
			at = 2
		}
		part = slices.Insert(part, at, "!")
	}
	return [][]string{part}
}

func (g *hostileGrammar) address() string {
	if g.ip == rules.IPv6 {
		return g.one("2001:db8::1", "2001:db8::/32", "2001:db8::1,2001:db8::2", "::1/128,fe80::/10,ff00::/8", "::/0", "2001:db8::7/64", "fe80::1", "10.0.0.1")
	}
	return g.one("192.0.2.1", "10.0.0.0/8", "192.0.2.1,192.0.2.2", "10.1.0.0/16,10.2.0.0/255.255.0.0,10.3.0.1", "0/0", "10.7", "198.51.100.7/24", "2001:db8::1")
}

// value is text as it comes out of labels, names and templates.
func (g *hostileGrammar) value() string {
	text := g.one("web", "two words", "it's", "$(reboot)", "`id`", "; rm -rf /", "a && b || c", `say "hi"`, `C:\temp`, `back\`, `\"`, `"`, `'`,
		"\u00fcml\u00e4ut", "\u6771\u4eac", "\U0001F525", "\u202Eleft", "e\u0301", "\u200b", "-j DROP", "-A INPUT -j ACCEPT", "-F", "--flush", "-h", "COMMIT", "*nat",
		":tw-a - [0:0]", "[5:6] -A tw-a -j DROP", "# off", "%s%n%x", "${IFS}", "\ttab\t", "", " ", "!", "-", "--", "=", "a=b", "a\tb", "tableward: missing chain",
		strings.Repeat("x", 255), strings.Repeat("long ", 60), "-t nat", "-6", "a -j DROP", "x --name y", "<script>", "{}", "null", "\u00ff")
	if g.in(3) {
		return text + g.one(" ", "", `"`, `\`, "'") + g.one("behind", "-j DROP", "COMMIT")
	}
	return text
}

// written gives parts the forms that options are written in: short, long, cut short, glued.
func (g *hostileGrammar) written(parts [][]string) []string {
	var out []string
	for _, part := range parts {
		for i := 0; i < len(part); i++ {
			w := part[i]
			letter := hostileLetter(w)
			last := i+1 == len(part)
			switch {
			case letter != 0 && g.in(3):
				w = g.one(hostileOptions[letter]...)
				if !last && g.in(3) {
					i++
					w += "=" + part[i]
				}
			case letter != 0 && letter != 'f' && !last && g.in(6):
				i++
				w = "-" + string(letter) + part[i]
			case letter == 'f' && g.in(3):
				w = "-f"
			case strings.HasPrefix(w, "--") && len(w) > 8 && g.in(12):
				w = w[:len(w)-1-g.IntN(3)]
			case strings.HasPrefix(w, "--") && !last && g.in(12):
				i++
				w += "=" + part[i]
			}
			out = append(out, w)
		}
	}
	return out
}

// quoted writes a word so that it is read as it is: plain where that will do, in quotes, from
// somewhere within on in quotes, or with more backslashes than it needs.
func (g *hostileGrammar) quoted(word string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	switch g.IntN(24) {
	case 0, 1, 2:
		return `"` + escape.Replace(word) + `"`
	case 3:
		if at := strings.IndexAny(word, " \t\"="); at > 0 {
			return word[:at] + `"` + escape.Replace(word[at:]) + `"`
		}
	case 4:
		var b strings.Builder
		for _, r := range word {
			b.WriteString(`\` + string(r))
		}
		return `"` + b.String() + `"`
	}
	return string(rules.AppendWord(nil, word))
}

func (g *hostileGrammar) joined(words []string) string {
	blank := " "
	if g.in(10) {
		blank = g.one("  ", "\t", " \t ")
	}
	return g.one("", "", "", " ") + strings.Join(words, blank) + g.one("", "", "", " ")
}
