// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRule(t *testing.T) {
	for _, test := range []struct {
		text   string
		want   string // "" is text
		target string
		jump   string
		sets   []string
	}{
		{text: "-j ACCEPT", target: "ACCEPT"},
		{text: "  -j \t ACCEPT ", want: "-j ACCEPT", target: "ACCEPT"},
		{text: "-s 10.0.0.0/8 ! -d 10.1.0.0/16 -p tcp -m tcp --dport 80 -j web-in", target: "web-in", jump: "web-in"},
		{text: "--jump web", target: "web", jump: "web"},
		{text: "--jum web", target: "web", jump: "web"},
		{text: "--j web", target: "web", jump: "web"},
		{text: "--jump=web", want: "--jump web", target: "web", jump: "web"},
		{text: "-jweb", want: "-j web", target: "web", jump: "web"},
		{text: "-fjweb -p tcp", want: "-fj web -p tcp", target: "web", jump: "web"},
		{text: "-fj LOG", target: "LOG"},
		{text: "-j a'b", target: "a'b", jump: "a'b"},
		{text: "-j [x]", target: "[x]", jump: "[x]"},
		{text: "-j né", target: "né", jump: "né"},
		{text: "-j " + strings.Repeat("c", 28), target: strings.Repeat("c", 28), jump: strings.Repeat("c", 28)},
		{text: "-j MASQUERADE --random-fully", target: "MASQUERADE"},
		{text: "-p tcp", target: ""},

		// Values that look like commands.
		{text: `-m comment --comment "-A INPUT -j DROP" -j RETURN`, target: "RETURN"},
		{text: "-m comment --comment -F -j RETURN", target: "RETURN"},
		{text: "-m comment --comment --flush", target: ""},
		{text: "--comment=-F -j RETURN", target: "RETURN"},
		{text: "-j LOG --log-prefix -A", target: "LOG"},
		{text: "-j LOG --log-prefix -j", target: "LOG"},
		{text: "-s -j ACCEPT", target: ""}, // an empty variable: the tool refuses it
		{text: "-p tcp --tcp-flags SYN,ACK SYN -j web", target: "web", jump: "web"},
		{text: "-m policy --dir in --pol none -j ACCEPT", target: "ACCEPT"},
		{text: "-m statistic --mode random --probability 0.5 -j ACCEPT", target: "ACCEPT"},
		{text: "-j CLUSTERIP --new --hashmode sourceip", target: "CLUSTERIP"},
		{text: "-c 1 2 -j ACCEPT", target: "ACCEPT"},
		{text: "-m u32 --u32 0>>22&0x3C@0=-1 -j DROP", target: "DROP"},
		{text: "-m unknown --whatever value -j DROP", target: "DROP"},

		// Apostrophes.
		{text: "-m comment --comment \"a b\" -m recent --set --name a'b -i a.b@c -j RETURN", target: "RETURN"},
		{text: `-m string --algo bm --string "a \"b" -m bpf --bytecode "1,6 0 0 0" -j RETURN`, target: "RETURN"},
		{text: "-m comment --comment don't -j RETURN", target: "RETURN"},
		{text: `-m comment --comment "don't" -j RETURN`, want: "-m comment --comment don't -j RETURN", target: "RETURN"},
		{text: "-m comment --comment 'tis -m comment --comment o' -j RETURN", target: "RETURN"},
		{text: "-m comment --comment 'x' -j RETURN", target: "RETURN"},

		// Quoting is canonical.
		{text: `-m comment --comment "plain"`, want: "-m comment --comment plain"},
		{text: `-m comment --comment ""`},
		{text: `-m comment --comment "C:\\temp"`, want: `-m comment --comment C:\temp`},
		{text: `-m comment --comment "say \"hi\""`},
		{text: `-m comment --comment"a b"`, want: `-m comment "--commenta b"`},

		// Sets.
		{text: "-m set --match-set a src -j DROP", target: "DROP", sets: []string{"a"}},
		{text: "-m set ! --match-set weave-;rGqyMIl1HN^cfDki~Z$3]6!N src -j DROP", target: "DROP", sets: []string{"weave-;rGqyMIl1HN^cfDki~Z$3]6!N"}},
		{text: "-m set --match-set=a src", sets: []string{"a"}},
		{text: "-m set --match-s a src", sets: []string{"a"}},
		{text: "-m set --set a src", sets: []string{"a"}},
		{text: "-m recent --set --name a", sets: nil},
		{text: "-m set --match-set b src -m set --match-set a dst -m set --match-set b dst", sets: []string{"b", "a"}},
		{text: "-j SET --add-set a src --exist", target: "SET", sets: []string{"a"}},
		{text: "-j SET --map-set a src --map-mark", target: "SET", sets: []string{"a"}},
		{text: "-j SET --del-set a src", target: "SET", sets: []string{"a"}},
		{text: "-i ! eth0 -j DROP", target: "DROP"},
		{text: "-m set --match-set ! a src", sets: []string{"a"}},
		{text: "-m set --match-set " + strings.Repeat("s", 31) + " src", sets: []string{strings.Repeat("s", 31)}},
	} {
		rule, err := ParseRule(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if test.want == "" {
			test.want = test.text
		}
		got := []any{rule.String(), rule.Target(), rule.Jump(), rule.Sets()}
		if diff := cmp.Diff([]any{test.want, test.target, test.jump, test.sets}, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.text, diff)
		}
		again, err := ParseRule(rule.String())
		if diff := cmp.Diff(rule, again, cmp.AllowUnexported(Rule{})); diff != "" || err != nil {
			t.Errorf("%s: parsed again: %v\n%s", test.text, err, diff)
		}
	}
}

func TestGoto(t *testing.T) {
	for _, text := range []string{"-g LOG", "--goto LOG", "--go LOG", "--goto=LOG", "-gLOG", "-fg LOG"} {
		rule := MustParseRule(text)
		if !rule.IsGoto() || rule.Target() != "LOG" || rule.Jump() != "LOG" {
			t.Errorf("%s: goto %v target %q jump %q", text, rule.IsGoto(), rule.Target(), rule.Jump())
		}
	}
	if rule := MustParseRule("-j LOG"); rule.IsGoto() || rule.Jump() != "" {
		t.Errorf("-j LOG: goto %v jump %q", rule.IsGoto(), rule.Jump())
	}
	// As one word it might be the comment, and the rule without a target.
	if rule := MustParseRule("-m comment --comm --goto=a -m comment --comm x"); rule.String() != "-m comment --comm --goto a -m comment --comm x" {
		t.Errorf("got %s", rule)
	}
	if !(Rule{}).IsZero() || MustParseRule("-j LOG").IsZero() || (Rule{}).Jump() != "" {
		t.Error("the zero Rule is not as promised")
	}
}

func TestParseRuleRefuses(t *testing.T) {
	const (
		command = ": a rule may only hold matches and a target"
		chain   = "a rule is written without its chain: it cannot begin with "
		nothing = " makes iptables-restore exit with 0 and apply nothing"
		skipped = " makes the tool of the other IP version skip the rule and report success"
		notRule = " is an option of the tool, not of a rule"

		unquoted = ": iptables prints it without quotes"
	)
	long := strings.Repeat("c", 29)
	for _, test := range []struct {
		text   string
		column int
		reason string
	}{
		{"", 1, "an empty rule"},
		{" \t", 1, "an empty rule"},
		{"-A INPUT -j ACCEPT", 1, chain + `"-A"`},
		{" --append INPUT", 2, chain + `"--append"`},
		{"-I INPUT", 1, chain + `"-I"`},
		{"-D INPUT 1", 1, chain + `"-D"`},
		{"-F", 1, chain + `"-F"`},
		{"-P INPUT DROP", 1, chain + `"-P"`},
		{"-N x", 1, chain + `"-N"`},
		{"-X", 1, chain + `"-X"`},
		{"-Z", 1, chain + `"-Z"`},
		{"-Fx", 1, chain + `"-F"`},

		{"-j ACCEPT -F INPUT", 11, `hidden command "-F"` + command},
		{"-j ACCEPT -FINPUT", 11, `hidden command "-F"` + command},
		{"-j ACCEPT -fF", 11, `hidden command "-F"` + command},
		{"-j ACCEPT --flush", 11, `hidden command "--flush"` + command},
		{"-j ACCEPT --fl", 11, `hidden command "--fl"` + command},
		{"-j ACCEPT --flush=INPUT", 11, `hidden command "--flush=INPUT"` + command},
		{"-j ACCEPT --delete-chain x", 11, `hidden command "--delete-chain"` + command},
		{"-j ACCEPT --new-chain x", 11, `hidden command "--new-chain"` + command},
		{"-j ACCEPT --new", 11, `hidden command "--new"` + command},
		{"-j ACCEPT --pol INPUT DROP", 11, `hidden command "--pol"` + command},
		{"-j ACCEPT --rename-chain a b", 11, `hidden command "--rename-chain"` + command},
		{"-m comment --comment ! -F", 24, `hidden command "-F"` + command},
		{"-p tcp --syn -F", 14, `hidden command "-F"` + command},
		{"-m unknown --whatever -F", 23, `hidden command "-F"` + command},
		{"-m comment --comm -F", 19, `hidden command "-F"` + command},
		{"-m recent --set -F", 17, `hidden command "-F"` + command},
		{`-j ACCEPT "-F"`, 11, `hidden command "-F"` + command},
		{`-j ACCEPT "--flush" "né"`, 11, `hidden command "--flush"` + command},
		{`-m comment --comment "a"-F`, 25, `hidden command "-F"` + command},
		{"-j ACCEPT -C INPUT", 11, `hidden command "-C"` + command},
		{"-j ACCEPT -L", 11, `hidden command "-L"` + command},
		{"-j ACCEPT -h", 11, `"-h"` + nothing},
		{"-j ACCEPT --help", 11, `"--help"` + nothing},
		{"-j ACCEPT -V", 11, `"-V"` + nothing},
		{"-6 -j ACCEPT", 1, `"-6"` + skipped},
		{"-j ACCEPT --ipv4", 11, `"--ipv4"` + skipped},
		{"-j ACCEPT -M /bin/sh", 11, `"-M" makes the tool run a program`},
		{"-t nat -j ACCEPT", 1, `"-t" names a table: a rule cannot choose its table`},
		{"-j ACCEPT --tab nat", 11, `"--tab" names a table: a rule cannot choose its table`},
		{"-j ACCEPT -v", 11, `"-v"` + notRule},
		{"-j ACCEPT -w", 11, `"-w"` + notRule},
		{"-j ACCEPT --line-numbers", 11, `"--line-numbers"` + notRule},
		{"-j ACCEPT -- -F", 11, `"--" ends the options: the rest would not be read as a rule`},

		{"-j", 1, `"-j" without a target`},
		{"-p tcp --goto", 8, `"--goto" without a target`},
		{`-j ""`, 4, "an empty target"},
		{"--jump=", 8, "an empty target"},
		{"-j A -j B", 9, `a second target "B": the rule has "A"`},
		{"-j ACCEPT -g B", 14, `a second target "B": the rule has "ACCEPT"`},
		{`-j "a b"`, 4, `target: chain name "a b" has a blank`},
		{`-j "a\"b"`, 4, `target: chain name "a\"b" has a double quote`},
		{"-j -s", 4, `target: chain name "-s" begins with "-" like an option`},
		{"-j !", 4, `target: chain name "!" begins with "!" like an option`},
		{"-j " + long, 4, `target: chain name "` + long + `" has 29 bytes: at most 28`},

		{`-m set --match-set "" src`, 20, "an empty set name"},
		{`-m set --match-set "a b" src`, 20, `set name "a b" has a blank or a double quote: iptables prints it without quotes`},
		{"-j SET --add-set " + strings.Repeat("s", 32) + " src", 18, `set name "` + strings.Repeat("s", 32) + `" has 32 bytes: at most 31`},
		{"-m set --match-set=" + strings.Repeat("s", 32) + " src", 20, `set name "` + strings.Repeat("s", 32) + `" has 32 bytes: at most 31`},

		// Behind a protocol the tool reads on in the word, one word back.
		{"-p tcp -qh", 8, `unknown option "-q"`},
		{"-p tcp -q6 -j ACCEPT", 8, `unknown option "-q"`},
		{"-p tcp -fqi -j ACCEPT", 8, `unknown option "-q"`},
		{"-p udp --whatever -5 -j ACCEPT", 19, `unknown option "-5"`},
		{"-p tcp -\u00e9V", 8, "unknown option \"-\u00e9\""},

		// -I and -D would take them for an index, of somebody else's rule.
		{"3 -j ACCEPT", 1, `a rule cannot begin with "3": -I and -D would take it for an index`},
		{" 0x3", 2, `a rule cannot begin with "0x3": -I and -D would take it for an index`},
		{`" +3" -j ACCEPT`, 1, `a rule cannot begin with " +3": -I and -D would take it for an index`},

		// What iptables-save prints of these is another rule, or hides the ones behind it.
		{`-i "eth0 -j DROP" -j ACCEPT`, 4, `name "eth0 -j DROP" has a blank or a double quote` + unquoted},
		{`-j ACCEPT --out-interface="a b"`, 27, `name "a b" has a blank or a double quote` + unquoted},
		{`"-fia\"b" -j ACCEPT`, 4, `name "a\"b" has a blank or a double quote` + unquoted},
		{`-m recent --rcheck --name "\"" -j DROP`, 27, `name "\"" has a blank or a double quote` + unquoted},
		{`-m recent --set --name "--\"x" -j DROP`, 24, `name "--\"x" has a blank or a double quote` + unquoted},
		{`-m recent --rcheck --nam "a b" -j DROP`, 26, `name "a b" has a blank or a double quote` + unquoted},
		{"-m recent --set --name=-6 -j DROP", 24, `name "-6" begins like an option`},
		{"-m physdev --physdev-in \"a\tb\"", 25, `name "a\tb" has a blank or a double quote` + unquoted},
		{"-i ! -o -F -j DROP", 4, `a name "!": it reads back as a negation`},
		{"-j DROP -o !", 12, `a name "!": it reads back as a negation`},
		{"-i! -j DROP", 3, `a name "!": it reads back as a negation`},
		{"-m set --match-set=! src", 20, `a name "!": it reads back as a negation`},
		{`-j IDLETIMER --timeout 5 --label "a -g b"`, 34, `name "a -g b" has a blank or a double quote` + unquoted},
		{`-m set --match-s "--a b" src`, 18, `name "--a b" has a blank or a double quote` + unquoted},
		{`-m string --algo bm --string "a\\\"b" -j DROP`, 30, "a backslash before a double quote: iptables prints it as an open quote"},
		{`-m string --algo bm --strin "a\\\"b" -j DROP`, 29, "a backslash before a double quote: iptables prints it as an open quote"},

		{"-m comment --comment 'a b' -j DROP", 22, "single quotes do not quote in iptables-restore: use double quotes"},
		{"-j LOG --log-prefix 'a -F b'", 21, "single quotes do not quote in iptables-restore: use double quotes"},

		{"-m comment --comment \"a\n-A INPUT -j ACCEPT\"", 24, "newline: a rule is one line"},
		{`-m comment --comment "half -j DROP`, 22, "quote does not close"},
		{strings.Repeat("! ", 249), 497, "more than 248 words: iptables-restore reads 251 of a line"},
		{strings.Repeat(strings.Repeat("x", 99)+" ", 99) + strings.Repeat("x", 61), 1, "rule of 9961 bytes: at most 9,960"},
	} {
		rule, err := ParseRule(test.text)
		want := &SyntaxError{1, test.column, test.text, test.reason}
		var got *SyntaxError
		if !errors.As(err, &got) {
			t.Errorf("%.60q: got %v, error %v", test.text, rule, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.60q: -want +got\n%s", test.text, diff)
		}
	}
}

func TestMustParseRule(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	MustParseRule("-F")
}

// TestOptionsAgainstGetopt holds the tables together: no name may stand in two of them with
// different meanings, and no extension's option may be a prefix of a forbidden one, which
// would let that one through.
func TestOptionsAgainstGetopt(t *testing.T) {
	seen := map[string]bool{}
	for name := range coreOptions {
		seen[name] = true
	}
	for _, list := range []string{valueOptions, flagOptions, eitherOptions} {
		for _, name := range strings.Fields(list) {
			if seen[name] {
				t.Errorf("%s is in two tables", name)
			}
			seen[name] = true
			if forbiddenLetter(name) != 0 {
				t.Errorf("%s abbreviates a forbidden option", name)
			}
		}
	}
}

func BenchmarkParseRule(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseRule(`-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -m comment --comment "two words" -j web-in`); err != nil {
			b.Fatal(err)
		}
	}
}
