// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

func TestCasesKernel(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
		testCases(t, v, func(t *testing.T) world { return newNamespace(t, b) })
	})
}

func TestCasesSim(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			t.Run(fmt.Sprintf("%s%d", b, v), func(t *testing.T) {
				testCases(t, v, func(*testing.T) world { return simWorld{dataplane.NewSim(b)} })
			})
		}
	}
}

func testCases(t *testing.T, v rules.IPVersion, fresh func(*testing.T) world) {
	for _, c := range loadCases(t, v) {
		t.Run(c.name, func(t *testing.T) {
			switch c.want {
			case "ok":
				t.Run("empty", func(t *testing.T) { c.testOK(t, fresh, "") })
				t.Run("foreign", func(t *testing.T) { c.testOK(t, fresh, c.foreign(t)) })
			case "refused":
				c.testRefused(t, fresh(t))
			case "rejected":
				c.testRejected(t, fresh)
			default:
				t.Fatalf("tw=%s", c.want)
			}
		})
	}
}

func (c ruleCase) args() []string {
	if c.v == rules.IPv6 {
		return []string{"--ipv6", "-o", "json", c.path}
	}
	return []string{"-o", "json", c.path}
}

// plain is the file as the tools read it: without CR, with a last newline.
func (c ruleCase) plain() string {
	text := strings.ReplaceAll(string(c.data), "\r\n", "\n")
	return strings.TrimSuffix(text, "\n") + "\n"
}

func (c ruleCase) input(t *testing.T) *rules.Input {
	t.Helper()
	input, err := rules.ParseRestore(c.data)
	if err != nil {
		t.Fatal(err)
	}
	return input
}

// foreign is restore input with three rules of a stranger in each built-in chain.
func (c ruleCase) foreign(t *testing.T) string {
	source := "203.0.113.%d/32"
	if c.v == rules.IPv6 {
		source = "2001:db8:f::%d/128"
	}
	var b strings.Builder
	for _, block := range c.input(t).Blocks {
		fmt.Fprintf(&b, "*%s\n", block.Table)
		for _, chain := range rules.BuiltinChains(block.Table) {
			for i := range 3 {
				fmt.Fprintf(&b, "-A %s -s "+source+" -j ACCEPT\n", chain, i+1)
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func (c ruleCase) prepare(t *testing.T, w world, foreign string) {
	t.Helper()
	for _, s := range c.sets {
		w.addSet(t, c.v, s)
	}
	if c.pre != "" {
		pre, err := os.ReadFile(c.pre)
		if err != nil {
			t.Fatal(err)
		}
		w.load(t, c.v, string(pre))
	}
	if foreign != "" {
		w.load(t, c.v, foreign)
	}
}

// testOK applies the file, twice, and compares with what the plain tool makes of it. Diff
// before it shows what comes, the second run and diff after it find nothing to do.
func (c ruleCase) testOK(t *testing.T, fresh func(*testing.T) world, foreign string) {
	plain, ours := fresh(t), fresh(t)
	c.prepare(t, plain, foreign)
	plain.load(t, c.v, c.plain())
	c.prepare(t, ours, foreign)
	promised := ours.tableward(t, "diff", c.args()...)
	for _, when := range []string{"first", "second"} {
		r := ours.tableward(t, "apply", c.args()...)
		if r.code != exitOK {
			t.Fatalf("%s apply: exit status %d\n%s%s", when, r.code, r.stdout, r.stderr)
		}
		c.compare(t, when, plain, ours)
		if when == "second" {
			checkNoRestore(t, r)
		}
	}
	checkPromise(t, promised, ours)
	checkNoDiff(t, ours.tableward(t, "diff", c.args()...))
}

// checkNoRestore holds that an apply found everything in place.
func checkNoRestore(t *testing.T, r result) {
	t.Helper()
	var out applyOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	for _, table := range out.Tables {
		if table.Restores != 0 {
			t.Errorf("the second apply sent %d blocks to %d/%s", table.Restores, table.IP, table.Table)
		}
	}
}

func (c ruleCase) compare(t *testing.T, when string, plain, ours world) {
	t.Helper()
	for _, block := range c.input(t).Blocks {
		id := rules.TableID{IPVersion: c.v, Name: block.Table}
		want, got := plain.chains(t, id), ours.chains(t, id)
		named := map[string]bool{}
		for _, l := range block.Lines {
			named[l.Chain] = true
		}
		for chain := range named {
			expect := want[chain]
			if rules.IsBuiltin(id.Name, chain) {
				expect = once(expect)
			}
			if diff := cmp.Diff(expect, got[chain]); diff != "" {
				t.Errorf("%s apply: %s of %s (-plain restore +tableward):\n%s", when, chain, id, diff)
			}
		}
	}
}

// once keeps the first of equal rules: a kernel chain holds each rule of ours once.
func once(lines []string) []string {
	var out []string
	for _, l := range lines {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

func (c ruleCase) testRefused(t *testing.T, w world) {
	c.prepare(t, w, "")
	r := w.tableward(t, "apply", c.args()...)
	var out applyOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	if line := strconv.Itoa(out.Refused[0].Line); r.code != exitUsage || len(out.Refused) != 1 || line != c.arg {
		t.Errorf("exit status %d, refused %+v; want %d, line %s", r.code, out.Refused, exitUsage, c.arg)
	}
	if len(out.Answers) != 0 {
		t.Errorf("answers: %+v", out.Answers)
	}
}

// testRejected holds that what is rejected is that message, and that all others are in the
// kernel as they were written.
func (c ruleCase) testRejected(t *testing.T, fresh func(*testing.T) world) {
	w := fresh(t)
	c.prepare(t, w, "")
	r := w.tableward(t, "apply", c.args()...)
	var out applyOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatal(err)
	}
	if r.code != exitPartly {
		t.Errorf("exit status %d, want %d\n%s", r.code, exitPartly, r.stdout)
	}
	failed := 0
	for _, a := range out.Answers {
		if a.Error == nil {
			continue
		}
		failed++
		if a.Result != "rejected" && a.Result != "conflict" {
			t.Errorf("%s: %s: %s", a.ID, a.Result, a.Error.Reason)
		}
		if c.arg != "" && a.Error.Chain != c.arg {
			t.Errorf("%s: chain %q, want %q", a.ID, a.Error.Chain, c.arg)
		}
		if c.line != 0 && a.Error.Line != c.line {
			t.Errorf("%s: line %d, want %d: %s", a.ID, a.Error.Line, c.line, a.Error.Reason)
		}
	}
	if failed == 0 || c.arg != "" && failed != 1 {
		t.Errorf("%d messages failed", failed)
	}
	c.checkRest(t, w, out)
}

// checkRest holds that each chain whose message was applied has all its rules, and each
// other none.
func (c ruleCase) checkRest(t *testing.T, w world, out applyOutput) {
	set, err := loadFiles([]string{c.path}, nil, &flags{ipv6: c.v == rules.IPv6})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range set.messages() {
		got := w.chains(t, m.Table)[m.Head.Chain]
		want := len(m.Rules)
		if out.Answers[i].Error != nil {
			want = 0
		}
		if len(got) != want {
			t.Errorf("%s: chain %s has %d rules, want %d: %q", m.ID, m.Head.Chain, len(got), want, got)
		}
	}
}
