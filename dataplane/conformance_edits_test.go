// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// editBlocks is how many blocks of edits each namespace gets.
func editBlocks() int {
	switch {
	case os.Getenv("TABLEWARD_SOAK") == "1":
		return 300
	case testing.Short():
		return 8
	}
	return 25
}

// TestSimConformsEdits lets a kernel and a simulator go through the same random edits by index,
// of several chains in a block, beside chains that are written as a whole. After each both hold
// what the indexes say, and their digests say which rules are the same.
func TestSimConformsEdits(t *testing.T) {
	sharded(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, _ string, shard int) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		sim := dataplane.NewSim(b)
		e := newEditor(uint64(shard), v)
		var kernels, sims digested
		for range editBlocks() {
			input := e.block()
			if conforms(t, k, sim, v, input) {
				t.Errorf("refused: %s", input)
			}
			kernels.note(t, k, id, e.chains)
			sims.note(t, sim, id, e.chains)
			if t.Failed() {
				t.Fatalf("after\n%s", input)
			}
		}
	})
}

// digested are the texts of digests, and the other way round.
type digested struct {
	texts   map[uint64]string
	digests map[string]uint64
}

// note looks at chains that have these rules. A rule has the same digest in every chain.
func (d *digested) note(t *testing.T, k looker, id rules.TableID, chains map[string][]string) {
	t.Helper()
	read, err := k.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	scan, err := k.Scan(context.Background(), id, slices.Collect(maps.Keys(chains))...)
	if err != nil {
		t.Fatal(err)
	}
	if d.texts == nil {
		d.texts, d.digests = map[uint64]string{}, map[string]uint64{}
	}
	for chain, want := range chains {
		got := make([]string, 0, len(want))
		for _, r := range read.Chains[chain].Rules {
			got = append(got, r.Text)
		}
		digests := scan.Chains[chain].Digests
		if diff := cmp.Diff(append([]string{}, want...), got); diff != "" || len(digests) != len(want) {
			t.Fatalf("%s (-want +got), digests %x:\n%s", chain, digests, diff)
		}
		for i, digest := range digests {
			d.add(t, want[i], digest)
		}
	}
}

func (d *digested) add(t *testing.T, text string, digest uint64) {
	t.Helper()
	if other, found := d.texts[digest]; found && other != text {
		t.Errorf("one digest of %q and %q", other, text)
	}
	if other, found := d.digests[text]; found && other != digest {
		t.Errorf("two digests of %q", text)
	}
	d.texts[digest], d.digests[text] = text, digest
}

type looker interface {
	restorer
	Scan(context.Context, rules.TableID, ...string) (rules.Snapshot, error)
}

// editor makes blocks of edits, and knows what the chains hold after each.
type editor struct {
	*rand.Rand
	rules  []string
	chains map[string][]string
	begun  bool
}

func newEditor(seed uint64, v rules.IPVersion) *editor {
	e := &editor{Rand: rand.New(rand.NewPCG(seed, 77+uint64(v)))}
	for _, r := range []string{
		"-s @A -j DROP", "-p tcp -m tcp --dport 80 -j ACCEPT", "-p tcp -m tcp --dport 81 -j ACCEPT", "-j leaf", "-g leaf", "-p tcp -j leaf", "-j RETURN",
		"-m comment --comment \"a b\"", "-m conntrack --ctstate NEW -j LOG", "-m limit --limit 1/sec",
	} {
		e.rules = append(e.rules, forFamily(v, r))
	}
	e.chains = map[string][]string{"tw-a": nil, "tw-b": nil, "tw-c": nil, "OUTPUT": nil}
	return e
}

func (e *editor) rule() string { return e.rules[e.IntN(len(e.rules))] }

// block has all deletions first, those of each chain from the bottom up, then what is put in.
func (e *editor) block() string {
	heads, out, in := []string{"*filter"}, []string(nil), []string(nil)
	if !e.begun {
		heads, e.begun = append(heads, ":leaf - [0:0]"), true
		for _, name := range []string{"tw-a", "tw-b", "tw-c"} {
			heads = append(heads, ":"+name+" - [0:0]")
		}
	}
	for _, name := range []string{"OUTPUT", "tw-a", "tw-b", "tw-c"} {
		switch e.IntN(6) {
		case 0: // left alone
		case 1:
			if name == "OUTPUT" {
				continue // a declaration does not empty it
			}
			heads = append(heads, ":"+name+" - [0:0]")
			e.chains[name] = nil
			for range e.IntN(6) {
				in = append(in, e.append(name))
			}
		default:
			out = append(out, e.deletions(name)...)
			in = append(in, e.insertions(name)...)
		}
	}
	return strings.Join(slices.Concat(heads, out, in), "\n") + "\nCOMMIT\n"
}

func (e *editor) append(name string) string {
	r := e.rule()
	e.chains[name] = append(e.chains[name], r)
	return "-A " + name + " " + r
}

func (e *editor) deletions(name string) (lines []string) {
	for i := len(e.chains[name]) - 1; i >= 0; i-- {
		if e.IntN(3) == 0 {
			e.chains[name] = slices.Delete(e.chains[name], i, i+1)
			lines = append(lines, fmt.Sprintf("-D %s %d", name, i+1))
		}
	}
	return lines
}

func (e *editor) insertions(name string) (lines []string) {
	stay := len(e.chains[name])
	for range e.IntN(3) {
		lines = append(lines, e.append(name))
	}
	for i := stay - 1; i >= 0; i-- {
		for e.IntN(3) == 0 {
			r := e.rule()
			e.chains[name] = slices.Insert(e.chains[name], i, r)
			lines = append(lines, fmt.Sprintf("-I %s %d %s", name, i+1, r))
		}
	}
	return lines
}
