// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParseRule holds what a Rule promises: its text is one line that reads back the same,
// and with a chain in front it is one -A of that chain.
func FuzzParseRule(f *testing.F) {
	for _, seed := range []string{
		"-j ACCEPT", "-jx", "-g x", `-m comment --comment "a \"b\" \\ c" -j DROP`, "-fjx -p tcp",
		"-m set ! --match-set a src", `"a"b`, `a"b c"`, "-j A -F", "--goto=x", "-m comment --comment 'a b'",
		"-c 1 2 --jump=x", "--unknown ! -j x", "\t-p\ttcp", "-m comment --comment né",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rule, err := ParseRule(text)
		if err != nil {
			_ = err.Error()
			return
		}
		for i := 0; i < len(rule.text); i++ {
			if c := rule.text[i]; c < ' ' && c != '\t' || c == 0x7F {
				t.Fatalf("%q: control character in %q", text, rule.text)
			}
		}
		again, err := ParseRule(rule.String())
		if err != nil {
			t.Fatalf("%q: %q: %v", text, rule, err)
		}
		if diff := cmp.Diff(rule, again, cmp.AllowUnexported(Rule{})); diff != "" {
			t.Fatalf("%q: -first +second\n%s", text, diff)
		}
		checkOneAppend(t, rule)
	})
}

// checkOneAppend puts a rule into a chain, and reads the block back.
func checkOneAppend(t *testing.T, rule Rule) {
	t.Helper()
	block := AppendRestore(nil, Block{Table: "filter", Lines: []Line{{Command: Append, Chain: "X", Rule: rule}}})
	in, err := ParseRestore(block)
	if err != nil {
		t.Fatalf("%q: %v", block, err)
	}
	if len(in.Blocks) != 1 || len(in.Blocks[0].Lines) != 1 {
		t.Fatalf("%q: %+v", block, in)
	}
	l := in.Blocks[0].Lines[0]
	if l.Command != Append || l.Chain != "X" || l.Rule.String() != rule.String() || l.RuleColumn != 6 {
		t.Fatalf("%q: %+v", block, l)
	}
}

// FuzzSplitWords holds that AppendWord and SplitWords are each other's inverse.
func FuzzSplitWords(f *testing.F) {
	for _, seed := range []string{`a "b c" d`, `"a\\\"b"c`, `a\ b`, `""`, `x"y z"w`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := SplitWords(line)
		if err != nil {
			return
		}
		joined := appendJoined(nil, words)
		again, err := SplitWords(string(joined))
		if err != nil && len(joined) <= maxLine {
			t.Fatalf("%q: %q: %v", line, joined, err)
		}
		text := func(a, b Word) bool { return a.Text == b.Text }
		if err == nil && !slices.EqualFunc(words, again, text) {
			t.Fatalf("%q: words %v, then %v", line, words, again)
		}
		for _, w := range words {
			if w.Column < 1 || w.Column > len(line) || isBlank(line[w.Column-1]) {
				t.Fatalf("%q: column %d", line, w.Column)
			}
		}
	})
}

// FuzzParseRestore holds that parsed input renders to input that says the same.
func FuzzParseRestore(f *testing.F) {
	addFiles(f, "testdata/*.rules")
	f.Add([]byte("# ip: 6\n*nat\n:a - [1:2]\n[1:2] -I a 3 -j b\n-D a 1\n-E a b\n-P INPUT DROP\n-F\n-X a\nCOMMIT"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := ParseRestore(data); err != nil {
			_ = err.Error()
		}
		checkStable(t, data)
	})
}

// FuzzParseSave holds that what is read can be sent: the rules without Err read back the same
// when they are printed again.
func FuzzParseSave(f *testing.F) {
	addFiles(f, "testdata/*.save")
	f.Add([]byte("*nat\n:a\"b - [0:0]\n-A a\"b -j \"x\n-A a\"b -m comment --comment \"a\nb\" -g c\nCOMMIT\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := ParseSave(bytes.NewReader(data))
		if err != nil {
			_ = err.Error()
			return
		}
		for _, table := range set.Tables {
			for _, chain := range table.Chains {
				for _, rule := range chain.Rules {
					checkSavedRule(t, rule)
				}
			}
		}
	})
}

func checkSavedRule(t *testing.T, rule SavedRule) {
	t.Helper()
	if rule.Err != nil {
		if !rule.Rule.IsZero() {
			t.Fatalf("a rule and an error: %+v", rule)
		}
		return
	}
	again, _ := savedRule(rule.Text)
	if diff := cmp.Diff(rule, again, cmp.AllowUnexported(Rule{})); diff != "" {
		t.Fatalf("-first +second\n%s", diff)
	}
	checkOneAppend(t, rule.Rule)
}

func addFiles(f *testing.F, pattern string) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatal(pattern, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}
