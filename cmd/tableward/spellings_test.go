// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// TestSpellings applies rules as people write them three times, then as the tools print
// them: each is in its chain once, and only the first run writes.
func TestSpellings(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/xtables.lock")
		w := newNamespace(t, b)
		w.addSet(t, v, "s1")
		file := "testdata/spellings/spellings.rules"
		if v == rules.IPv6 {
			file = "testdata/spellings/spellings.v6.rules"
		}
		input, err := rules.ParseRestore([]byte(readTestFile(t, file)))
		if err != nil {
			t.Fatal(err)
		}
		for run := 1; run <= 3; run++ {
			w.applySpellings(t, v, file, run > 1)
			for _, block := range input.Blocks {
				w.checkSpellings(t, k, rules.TableID{IPVersion: v, Name: block.Table}, block)
			}
		}
		w.applySpellings(t, v, write(t, "spellings.rules", w.asPrinted(t, v, input)), true)
	})
}

func (n namespace) applySpellings(t *testing.T, v rules.IPVersion, file string, again bool) {
	t.Helper()
	r := n.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "-o", "json", file)
	if r.code != exitOK {
		t.Fatalf("apply %s: exit status %d\n%s%s", file, r.code, r.stdout, r.stderr)
	}
	if again {
		checkNoRestore(t, r)
	}
}

// checkSpellings holds that INPUT has exactly what the block's rules read back as, once each.
func (n namespace) checkSpellings(t *testing.T, k *dataplane.Kernel, id rules.TableID, block rules.Block) {
	t.Helper()
	var rs []rules.Rule
	for _, l := range block.Lines {
		if l.Chain == "INPUT" {
			rs = append(rs, l.Rule)
		}
	}
	canons, err := k.Canon(t.Context(), id, rs)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, c := range canons {
		if len(c) == 0 {
			t.Errorf("the tool refuses %s", rs[i])
		}
		want = append(want, c...)
	}
	got := n.chains(t, id)["INPUT"]
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("INPUT of %s (-each once +kernel):\n%s", id, diff)
	}
	if id.Name == "filter" && len(got) < 60 {
		t.Errorf("only %d rules", len(got))
	}
}

// asPrinted is the tables as the tools print them, as a rules file.
func (n namespace) asPrinted(t *testing.T, v rules.IPVersion, input *rules.Input) string {
	t.Helper()
	var b strings.Builder
	for _, block := range input.Blocks {
		id := rules.TableID{IPVersion: v, Name: block.Table}
		fmt.Fprintf(&b, "*%s\n", id.Name)
		if id.Name == "filter" {
			b.WriteString(":U - [0:0]\n")
		}
		for _, text := range n.chains(t, id)["INPUT"] {
			fmt.Fprintf(&b, "-A INPUT %s\n", text)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}
