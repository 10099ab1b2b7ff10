// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

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
			if got.Class == dataplane.Unknown.String() && want.Class != "" {
				want = got // the tool reads freed memory: it may crash, or be refused
			}
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
