// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// randomInputs is how many inputs each backend gets, half of them for each IP version.
func randomInputs() int {
	switch {
	case os.Getenv("TABLEWARD_SOAK") == "1":
		return 5000
	case testing.Short():
		return 200
	}
	return 1000
}

// TestSimConformsRandom lets the tables of a kernel and of a simulator go through the same
// random inputs, one after the other. At least half of the inputs must be refused.
func TestSimConformsRandom(t *testing.T) {
	list := vocabularyRules(t)
	var all, failing atomic.Int64
	t.Run("kernel", func(t *testing.T) {
		sharded(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, ns string, shard int) {
			makeSets(t, ns, v, randomSets...)
			sim := dataplane.NewSim(b)
			for _, name := range randomSets {
				sim.AddSet(v, name)
			}
			g := newGenerator(uint64(shard), b, v, list)
			for range randomInputs() / 2 / shards {
				input := g.input()
				all.Add(1)
				if conforms(t, k, sim, v, input) {
					failing.Add(1)
				}
				if t.Failed() && !resync(t, k, sim, v) {
					return
				}
			}
		})
	})
	t.Logf("%d inputs, %d refused", all.Load(), failing.Load())
	if failing.Load()*2 < all.Load() {
		t.Errorf("only %d of %d inputs were refused", failing.Load(), all.Load())
	}
}

// conforms gives both the same input, compares, and tells whether the kernel refused it.
func conforms(t *testing.T, k, sim restorer, v rules.IPVersion, input string) (refused bool) {
	t.Helper()
	var tables []string
	for line := range strings.Lines(input) {
		if name := strings.TrimRight(strings.TrimPrefix(line, "*"), "\n"); name+"\n" != line && rules.IsTable(name) {
			tables = append(tables, name)
		}
	}
	if len(tables) == 0 {
		tables = []string{"filter"}
	}
	id := rules.TableID{IPVersion: v, Name: tables[0]}
	before := strings.Join(render(t, sim, id), "\n")
	want, got := ask(t, k, id, input), ask(t, sim, id, input)
	if got.Class == dataplane.Unknown.String() && want.Class != "" {
		want = got // the tool reads freed memory: it may crash, or be refused
	}
	diff := gocmp.Diff(want, got)
	for _, name := range tables[1:] {
		id.Name = name
		diff += gocmp.Diff(render(t, k, id), render(t, sim, id))
	}
	if diff != "" {
		t.Errorf("the simulator differs from the kernel (-kernel +sim):\n%s\ntable:\n%s\ninput:\n%s", diff, before, input)
	}
	return want.Class != ""
}

// resync makes the simulator hold what the kernel does, once they differ, so that one
// difference does not hide another.
func resync(t *testing.T, k restorer, sim *dataplane.Sim, v rules.IPVersion) bool {
	for _, name := range randomTables {
		id := rules.TableID{IPVersion: v, Name: name}
		snap, err := k.Read(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		b.WriteString("*" + name + "\n")
		for _, c := range snap.Chains {
			fmt.Fprintf(&b, ":%s %s [0:0]\n", c.Name, cmp.Or(c.Policy, "-"))
		}
		for _, c := range snap.Chains {
			for _, r := range c.Rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.Name, r.Text)
			}
		}
		if err := sim.ReplaceTable(id, b.String()+"COMMIT\n"); err != nil {
			t.Errorf("%v\n%s", err, b.String())
			return false
		}
	}
	return true
}

// randomSets exist; other sets that rules name do not.
var randomSets = []string{"s1", "s6"}

// generator makes restore inputs.
type generator struct {
	*rand.Rand
	in    string              // as the vocabulary names it
	known map[string][]string // rules of the vocabulary by table
	added map[string][]string // "chain rule", by table
	lines []string
	table string
}

var randomTables = []string{"filter", "nat", "mangle", "raw", "security"}

// newGenerator returns a generator with a seed of its own. The chains of all rules are U,
// c0 to c6 and the built-in ones, but for some rules, which come from cases and logs.
func newGenerator(seed uint64, b dataplane.Backend, v rules.IPVersion, list []asked) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(v))), known: make(map[string][]string), added: make(map[string][]string)}
	g.in = fmt.Sprintf("%s%d", b, v)
	g.table = randomTables[seed%uint64(len(randomTables))]
	for _, a := range list {
		r, err := rules.ParseRule(a.rule)
		if err == nil && r.Jump() != "" && r.Jump() != "U" && g.IntN(10) > 0 {
			continue
		}
		if strings.Contains(a.rule, "-c ") {
			continue // nft's -Z replaces rules that have counted, even if they are gone
		}
		g.known[a.table] = append(g.known[a.table], a.rule)
	}
	return g
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) add(format string, args ...any) {
	g.lines = append(g.lines, fmt.Sprintf(format, args...))
}

func (g *generator) user() string {
	if g.IntN(20) == 0 {
		return g.one("U", "U", "nope", "INPUT", "-x", "a-name-of-exactly-28-letters", "a-name-of-more-than-28-letters")
	}
	return fmt.Sprintf("c%d", g.IntN(7))
}

func (g *generator) builtin() string { return g.one(rules.BuiltinChains(g.table)...) }

func (g *generator) chain() string {
	if g.IntN(4) == 0 {
		return g.builtin()
	}
	return g.user()
}

// rule is one of the vocabulary, or one with a jump.
func (g *generator) rule() string {
	if g.IntN(2) == 0 {
		rule := g.one(g.known[g.table]...)
		// Half of the vocabulary is mistakes, and one is enough for a block.
		for k, _ := dataplane.LookUp(g.in, g.table, rule); k.Exit != 0 && g.IntN(3) > 0; k, _ = dataplane.LookUp(g.in, g.table, rule) {
			rule = g.one(g.known[g.table]...)
		}
		return rule
	}
	s := g.one("", "-p tcp ", "-p udp -m udp --dport 53 ", "-m comment --comment \"a b\" ")
	switch g.IntN(12) {
	case 0, 1, 2, 3, 4, 5:
		return s + "-j " + g.user()
	case 6:
		return s + "-g " + g.user()
	case 7:
		return s + g.one("-j DROP", "-j MASQUERADE")
	case 8:
		return s + "-j RETURN"
	case 9:
		return "-s 10.0.0.1" + g.one("", "/32") + " -j DROP" // two spellings of one rule
	}
	return s + "-j ACCEPT"
}

// input is one block, or several.
func (g *generator) input() string {
	g.lines = g.lines[:0]
	table := g.table
	g.block()
	for g.IntN(10) == 0 {
		g.table = g.one(randomTables...)
		g.block()
	}
	g.table = table
	return strings.Join(g.lines, "\n") + g.one("\n", "\n", "\n", "")
}

func (g *generator) block() {
	g.add("*%s", g.table)
	// Declaring chains first lets about half of the blocks pass, and makes loops possible.
	for i := range 7 {
		if g.IntN(3) == 0 {
			g.add(":c%d - [0:0]", i)
		}
	}
	if g.IntN(2) == 0 {
		g.add(":U - [0:0]")
	}
	for range 1 + g.IntN(5) {
		g.command()
	}
	if g.IntN(20) == 0 {
		// Always the last: the nft tool forgets built-in chains with it, and what they hold.
		g.add("-X")
	}
	if g.IntN(30) > 0 {
		g.add("COMMIT")
	}
}

func (g *generator) command() {
	switch g.IntN(24) {
	case 0:
		g.add("-X %s", g.user())
	case 1:
		g.add("-F %s", g.chain())
	case 2, 3:
		if have := g.added[g.table]; len(have) > 0 && g.IntN(3) > 0 {
			g.add("-D %s", g.one(have[max(0, len(have)-20):]...))
		} else {
			g.add("-D %s %s", g.chain(), g.rule())
		}
	case 4:
		g.add("-D %s %d", g.user(), 1+g.IntN(3))
	case 5:
		g.add("-R %s %d %s", g.user(), 1+g.IntN(3), g.rule())
	case 6:
		g.add("-I %s %d %s", g.user(), 1+g.IntN(4), g.rule())
	case 7, 8:
		g.add("-I %s %s", g.chain(), g.rule())
	case 9:
		g.add("-N %s", g.user())
	case 10:
		g.add(":%s %s [0:0]", g.builtin(), g.one("ACCEPT", "DROP", "-", "-", "BAD"))
	case 11:
		g.add("-P %s %s", g.one(g.builtin(), g.builtin(), g.user()), g.one("ACCEPT", "ACCEPT", "DROP", "RETURN"))
	case 12:
		// The new names are no others': nft would let a second chain have the same.
		g.add("-E %s %s", g.one("c0", "c1", "c2", "c3", "nope", "e0"), g.one("e0", "e0", "e1", "e2", "e3", "INPUT"))
	case 13:
		g.add("-Z %s", g.one(g.chain(), g.user(), ""))
	case 14:
		g.add("%s", g.one("# "+g.user(), "", " ", "#", "# two words", "[1:2] -A c1 -j ACCEPT", "[1:2] -A c1 -j ACCEPT", "-F", g.one("junk", ":c1", "-A", "*nat", "-Z", "[1 -A c1")))
	default:
		line := g.chain() + " " + g.rule()
		g.added[g.table] = append(g.added[g.table], line)
		g.add("-A %s", line)
	}
}
