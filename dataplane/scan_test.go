// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// scanning is a Kernel in a namespace of which the path is known.
type scanning struct {
	*dataplane.Kernel
	t  testing.TB
	ns string
	v  rules.IPVersion
}

func newScanning(t testing.TB, b dataplane.Backend, v rules.IPVersion) scanning {
	t.Helper()
	ns := testns.New(t)
	k, err := dataplane.NewKernel(background, testns.Options(t, ns, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeScanning(t, k) })
	return scanning{k, t, ns, v}
}

// eachScanning runs f for each combination, with a Kernel in a namespace of its own.
func eachScanning(t *testing.T, f func(t *testing.T, b dataplane.Backend, k scanning)) {
	t.Helper()
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		f(t, b, newScanning(t, b, v))
	})
}

func (k scanning) id(table string) rules.TableID { return rules.TableID{IPVersion: k.v, Name: table} }

// load loads lines, joined by "; ", in a table.
func (k scanning) load(table, lines string) {
	k.t.Helper()
	if err := k.Restore(background, k.id(table), []byte(block(table, forFamily(k.v, lines)))); err != nil {
		k.t.Fatalf("%s: %v", lines, err)
	}
}

func (k scanning) scan(table string, chains ...string) rules.Snapshot {
	k.t.Helper()
	snap, err := k.Scan(background, k.id(table), chains...)
	if err != nil {
		k.t.Fatal(err)
	}
	return snap
}

func (k scanning) expect(table string, chains ...rules.Chain) map[string]rules.SavedChain {
	k.t.Helper()
	out, err := k.Expect(background, k.id(table), chains)
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}

// run runs a command in the namespace.
func (k scanning) run(args ...string) string {
	k.t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=" + k.ns}, args...)...).CombinedOutput()
	if err != nil {
		k.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// sample is a rule that a backend takes, in a chain of its own.
type sample struct {
	table string
	chain rules.Chain
	canon string // how the tools read it back
}

// samples are the rules of the vocabulary that one combination takes.
func samples(t *testing.T, b dataplane.Backend, v rules.IPVersion) []sample {
	t.Helper()
	mapped := inUserNamespace(t)
	var out []sample
	for i, a := range vocabularyRules(t) {
		known, ok := dataplane.LookUp(fmt.Sprintf("%s%d", b, v), a.table, a.rule)
		r, err := rules.ParseRule(a.rule)
		if !ok || known.Exit != 0 || err != nil || mapped && strings.Contains(a.rule, "-owner ") {
			continue
		}
		c := rules.Chain{Name: fmt.Sprintf("v-%d", i), Rules: []rules.Rule{r}}
		out = append(out, sample{a.table, c, strings.Join(known.Canon, "\n")})
	}
	if len(out) < 200 {
		t.Fatalf("only %d samples", len(out))
	}
	return out
}

// loadSamples loads samples in their order, with their sets.
func (k scanning) loadSamples(list []sample) {
	k.t.Helper()
	blocks := map[string][]string{}
	for _, s := range list {
		r := s.chain.Rules[0]
		makeSets(k.t, k.ns, k.v, r.Sets()...)
		heads := []string{":" + s.chain.Name + " - [0:0]"}
		if to := r.Jump(); to != "" {
			heads = append(heads, ":"+to+" - [0:0]")
		}
		blocks[s.table] = append(append(blocks[s.table], heads...), "-A "+s.chain.Name+" "+r.String())
	}
	for table, lines := range blocks {
		if err := k.Restore(background, k.id(table), []byte("*"+table+"\n"+strings.Join(lines, "\n")+"\nCOMMIT\n")); err != nil {
			k.t.Fatal(err)
		}
	}
}

var allTables = []string{"filter", "nat", "mangle", "raw", "security"}

// Equal rules have equal digests in namespaces of different histories, and different rules have
// different ones; and Expect expects what Scan finds.
func TestScanDigests(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, one scanning) {
		list := samples(t, b, one.v)
		one.loadSamples(list)
		two := newScanning(t, b, one.v)
		two.loadSamples(list[:len(list)/3])
		makeSets(t, two.ns, one.v, "tw-1", "tw-2", "tw-3", "tw-4", "tw-5")
		for _, table := range allTables {
			two.load(table, "-F; -X; :tw-other - [0:0]; -A tw-other -p tcp -j ACCEPT; -A OUTPUT -j tw-other")
		}
		back := slices.Clone(list)
		slices.Reverse(back)
		two.loadSamples(back)
		for _, table := range allTables {
			of := slices.DeleteFunc(slices.Clone(list), func(s sample) bool { return s.table != table })
			live := one.scan(table).Chains
			compareDigests(t, of, live, two.scan(table).Chains)
			var chains []rules.Chain
			var names []string
			for _, s := range of {
				chains = append(chains, s.chain)
				if s.chain.Rules[0].Target() != "IDLETIMER" {
					names = append(names, s.chain.Name)
				}
			}
			want := one.scan(table, names...).Chains
			for name, c := range want {
				if c.Digest != live[name].Digest {
					t.Errorf("%s: %x by its name, else %x", name, c.Digest, live[name].Digest)
				}
			}
			if diff := cmp.Diff(want, one.expect(table, chains...)); diff != "" {
				t.Errorf("%s (-live +expected):\n%s", table, diff)
			}
		}
	})
}

// everything has the ways to match everything that the kernel tells apart though the tools do
// not.
var everything = regexp.MustCompile(`(^| )(-[io] \+|-[sd] \S+/0|-p (all|0))( |$)`)

// compareDigests compares what two namespaces have of samples of one table.
func compareDigests(t *testing.T, list []sample, one, two map[string]rules.SavedChain) {
	t.Helper()
	canons, digests := map[uint64]string{}, map[string]uint64{}
	for _, s := range list {
		a, z := one[s.chain.Name], two[s.chain.Name]
		if a.Digest == 0 || a.Digest != z.Digest || !slices.Equal(a.Jumps, z.Jumps) {
			t.Errorf("%s %s: %+v, elsewhere %+v", s.table, s.canon, a, z)
		}
		if other, found := canons[a.Digest]; found && other != s.canon {
			t.Errorf("%s: one digest for %s\nand %s", s.table, s.canon, other)
		}
		canons[a.Digest] = s.canon
		if everything.MatchString(s.chain.Rules[0].String()) {
			continue
		}
		if other, found := digests[s.canon]; found && other != a.Digest {
			t.Errorf("%s: two digests for %s, one written %s", s.table, s.canon, s.chain.Rules[0])
		}
		digests[s.canon] = a.Digest
	}
}

// Scan shows the chains, jumps and policies that iptables-save shows.
func TestScanShowsWhatSaveShows(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		for _, table := range allTables {
			sameAsSave(t, k, table)
		}
		for _, c := range caseFiles(t) {
			if c.v6 != (k.v == rules.IPv6) {
				continue
			}
			makeSets(t, k.ns, k.v, c.sets...)
			for table, text := range blocksOf(c.input) {
				_ = k.Restore(background, k.id(table), []byte(text)) // what is refused is not there
				sameAsSave(t, k, table)
			}
		}
	})
}

// sameAsSave compares Scan with Read.
func sameAsSave(t *testing.T, k scanning, table string) {
	t.Helper()
	read, err := k.Read(background, k.id(table))
	if err != nil {
		t.Fatal(err)
	}
	rulesOf := map[string][]rules.SavedRule{}
	for name, c := range read.Chains {
		rulesOf[name] = c.Rules
		c.Digest, c.Full, c.Rules = 0, false, nil
		read.Chains[name] = c
	}
	got := k.scan(table)
	for name, c := range got.Chains {
		c.Digests = nil // legacy has them here too
		got.Chains[name] = c
	}
	names := append(slices.Collect(maps.Keys(got.Chains)), "", "no-such-chain", strings.Repeat("x", 127), strings.Repeat("x", 70000))
	named := k.scan(table, names...)
	for name, c := range named.Chains {
		if c.Digests == nil || len(c.Digests) != len(rulesOf[name]) {
			t.Errorf("%s: digests %x of rules %q", name, c.Digests, rulesOf[name])
		}
		c.Digests = nil
		named.Chains[name] = c
	}
	if diff := cmp.Diff(got, named); diff != "" {
		t.Errorf("%s (-all +named):\n%s", table, diff)
	}
	for name, c := range got.Chains {
		if c.Digest == 0 {
			t.Errorf("%s: no digest", name)
		}
		c.Digest = 0
		got.Chains[name] = c
	}
	if diff := cmp.Diff(read, got); diff != "" {
		t.Errorf("%s (-save +scan):\n%s", table, diff)
	}
}

// blocksOf returns the blocks of a restore input by their tables; the last of each.
func blocksOf(input string) map[string]string {
	out := map[string]string{}
	for _, part := range strings.SplitAfter(input, "COMMIT\n") {
		_, text, found := strings.Cut("\n"+part, "\n*")
		if table, _, _ := strings.Cut(text, "\n"); found && rules.IsTable(table) {
			out[table] = "*" + text
		}
	}
	return out
}
