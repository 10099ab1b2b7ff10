// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"os"
	"path/filepath"
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

// hookSample is a rule that the kernel is asked about.
type hookSample struct {
	version string // "4", "6", "*" for both
	feature string // "" if the rule is not to add to the table
	rule    rules.Rule
}

// fate is what becomes of a rule in one table.
type fate struct {
	All             bool        // refused even where nothing reaches it
	Reached, Direct rules.Hooks // refused where these reach it, where it stands in these
}

// hookAnswers is what one combination has answered.
type hookAnswers struct {
	backend dataplane.Backend
	version rules.IPVersion
	samples []hookSample
	fates   map[string][]fate // by table, for each sample
}

// TestHooks holds rules/hooks.json and rules.RefusalsOf to the kernel; with -update it writes
// the file. It is part of package rules, so that a new one is seen when the tests are built
// again. Where another kernel or release differs the test is skipped, with the differences.
func TestHooks(t *testing.T) {
	samples, have := hookSamples(t), readHooks(t)
	here := hookTable{Kernel: release(t, readFile(t, "/proc/sys/kernel/osrelease"))}
	var mu sync.Mutex // guards got and here
	var got []hookAnswers
	t.Run("ask", func(t *testing.T) {
		testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
			t.Parallel()
			a := hookAnswers{backend: b, version: v}
			a.samples = askedOf(t, samples, a.in(), have.expand())
			a.fates = askHooks(t, a, have)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, a)
			here.Tools = release(t, k.Info().Version)
		})
	})
	switch {
	case t.Failed():
		return
	case len(got) == 0:
		t.Skip("no kernel to hold the table to")
	}
	problems := unsampled(samples)
	table := make(map[hookKey]fate)
	for _, a := range got {
		problems = append(problems, a.enter(table)...)
	}
	if *update {
		if len(got) != 4 || inUserNamespace(t) || len(problems) > 0 {
			t.Fatalf("the table is written by root where all 4 combinations are, not %d:\n%s", len(got), strings.Join(problems, "\n"))
		}
		writeHooks(t, here, table)
		return
	}
	for _, a := range got {
		problems = append(problems, a.judge()...)
	}
	if diff := compareHooks(t, have, table, got); diff != "" {
		problems = append(problems, "the table (-file +kernel; -update writes it anew):\n"+diff)
	}
	switch {
	case len(problems) == 0:
	case have.Kernel == here.Kernel && have.Tools == here.Tools:
		t.Error(strings.Join(problems, "\n"))
	default:
		t.Skipf("Linux %s with iptables %s is not as Linux %s with %s, of which the table is:\n%s",
			here.Kernel, here.Tools, have.Kernel, have.Tools, strings.Join(problems, "\n"))
	}
}

// unsampled returns the modules that are installed and that no rule names.
func unsampled(samples []hookSample) (problems []string) {
	have := map[string]bool{"standard": true, "NAT": true} // no names that a rule has
	for _, s := range samples {
		if words := strings.Fields(s.feature); len(words) > 1 {
			have[words[1]] = true
		}
	}
	for _, dir := range []string{"/usr/lib/*/xtables", "/usr/lib64/xtables", "/usr/lib/xtables"} {
		files, _ := filepath.Glob(dir + "/lib*.so") // the pattern is right
		for _, file := range files {
			if m := module.FindStringSubmatch(file); m != nil && !have[m[1]] {
				problems = append(problems, fmt.Sprintf("no rule in %s names %s", hookSamplesFile, m[1]))
			}
		}
	}
	return problems
}

var module = regexp.MustCompile(`/lib(?:xt|ipt|ip6t)_(\w+)\.so$`)

const hookSamplesFile = "testdata/hooks.rules"

func hookSamples(t *testing.T) []hookSample {
	t.Helper()
	var out []hookSample
	for _, line := range linesOf(t, hookSamplesFile) {
		if line == "" || line[0] == '#' {
			continue
		}
		names, rule, found := strings.Cut(line, " | ")
		version, feature, _ := strings.Cut(names, " ")
		parsed, err := rules.ParseRule(strings.TrimSpace(rule))
		if err != nil || !found {
			t.Fatalf("%s: %q: %v", hookSamplesFile, line, err)
		}
		out = append(out, hookSample{version, strings.TrimSpace(feature), parsed})
	}
	return out
}

// askedOf leaves out rules of the other IP version, those that are refused because of where we
// are, and, unless everything is asked, second rules of a feature and what the kernel of the
// file has not known.
func askedOf(t *testing.T, samples []hookSample, in string, have map[hookKey]fate) []hookSample {
	t.Helper()
	everything := *update || os.Getenv("TABLEWARD_SOAK") != ""
	mapped := inUserNamespace(t)
	var out []hookSample
	for _, s := range samples {
		_, unknown := have[hookKey{in, s.feature, everywhere}]
		again := s.feature != "" && slices.ContainsFunc(out, func(o hookSample) bool { return o.feature == s.feature })
		switch {
		case s.version != "*" && s.version != in[len(in)-1:]:
		case !everything && (again || unknown):
		case mapped && strings.Contains(s.rule.String(), "id-owner "):
			t.Logf("not asked: %s: in a user namespace the kernel refuses the ids of users", s.rule)
		default:
			out = append(out, s)
		}
	}
	return out
}

// in names the combination as the table does.
func (a *hookAnswers) in() string { return fmt.Sprintf("%s%d", a.backend, a.version) }

// absent tells whether a rule is refused everywhere.
func (a *hookAnswers) absent(i int) bool {
	for _, fates := range a.fates {
		if !fates[i].All {
			return false
		}
	}
	return true
}

// enter adds the answers to the table, and returns what does not fit in.
func (a *hookAnswers) enter(table map[hookKey]fate) (problems []string) {
	first := make(map[string]hookSample)
	for i, s := range a.samples {
		absent := hookKey{a.in(), s.feature, everywhere}
		for name, fates := range a.fates {
			f, key := fates[i], hookKey{a.in(), s.feature, name}
			if f.Reached&^f.Direct != 0 {
				problems = append(problems, fmt.Sprintf("%s %s: %s: refused below %v, not in them", a.in(), name, s.rule, (f.Reached&^f.Direct).Names()))
			}
			if s.feature == "" || a.absent(i) {
				continue
			}
			if before, again := table[key]; again && before != f {
				problems = append(problems, fmt.Sprintf("%s %s: %s gets %+v, %s %+v", a.in(), name, s.rule, f, first[s.feature].rule, before))
			}
			table[key] = f
		}
		_, known := first[s.feature]
		switch {
		case s.feature == "":
		case !a.absent(i) && !known:
			first[s.feature] = s
			delete(table, absent)
		case !known:
			table[absent] = fate{All: true}
		}
	}
	return problems
}

// judge returns the rules that RefusalsOf does not judge as the kernel does, which must know
// them.
func (a *hookAnswers) judge() (problems []string) {
	for i, s := range a.samples {
		if a.absent(i) {
			continue
		}
		for name, fates := range a.fates {
			id := rules.TableID{IPVersion: a.version, Name: name}
			refusals := rules.RefusalsOf(string(a.backend), id, s.rule)
			if got := fateOf(refusals); got != fates[i] {
				problems = append(problems, fmt.Sprintf("%s %s: %s: the kernel says %+v, RefusalsOf %+v", a.in(), name, s.rule, fates[i], refusals))
			}
		}
	}
	slices.Sort(problems)
	return problems
}

func fateOf(refusals []rules.Refusal) fate {
	var f fate
	for _, r := range refusals {
		f.All = f.All || r.Table
		f.Reached |= r.Reached
		f.Direct |= r.Direct
	}
	if f.All {
		return fate{All: true}
	}
	return f
}

// compareHooks compares what combinations have answered with the file, but for features that
// one of the two does not know.
func compareHooks(t *testing.T, have hookTable, table map[hookKey]fate, got []hookAnswers) string {
	t.Helper()
	want := have.expand()
	ran := make(map[string]bool)
	for _, a := range got {
		ran[a.in()] = true
	}
	unknown := make(map[hookKey]bool)
	for _, m := range []map[hookKey]fate{want, table} {
		for key := range m {
			if key.table == everywhere {
				unknown[key] = true
			}
		}
	}
	left := func(m map[hookKey]fate) map[string]fate {
		out := make(map[string]fate)
		for key, f := range m {
			absent := hookKey{key.in, key.feature, everywhere}
			if f != (fate{}) && ran[key.in] && !unknown[absent] {
				out[fmt.Sprint(key)] = f
			}
		}
		return out
	}
	for key := range unknown {
		if _, known := want[key]; !known {
			t.Logf("not compared: %s is refused everywhere in %s", key.feature, key.in)
		}
	}
	return cmp.Diff(left(want), left(table))
}

// release returns the numbers of a version.
func release(t *testing.T, text string) string {
	t.Helper()
	found := regexp.MustCompile(`\d+(\.\d+)+`).FindString(text)
	if found == "" {
		t.Fatalf("no version in %q", text)
	}
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
