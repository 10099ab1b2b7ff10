// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A conformance case is what a table holds, and what is then written to it. Words beginning
// with @ are addresses: @A and @B of the IP version under test, @X of the other one.
type conformanceCase struct {
	name  string
	table string // filter if empty
	seed  string // lines of a block, joined by "; "
	input string // the same; a whole input if it begins with "*" or "!" (the rest, as it is)
	sets  []string
}

func (c conformanceCase) tableName() string {
	if c.table == "" {
		return "filter"
	}
	return c.table
}

func block(table, lines string) string {
	if strings.HasPrefix(lines, "!") {
		return lines[1:]
	}
	var b strings.Builder
	b.WriteString("*" + table + "\n")
	if lines != "" {
		for _, l := range strings.Split(lines, "; ") {
			b.WriteString(l + "\n")
		}
	}
	return b.String() + "COMMIT\n"
}

func forFamily(v rules.IPVersion, s string) string {
	r := strings.NewReplacer("@A", "10.1.0.1/32", "@B", "10.2.0.0/16", "@X", "2001:db8::7")
	if v == rules.IPv6 {
		r = strings.NewReplacer("@A", "2001:db8::1/128", "@B", "2001:db8:2::/48", "@X", "10.0.0.7")
	}
	return r.Replace(s)
}

// answer is what a conforming dataplane must agree on.
type answer struct {
	Class  string
	Line   int
	Reason string
	Exit   int
	Table  string
}

func ask(t *testing.T, d restorer, id rules.TableID, input string) answer {
	t.Helper()
	var a answer
	if err := d.Restore(context.Background(), id, []byte(input)); err != nil {
		var re *dataplane.RestoreError
		if !errors.As(err, &re) {
			t.Fatalf("not a RestoreError: %v", err)
		}
		a = answer{Class: re.Class.String(), Line: re.Line, Reason: re.Reason, Exit: re.ExitCode}
		if re.Class == dataplane.Unknown {
			a.Reason, a.Exit = "", 0
		}
	}
	a.Table = render(t, d, id)
	return a
}

type restorer interface {
	Restore(context.Context, rules.TableID, []byte) error
	Read(context.Context, rules.TableID, ...string) (rules.Snapshot, error)
}

// render gives a snapshot as text.
func render(t *testing.T, d restorer, id rules.TableID) string {
	t.Helper()
	snap, err := d.Read(context.Background(), id)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	var out []string
	for name, c := range snap.Chains {
		s := fmt.Sprintf(":%s %s jumps %v\n", name, c.Policy, c.Jumps)
		for _, r := range c.Rules {
			s += "  " + r.Text + "\n"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func runCase(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, c conformanceCase) {
	t.Helper()
	id := rules.TableID{IPVersion: v, Name: c.tableName()}
	sim := dataplane.NewSim(b)
	for _, s := range c.sets {
		sim.AddSet(v, s)
	}
	clearTable(t, k, id)
	if c.seed != "" {
		seed := forFamily(v, block(id.Name, c.seed))
		if err := sim.Load(v, []byte(seed)); err != nil {
			t.Fatalf("%s: seed on the simulator: %v", c.name, err)
		}
		if err := k.Restore(context.Background(), id, []byte(seed)); err != nil {
			t.Fatalf("%s: seed: %v", c.name, err)
		}
	}
	input := forFamily(v, block(id.Name, c.input))
	want := ask(t, k, id, input)
	got := ask(t, sim, id, input)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the simulator differs from the kernel (-kernel +sim):\n%s\nseed:  %s\ninput:\n%s", c.name, diff, c.seed, input)
	}
}

// clearTable empties a table: chains are flushed, then deleted, policies go back.
func clearTable(t *testing.T, k *dataplane.Kernel, id rules.TableID) {
	t.Helper()
	var b strings.Builder
	b.WriteString("*" + id.Name + "\n")
	for _, name := range rules.BuiltinChains(id.Name) {
		b.WriteString(":" + name + " ACCEPT [0:0]\n")
	}
	b.WriteString("-F\n-X\nCOMMIT\n")
	if err := k.Restore(context.Background(), id, []byte(b.String())); err != nil {
		t.Fatalf("clear: %v", err)
	}
}

// shards is how many namespaces work on one combination at a time: an nft commit that
// deletes waits for a grace period of its namespace, so they wait together.
const shards = 8

// sharded runs f for shards 0 to shards-1, each with a kernel of its own.
func sharded(t *testing.T, f func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, shard int)) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for i := range shards {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				k, err := dataplane.NewKernel(context.Background(), testns.Options(t, testns.New(t), b))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { k.Close() })
				f(t, b, v, k, i)
			})
		}
	})
}

func TestSimConforms(t *testing.T) {
	sharded(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, shard int) {
		for i, c := range conformanceCases() {
			if i%shards == shard {
				runCase(t, b, v, k, c)
			}
		}
	})
}

// TestSimConformsRandom lets a table of the kernel and one of the simulator go through the
// same random blocks, one after the other.
func TestSimConformsRandom(t *testing.T) {
	blocks := 60
	if testing.Short() {
		blocks = 10
	}
	sharded(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, shard int) {
		table := []string{"filter", "nat"}[shard%2]
		id := rules.TableID{IPVersion: v, Name: table}
		rnd := rand.New(rand.NewPCG(uint64(shard), 1))
		sim := dataplane.NewSim(b)
		for i := range blocks {
			before := sim.Save(id)
			input := randomBlock(rnd, table)
			want, got := ask(t, k, id, input), ask(t, sim, id, input)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("block %d: the simulator differs from the kernel (-kernel +sim):\n%s\ntable:\n%s\ninput:\n%s", i, diff, before, input)
			}
		}
	})
}

// randomBlock makes a block of a few commands on a few chains; most of the time it is one
// that could be accepted.
func randomBlock(rnd *rand.Rand, table string) string {
	builtin := rules.BuiltinChains(table)
	user := func() string { return fmt.Sprintf("c%d", rnd.IntN(7)) }
	chain := func() string {
		if rnd.IntN(4) == 0 {
			return builtin[rnd.IntN(len(builtin))]
		}
		return user()
	}
	rule := func() string {
		s := []string{"", "-p tcp ", "-p udp -m udp --dport 53 ", "-m comment --comment \"a b\" "}[rnd.IntN(4)]
		switch n := rnd.IntN(12); {
		case n < 6:
			return s + "-j " + user()
		case n == 6:
			return s + "-g " + user()
		case n == 7 && table == "nat":
			return s + "-j MASQUERADE"
		case n == 7:
			return s + "-j DROP"
		case n == 8:
			return s + "-j RETURN"
		}
		return s + "-j ACCEPT"
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	// Declaring chains first makes most blocks pass, and loops possible.
	for i := range 7 {
		if rnd.IntN(3) == 0 {
			add(":c%d - [0:0]", i)
		}
	}
	for range 1 + rnd.IntN(6) {
		switch rnd.IntN(16) {
		case 0:
			add("-X %s", user())
		case 1:
			add("-F %s", chain())
		case 2:
			add("-D %s %s", chain(), rule())
		case 3:
			add("-D %s %d", user(), 1+rnd.IntN(3))
		case 4:
			add("-R %s %d %s", user(), 1+rnd.IntN(3), rule())
		case 5:
			add("-I %s %d %s", user(), 1+rnd.IntN(4), rule())
		case 6:
			add("-I %s %s", chain(), rule())
		case 7:
			add("-N %s", user())
		case 8:
			add(":%s %s [0:0]", builtin[rnd.IntN(len(builtin))], []string{"ACCEPT", "DROP", "-"}[rnd.IntN(3)])
		case 9:
			add("# %s", user())
		default:
			add("-A %s %s", chain(), rule())
		}
	}
	return "*" + table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
}
