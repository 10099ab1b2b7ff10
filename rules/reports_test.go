// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The tests of this file are named by the public bug reports about programs of this kind
// whose mistakes they keep out. Those of reports_test.go in other packages go on with them.

// savedPair returns what a file asks for and what the tools (1.8.9, either backend) save of
// it, each as the rules of its chains.
func savedPair(t *testing.T, name string) (asked, saved map[string][]string) {
	t.Helper()
	asked, saved = map[string][]string{}, map[string][]string{}
	text, err := os.ReadFile("testdata/" + name + ".rules")
	if err != nil {
		t.Fatal(err)
	}
	in, err := ParseRestore(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range in.Blocks[0].Lines {
		switch l.Command {
		case Declare:
			asked[l.Chain] = nil
		case Append:
			asked[l.Chain] = append(asked[l.Chain], l.Rule.String())
		}
	}
	for _, c := range savedTable(t, readTestdata(t, name+".save")).Chains {
		if IsBuiltin(in.Blocks[0].Table, c.Name) && len(c.Rules) == 0 {
			continue
		}
		saved[c.Name] = nil
		for _, r := range c.Rules {
			if r.Err != nil {
				t.Errorf("%s: %s: %v", c.Name, r.Text, r.Err)
			}
			saved[c.Name] = append(saved[c.Name], r.Text)
		}
	}
	return asked, saved
}

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// savedTable parses save output of one table.
func savedTable(t *testing.T, text string) SavedTable {
	t.Helper()
	set, err := ParseSave(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Tables) != 1 || !set.Tables[0].Complete {
		t.Fatalf("tables %+v", set.Tables)
	}
	return set.Tables[0]
}

// R47: what is quoted ends nothing and begins nothing, and a name is a name: what the tools
// save of each rule is that rule, whole.
func TestR47QuotesAndNamesInSaveOutput(t *testing.T) {
	for _, name := range []string{"comment-quoting", "odd-chain-names", "flannel"} {
		asked, saved := savedPair(t, name)
		if diff := cmp.Diff(asked, saved); diff != "" {
			t.Errorf("%s (-asked for +saved):\n%s", name, diff)
		}
	}
	old := savedTable(t, readTestdata(t, "old-save-format.save"))
	want := []string{"-j NFLOG --nflog-prefix K:x --nflog-group 100", `-j LOG --log-prefix "a b "`}
	var got []string
	for _, r := range old.Chains[3].Rules {
		got = append(got, r.Text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("two blanks behind --nflog-prefix (-want +got):\n%s", diff)
	}
}

// R49: an option within a name or within quotes is none.
func TestR49OptionsInsideOfNamesAndValues(t *testing.T) {
	table := savedTable(t, "*filter\n:INPUT ACCEPT [0:0]\n:LAN-p - [0:0]\n:x-j - [0:0]\n"+
		"-A LAN-p -p tcp -m comment --comment \"-p udp -j DROP ! -s 10.0.0.1 -A INPUT\" -j x-j\n"+
		"-A x-j -m comment --comment \"a -g LAN-p\" -j LOG --log-prefix \"-j LAN-p \"\n"+
		"-A INPUT -j LAN-p\nCOMMIT\n")
	want := map[string][]string{"INPUT": {"LAN-p"}, "LAN-p": {"x-j"}, "x-j": nil}
	got := map[string][]string{}
	for _, c := range table.Chains {
		got[c.Name] = c.Jumps
		if len(c.Rules) != 1 || c.Rules[0].Err != nil {
			t.Errorf("%s: %+v", c.Name, c.Rules)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jumps (-want +got):\n%s", diff)
	}
}

// R50: two comments of one rule are both kept, in their order.
func TestR50TwoComments(t *testing.T) {
	_, saved := savedPair(t, "comment-quoting")
	rs := saved["c-quote"]
	want := `-m comment --comment cali:Hn3xYq_-7Zk2Wm1P -m comment --comment "Second comment on the same rule." -j RETURN`
	if got := rs[len(rs)-1]; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// R52: --random-fully is one option, and --random none of the rule.
func TestR52WholeOptionNames(t *testing.T) {
	_, saved := savedPair(t, "flannel")
	for _, text := range saved["FLANNEL-POSTRTG"][4:] {
		words, err := SplitWords(text)
		if err != nil {
			t.Fatal(err)
		}
		var random []string
		for _, w := range words {
			if strings.HasPrefix(w.Text, "--random") || strings.HasSuffix(w.Text, "fully") {
				random = append(random, w.Text)
			}
		}
		if diff := cmp.Diff([]string{"--random-fully"}, random); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if rule := MustParseRule(text); rule.Target() != "MASQUERADE" {
			t.Errorf("%s: target %s", text, rule.Target())
		}
	}
}

// R53: some releases quote a comment of one word and some do not. It is the same rule, the
// same chain content, and no drift.
func TestR53QuotesAroundOneWord(t *testing.T) {
	read := func(comment string) SavedChain {
		return savedTable(t, "*filter\n:a - [0:0]\n-A a -p tcp -m comment --comment "+comment+" -j ACCEPT \nCOMMIT\n").Chains[0]
	}
	for plain, quoted := range map[string]string{
		"smtp-out": `"smtp-out"`, "COMMIT": `"COMMIT"`, "don't": `"don\'t"`, `C:\temp`: `"C:\\temp"`,
	} {
		a, b := read(plain), read(quoted)
		if a.Rules[0].Text != b.Rules[0].Text || a.Digest != b.Digest || a.Rules[0].Err != nil {
			t.Errorf("%s: %+v\n%s: %+v", plain, a, quoted, b)
		}
		if one, two := MustParseRule("-m comment --comment "+plain), MustParseRule("-m comment --comment "+quoted); one.String() != two.String() {
			t.Errorf("%s and %s are written as two rules", one, two)
		}
	}
}

// R58: a comment that holds newlines makes one rule of several lines. What stands in them is
// text: no chain, no table and no end; and the rule is never sent again.
func TestR58NewlinesInAComment(t *testing.T) {
	table := savedTable(t, readTestdata(t, "embedded-newline.save"))
	var names []string
	held := map[string][]SavedRule{}
	for _, c := range table.Chains {
		names = append(names, c.Name)
		held[c.Name] = c.Rules
	}
	if diff := cmp.Diff([]string{"INPUT", "FORWARD", "OUTPUT", "felix-IN", "felix-OUT"}, names); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
	if rs := held["felix-IN"]; len(rs) != 1 || rs[0].Err == nil || !rs[0].Rule.IsZero() || strings.Contains(rs[0].Text, "\n") {
		t.Errorf("felix-IN: %+v", rs)
	}
	if rs := held["felix-OUT"]; len(rs) != 1 || rs[0].Text != "-j RETURN" || rs[0].Err != nil {
		t.Errorf("felix-OUT: %+v", rs)
	}
}

// R59: a text that was put into a rule unfiltered adds no rules of its own: a line end or NUL
// is refused, with its byte, wherever it stands.
func TestR59Injection(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\x00", "\r\n"} {
		evil := end + "-I INPUT -j ACCEPT"
		for _, text := range []string{
			`-m comment --comment "label: pwn"` + evil, `-m comment --comment "` + evil + `" -j DROP`,
			`-j LOG --log-prefix "x` + evil + `"`, "-j web" + evil, "-m set --match-set a" + evil + " src", evil, "-p tcp" + end,
		} {
			rule, err := ParseRule(text)
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Column != strings.Index(text, end)+1 || syntax.Text != text {
				t.Errorf("%q: %q, error %+v", text, rule, syntax)
			} else if shown := syntax.Error(); strings.Count(shown, "\n") != 2 || strings.ContainsAny(shown, "\r\x00") {
				t.Errorf("%q: the error goes on lines of its own: %q", text, shown)
			}
		}
		if err := CheckChainName("web" + evil); err == nil {
			t.Errorf("a chain name with %q was taken", end)
		}
	}
}

// R59: what was built from any text, word by word, is that text again and nothing else.
func TestR59BuiltFromAnyText(t *testing.T) {
	for _, label := range []string{
		`" -j ACCEPT`, `\" -j ACCEPT`, `\`, `\\`, `x\`, `"`, `""`, `' -j ACCEPT`, `a "b" 'c' \d`, "-F", "-j", "! -F", "", " ",
		"\t-A INPUT -j ACCEPT", `label: "pwn" -m comment --comment "`, "é\\\"é",
	} {
		text := append(AppendWord([]byte("-m comment --comment "), label), " -j DROP"...)
		rule, err := ParseRule(string(text))
		if err != nil {
			t.Errorf("%q: %v", label, err)
			continue
		}
		words, err := SplitWords(rule.String())
		if err != nil || len(words) != 6 || words[3].Text != label || rule.Target() != "DROP" {
			t.Errorf("%q became %s: %v, %v", label, rule, words, err)
		}
	}
}

// R61: the tools take a quote that does not close, and a NUL, and lose the rest of the line:
// a DROP without its target, with exit code 0. Neither is sent.
func TestR61QuoteThatSwallowsTheTarget(t *testing.T) {
	for text, reason := range map[string]string{
		`-m comment --comment "half open -j DROP`:          "quote does not close",
		`-m comment --comment "half \" open -j DROP`:       "quote does not close",
		`-m comment --comment "a" -m comment "b -j DROP`:   "quote does not close",
		`-m comment --comment x" -j DROP`:                  "quote does not close",
		"-s 192.0.2.1\x00 -j DROP":                         "NUL byte",
		"-m comment --comment \"a\x00b\" -j DROP":          "NUL byte",
		`-m comment --comment "ends with a \` + ` -j DROP`: "quote does not close",
	} {
		if rule, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %q, error %v", text, rule, err)
		}
		input := "*filter\n:x - [0:0]\n-A x " + text + "\nCOMMIT\n"
		if _, err := ParseRestore([]byte(input)); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%q in a file: error %v", text, err)
		}
	}
}

// R62: single quotes do not quote, and the error says so, rather than "Bad argument `b”".
func TestR62SingleQuotes(t *testing.T) {
	_, err := ParseRule("-m comment --comment 'a b' -j DROP")
	want := "line 1, column 22: single quotes do not quote in iptables-restore: use double quotes\n" +
		"-m comment --comment 'a b' -j DROP\n                     ^"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	for _, text := range []string{"-m comment --comment don't -j DROP", "-m comment --comment 'a' -j DROP", `-m comment --comment "'a b'" -j DROP`} {
		if rule, err := ParseRule(text); err != nil || rule.Target() != "DROP" {
			t.Errorf("%s: %v, %v", text, rule, err)
		}
	}
}
