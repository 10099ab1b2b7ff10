// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

const vocabularyFile = "testdata/vocabulary.json"

// asked is a rule that the tools are asked about.
type asked struct{ table, rule string }

// vocabularyRules returns the rules of testdata/vocabulary.rules, and those of the
// repository's cases.
func vocabularyRules(t testing.TB) []asked {
	t.Helper()
	var out []asked
	for _, line := range linesOf(t, "testdata/vocabulary.rules") {
		if table, rule, _ := strings.Cut(line, " "); rules.IsTable(table) {
			out = append(out, asked{table, rule})
		}
	}
	for _, input := range caseInputs(t) {
		var table string
		for line := range strings.Lines(input) {
			line = strings.TrimRight(line, "\r\n")
			if name, found := strings.CutPrefix(line, "*"); found {
				table = strings.TrimSpace(name)
			} else if rule, found := ruleOf(line); found && rules.IsTable(table) {
				out = append(out, asked{table, rule})
			}
		}
	}
	seen := make(map[asked]bool)
	return slices.DeleteFunc(out, func(a asked) bool {
		key := asked{a.table, dataplane.VocabularyKey(a.rule)}
		again := seen[key]
		seen[key] = true
		return again
	})
}

var addsRule = regexp.MustCompile(`^(?:\[\d+:\d+\] )?(?:-A|--append|-I|-D) (\S+) (?:\d+ )?(-.*|! .*)$`)

// ruleOf returns the rule of a line that adds or deletes one, unless it is a rule that reads on
// in the next line.
func ruleOf(line string) (string, bool) {
	m := addsRule.FindStringSubmatch(line)
	if m == nil {
		return "", false
	}
	_, err := rules.SplitWords(m[2])
	return m[2], err == nil
}

func linesOf(t testing.TB, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, s.Text())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// makeSets makes the sets that rules name, of the tables' own IP version, in the namespace.
func makeSets(t testing.TB, ns string, v rules.IPVersion, sets ...string) {
	t.Helper()
	family := "inet"
	if v == rules.IPv6 {
		family = "inet6"
	}
	for _, name := range sets {
		out, err := exec.Command("nsenter", "--net="+ns, "ipset", "-exist", "create", name, "hash:ip", "family", family).CombinedOutput()
		if err != nil {
			t.Fatalf("ipset %s: %v: %s", name, err, out)
		}
	}
}

// asker asks one backend about rules of one IP version.
type asker struct {
	k        *dataplane.Kernel
	v        rules.IPVersion
	ns       string
	declared map[asked]bool // tables' chains and, with no table, sets
	n        int
}

// chain is where rule number n of a table stands.
func (a *asker) chain(n int) string { return fmt.Sprintf("v-%d", n) }

// ask loads one rule in a chain of its own, and returns what the tool has against it; the
// chain's number is in n.
func (a *asker) ask(t *testing.T, r asked) dataplane.Known {
	t.Helper()
	a.n++
	var b strings.Builder
	line := 2
	declare := func(name string) {
		if key := (asked{r.table, name}); !a.declared[key] && name != "" && !rules.IsBuiltin(r.table, name) {
			a.declared[key] = true
			line++
			b.WriteString(":" + name + " - [0:0]\n")
		}
	}
	b.WriteString("*" + r.table + "\n")
	declare(a.chain(a.n))
	if parsed, err := rules.ParseRule(r.rule); err == nil {
		declare(parsed.Jump())
		for _, name := range parsed.Sets() {
			if key := (asked{"", name}); !a.declared[key] {
				a.declared[key] = true
				makeSets(t, a.ns, a.v, name)
			}
		}
	}
	b.WriteString("-A " + a.chain(a.n) + " " + r.rule + "\nCOMMIT\n")
	id := rules.TableID{IPVersion: a.v, Name: r.table}
	err := a.k.Restore(context.Background(), id, []byte(b.String()))
	if err == nil {
		return dataplane.Known{}
	}
	// What a refused block declares is not there.
	if parsed, err := rules.ParseRule(r.rule); err == nil {
		delete(a.declared, asked{r.table, parsed.Jump()})
	}
	var re *dataplane.RestoreError
	if !errors.As(err, &re) {
		t.Fatalf("%v: %v", r, err)
	}
	known, err := knownOf(re, line)
	if err != nil {
		t.Fatalf("%s %s: %v", r.table, r.rule, err)
	}
	return known
}

var (
	wordsF1     = regexp.MustCompile(`(?s)^(?:Warning: [^\n]*\n)*(.*)\nError occurred at line: \d+\n`)
	wordsKernel = regexp.MustCompile(`(?m)^line \d+: RULE_APPEND failed \((.*)\): rule in chain`)
	speaker     = regexp.MustCompile(`(?s)^(\S*ip6?tables\S*) v[0-9.]+ \([a-z_]+\): (.*)$`)
)

// knownOf takes a refusal of the rule that stood on the line apart.
func knownOf(re *dataplane.RestoreError, line int) (dataplane.Known, error) {
	k := dataplane.Known{Exit: re.ExitCode}
	switch m := wordsF1.FindStringSubmatch(re.Stderr); {
	case m != nil && re.Line == line:
		k.Words, k.Bare = m[1], true
		if s := speaker.FindStringSubmatch(k.Words); s != nil {
			k.Words, k.Bare = strings.ReplaceAll(s[2], s[1], dataplane.ProgramMark), false
		}
	case re.ExitCode == 4 && re.Line == line && wordsKernel.MatchString(re.Stderr):
		k.Words = wordsKernel.FindStringSubmatch(re.Stderr)[1]
	case re.ExitCode == 1 && re.Class == dataplane.RejectedSomewhere:
		k.Words = "Invalid argument" // what the tool does not say
	default:
		return k, fmt.Errorf("line %d, not %d: exit %d, %q", re.Line, line, re.ExitCode, re.Stderr)
	}
	return k, nil
}

// answers asks about all rules, in their order.
func answers(t *testing.T, k *dataplane.Kernel, b dataplane.Backend, v rules.IPVersion, ns string, list []asked) []dataplane.Known {
	a := asker{k: k, v: v, ns: ns, declared: make(map[asked]bool)}
	out := make([]dataplane.Known, len(list))
	tables := make(map[string]bool)
	for i, r := range list {
		out[i] = a.ask(t, r)
		tables[r.table] = true
	}
	for table := range tables {
		snap, err := k.Read(context.Background(), rules.TableID{IPVersion: v, Name: table})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range list {
			c, ok := snap.Chains[a.chain(i+1)]
			if r.table != table || !ok {
				continue
			}
			out[i].Canon = make([]string, len(c.Rules))
			for j, saved := range c.Rules {
				out[i].Canon[j] = saved.Text
			}
		}
	}
	return out
}

// TestVocabulary holds the vocabulary to the tools; with -update it writes it. It is part of
// the package, so that tests see a new one when they are built again.
func TestVocabulary(t *testing.T) {
	list := vocabularyRules(t)
	var mu sync.Mutex // guards got
	got := make(map[string][]dataplane.Known)
	t.Run("ask", func(t *testing.T) {
		testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
			if version := k.Info().Version; !strings.Contains(version, dataplane.SimVersion[1:]) {
				t.Skipf("the vocabulary is that of %s, not of %s", dataplane.SimVersion, version)
			}
			ns := testns.New(t)
			k, err := dataplane.NewKernel(context.Background(), testns.Options(t, ns, b))
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			out := answers(t, k, b, v, ns, list)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%s%d", b, v)] = out
		})
	})
	mapped := inUserNamespace(t)
	if *update && mapped {
		t.Fatal("the vocabulary is written by root: in a user namespace the kernel refuses some rules")
	}
	if *update {
		writeVocabulary(t, list, got)
		return
	}
	for in, out := range got {
		for i, r := range list {
			if mapped && strings.Contains(r.rule, "-owner ") {
				continue // the kernel refuses ids that the user namespace does not map
			}
			want, ok := dataplane.LookUp(in, r.table, r.rule)
			if diff := cmp.Diff(want, out[i]); diff != "" || !ok {
				t.Errorf("%s %s %s (-vocabulary +tool; -update writes it anew):\n%s", in, r.table, r.rule, diff)
			}
		}
	}
}

// inUserNamespace tells whether the test's ids are not the machine's own.
func inUserNamespace(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// writeVocabulary writes one line for each rule; combinations with the same answer share it.
func writeVocabulary(t *testing.T, list []asked, got map[string][]dataplane.Known) {
	t.Helper()
	if len(got) != 4 {
		t.Fatalf("only %d of 4 combinations have answered", len(got))
	}
	entries := make([]dataplane.Entry, len(list))
	for i := range list {
		e := dataplane.Entry{Table: list[i].table, Rule: list[i].rule}
		for _, in := range []string{"legacy4", "legacy6", "nft4", "nft6"} {
			k := got[in][i]
			at := slices.IndexFunc(e.Answers, func(have dataplane.Known) bool {
				k.In = have.In
				return cmp.Equal(have, k)
			})
			if at < 0 {
				at, k.In = len(e.Answers), nil
				e.Answers = append(e.Answers, k)
			}
			e.Answers[at].In = append(e.Answers[at].In, in)
		}
		entries[i] = e
	}
	text, err := dataplane.EncodeVocabulary(entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vocabularyFile, text, 0o666); err != nil {
		t.Fatal(err)
	}
}
