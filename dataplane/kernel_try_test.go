// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// trier is a Kernel or a Sim.
type trier interface {
	Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error)
}

func try(t *testing.T, k trier, id rules.TableID, b dataplane.Batch) dataplane.Trial {
	t.Helper()
	trial, err := k.Try(background, id, b)
	if err != nil {
		t.Fatal(err)
	}
	return trial
}

// told gives each verdict as a line: the unit, the place, and the reason.
func told(vs []dataplane.Verdict) []string {
	var out []string
	for _, v := range vs {
		line := fmt.Sprintf("%d: %s %d", v.Unit, v.Chain, v.Index)
		if v.Hook != "" {
			line += " from " + v.Hook
		}
		switch {
		case v.Err != nil:
			line += ": " + v.Err.Reason
		case v.Untried:
			line += " untried"
		default:
			line += " skipped"
		}
		out = append(out, line)
	}
	return out
}

const invalid = "RULE_APPEND failed (Invalid argument)"

// byName makes a unit of each chain, and of the rules of built-in chains by their place.
func byName(names ...string) func(string, int) int {
	return func(chain string, index int) int {
		if i := slices.Index(names, chain); i >= 0 {
			return i
		}
		return index
	}
}

// tryCases are batches, and what a kernel of either backend says of them.
var tryCases = map[string]struct {
	batch       dataplane.Batch
	nft, legacy []string
}{
	"nothing": {},
	"good": {batch: dataplane.Batch{
		Chains: []rules.Chain{chain("tw-a", "-p tcp -j tw-b", "-m owner --socket-exists -j DROP"), chain("tw-b", "-j DROP"), chain("tw-c")},
		Kernel: []rules.Chain{chain("OUTPUT", "-j tw-a")},
		Unit:   byName("tw-a", "tw-b"),
	}},
	"one verdict for each unit": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{
				chain("tw-a", "-p udp -j ACCEPT", "-p tcp --bogus", "-p tcp --dport 99999 -j ACCEPT", "-j MASQUERADE"),
				chain("tw-b", "-p udp -j ACCEPT", "-p tcp -j REDIRECT", "-j MASQUERADE"),
				chain("tw-c", "-p udp -j ACCEPT", "-m owner --socket-exists -j DROP", "-m owner --socket-exists -j ACCEPT"),
				chain("tw-d", "-p udp -j ACCEPT"),
				chain("tw-e", "-p udp -j ACCEPT", "-m set --match-set tw-none src -j DROP", "-p tcp --bogus"),
			},
			Kernel: []rules.Chain{chain("FORWARD", "-j tw-a", "-j tw-b", "-j tw-c", "-j tw-d", "-j tw-e")},
			Unit:   byName("tw-a", "tw-b", "tw-c", "tw-d", "tw-e"),
		},
		nft:    []string{`0: tw-a 1: unknown option "--bogus"`, "1: tw-b 1: " + invalid, "2: tw-c 1 from FORWARD: " + invalid, "4: tw-e 1: set tw-none does not exist"},
		legacy: []string{`0: tw-a 1: unknown option "--bogus"`, "1: tw-b 1: " + untold, "2: tw-c 1 from FORWARD: " + untold, "4: tw-e 1: set tw-none does not exist"},
	},
	"a unit of several chains": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a", "-j DROP"), chain("tw-b", "-m mac --mac-source 00:00:00:00:00:01 -j DROP"), chain("tw-c", "-j DROP")},
			Kernel: []rules.Chain{chain("OUTPUT", "-p tcp -j ACCEPT", "-m mac --mac-source 00:00:00:00:00:01 -j DROP", "-j tw-b")},
			Around: []rules.Chain{chain("FORWARD", "-j tw-c")},
			Unit: func(chain string, index int) int {
				if chain == "tw-c" || index == 1 {
					return 7
				}
				return 3
			},
		},
		nft:    []string{"3: tw-b 0 from OUTPUT: " + invalid, "7: OUTPUT 1 from OUTPUT: " + invalid},
		legacy: []string{"3: tw-b 0 from OUTPUT: " + untold, "7: OUTPUT 1 from OUTPUT: " + untold},
	},
	"the text of a rule in its built-in chain": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a", "-i eth0 -j ACCEPT")},
			Kernel: []rules.Chain{chain("OUTPUT", "-p tcp -j ACCEPT", "-i eth0 -j ACCEPT", "-j tw-a"), chain("INPUT", "-i eth0 -j ACCEPT")},
		},
		nft:    []string{"0: OUTPUT 1 from OUTPUT: Can't use -i with OUTPUT"},
		legacy: []string{"0: OUTPUT 1 from OUTPUT: Can't use -i with OUTPUT"},
	},
	// The legacy kernel does not look behind what ends a chain, but the tool does.
	"behind the end of a built-in chain": {
		batch: dataplane.Batch{
			Kernel: []rules.Chain{chain("INPUT", "-j DROP", "-m owner --socket-exists -j ACCEPT", "-o eth0 -j ACCEPT")},
		},
		nft:    []string{"0: INPUT 1 from INPUT: " + invalid, "0: INPUT 2 from INPUT: Can't use -o with INPUT"},
		legacy: []string{"0: INPUT 2 from INPUT: Can't use -o with INPUT"},
	},
	"what ends a chain goes with its unit": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a", "-p tcp --bogus")},
			Kernel: []rules.Chain{chain("INPUT", "-j DROP", "-m owner --socket-exists -j ACCEPT")},
			Unit: func(chain string, index int) int {
				if chain == "tw-a" {
					return 0
				}
				return index
			},
		},
		nft:    []string{`0: tw-a 0: unknown option "--bogus"`, "1: INPUT 1 from INPUT: " + invalid},
		legacy: []string{`0: tw-a 0: unknown option "--bogus"`, "1: INPUT 1 from INPUT: " + untold},
	},
	// What is refused wherever it stands leads nowhere; what a hook refuses still leads on.
	"behind a refused jump": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{
				chain("tw-a", "-p tcp --bogus -j tw-b"), chain("tw-b", "-m owner --socket-exists -j DROP"),
				chain("tw-c", "-m owner --socket-exists -j tw-d"), chain("tw-d", "-m owner --socket-exists -j DROP"),
			},
			Kernel: []rules.Chain{chain("INPUT", "-j tw-a", "-j tw-c")},
			Unit:   byName("tw-a", "tw-b", "tw-c", "tw-d"),
		},
		nft:    []string{`0: tw-a 0: unknown option "--bogus"`, "2: tw-c 0 from INPUT: " + invalid, "3: tw-d 0 from INPUT: " + invalid},
		legacy: []string{`0: tw-a 0: unknown option "--bogus"`, "2: tw-c 0 from INPUT: " + untold, "3: tw-d 0 from INPUT: " + untold},
	},
	"loops": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a", "-j tw-b"), chain("tw-b", "-j tw-a"), chain("tw-c", "-j tw-c"), chain("tw-d", "-j tw-d")},
			Kernel: []rules.Chain{chain("INPUT", "-p udp -j DROP", "-j tw-a")},
			Around: []rules.Chain{chain("OUTPUT", "-j tw-c")},
			Unit:   byName("tw-a", "tw-b", "tw-c", "tw-d"),
		},
		nft:    []string{"1: INPUT 1 from INPUT: RULE_APPEND failed (Too many links)", "0: OUTPUT -1 from OUTPUT: RULE_APPEND failed (Too many links)"},
		legacy: []string{"1: INPUT 1 from INPUT: " + untold, "0: OUTPUT -1 from OUTPUT: " + untold},
	},
	"not tried": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a", "-j IDLETIMER --timeout 9 --label l", "-p tcp --bogus"), chain("tw-b", "-m nfacct --nfacct-name x")},
			Unit:   byName("tw-a", "tw-b"),
		},
		nft:    []string{"0: tw-a 0 skipped", `0: tw-a 1: unknown option "--bogus"`, "1: tw-b 0 skipped"},
		legacy: []string{"0: tw-a 0 skipped", `0: tw-a 1: unknown option "--bogus"`, "1: tw-b 0 skipped"},
	},
	"names": {
		batch: dataplane.Batch{
			Chains: []rules.Chain{chain("tw-a-name-of-thirty-characters", "-p tcp -j ACCEPT", "-p udp -j ACCEPT"), chain("tw-a", "-p tcp -j ACCEPT"), {Name: "ACCEPT"}},
			Unit:   byName("tw-a", "ACCEPT"),
		},
		nft: []string{
			"0: tw-a-name-of-thirty-characters -1: chain name `tw-a-name-of-thirty-characters' too long (must be under 29 chars)",
			"1: ACCEPT -1: chain name may not clash with target name",
		},
		legacy: []string{
			"0: tw-a-name-of-thirty-characters -1: Invalid chain name `tw-a-name-of-thirty-characters' (28 chars max)",
			"1: ACCEPT -1: error creating chain 'ACCEPT':File exists",
		},
	},
}

func TestKernelTry(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for name, c := range tryCases {
			want := c.nft
			if b == dataplane.Legacy {
				want = c.legacy
			}
			// Twice: nothing stays of the first time.
			for range 2 {
				trial := try(t, k, id, c.batch)
				if diff := cmp.Diff(want, told(trial.Verdicts)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				if trial.Took <= 0 {
					t.Errorf("%s: took %s", name, trial.Took)
				}
			}
		}
		if diff := cmp.Diff(render(t, dataplane.NewSim(b), id), render(t, k, id)); diff != "" {
			t.Errorf("the live table was written to:\n%s", diff)
		}
	})
}

// Units that are refused are found, and their rules named, in a bounded number of probes.
func TestKernelTrySearch(t *testing.T) {
	for _, b := range backends {
		k := newKernel(t, testns.Options(t, testns.New(t), b))
		for name, refused := range refusals {
			for _, c := range []struct{ units, bad int }{{100, 0}, {100, 1}, {100, 3}, {60, 60}} {
				if testing.Short() && c.bad > 3 {
					continue
				}
				batch := messages(c.units, every(c.bad, c.units), refused)
				trial := try(t, k, filter, batch)
				var want, got []string
				for i := range c.units {
					if every(c.bad, c.units)(i) {
						want = append(want, fmt.Sprintf("%d: tw-%d 6", i, i))
					}
				}
				for _, v := range trial.Verdicts {
					got = append(got, fmt.Sprintf("%d: %s %d", v.Unit, v.Chain, v.Index))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s, %d of %d (-want +got):\n%s", b, name, c.bad, c.units, diff)
				}
				if most := 2*c.units + 8; trial.Probes > most || c.bad == 0 && trial.Probes > 8 {
					t.Errorf("%s, %s, %d of %d: %d probes", b, name, c.bad, c.units, trial.Probes)
				}
			}
		}
	}
}

// Where a legacy tool names nothing, and the kind of rule says nothing either, the units are
// found all the same, and rules as long as there are not two probes for each unit.
func TestKernelTryUntold(t *testing.T) {
	k := newKernel(t, testns.Options(t, testns.New(t), dataplane.Legacy))
	var b dataplane.Batch
	const units = 40
	for i := range units {
		c := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
		for j := range 8 {
			dir := "out"
			if i > 0 && j == 5 {
				dir = "in" // which OUTPUT does not have
			}
			c.Rules = append(c.Rules, rules.MustParseRule(fmt.Sprintf("-p tcp -m tcp --dport %d -m policy --dir %s --pol ipsec -j DROP", j, dir)))
		}
		b.Chains = append(b.Chains, c)
		b.Around = append(b.Around, chain("OUTPUT", "-j "+c.Name))
	}
	b.Around = []rules.Chain{{Name: "OUTPUT", Rules: slices.Concat(slices.Collect(func(yield func([]rules.Rule) bool) {
		for _, c := range b.Around {
			yield(c.Rules)
		}
	})...)}}
	b.Unit = func(chain string, _ int) int {
		return slices.IndexFunc(b.Chains, func(c rules.Chain) bool { return c.Name == chain })
	}
	trial := try(t, k, filter, b)
	named := 0
	for i, v := range trial.Verdicts {
		if v.Unit != i+1 || v.Hook != "OUTPUT" || v.Err == nil || v.Index != 5 && v.Index != -1 {
			t.Errorf("%+v", v)
		}
		if v.Index == 5 {
			named++
			if v.Err.Text != b.Chains[v.Unit].Rules[5].String() {
				t.Errorf("unit %d: %s", v.Unit, v.Err.Text)
			}
		}
	}
	if len(trial.Verdicts) != units-1 || named == 0 || named == units-1 || trial.Probes > 2*units+8 {
		t.Errorf("%d verdicts, %d with a rule, %d probes", len(trial.Verdicts), named, trial.Probes)
	}
	// Without time for that a unit is left for another time, as long as there is some answer.
	b.Budget = time.Nanosecond
	untried := map[int]bool{}
	for _, v := range try(t, k, filter, b).Verdicts {
		if v.Untried {
			untried[v.Unit] = true
		} else if v.Index != 5 || v.Err == nil {
			t.Errorf("%+v", v)
		}
	}
	if len(untried) == 0 || len(untried) == units {
		t.Errorf("%d of %d units untried", len(untried), units)
	}
}

// What one trial has left in a scratch namespace says nothing to the next.
func TestKernelTryLeavesNothing(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		jump := []rules.Chain{chain("tw-a", "-j tw-b")}
		for i, c := range []struct {
			batch dataplane.Batch
			want  int
		}{
			{dataplane.Batch{Chains: jump, Around: []rules.Chain{{Name: "tw-b"}}}, 0},
			{dataplane.Batch{Chains: jump}, 1}, // there is no tw-b
			{dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-j MASQUERADE"), {Name: "MASQUERADE"}}}, 0},
			{dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-j MASQUERADE")}}, 1},
			{dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-m owner --socket-exists")}, Kernel: []rules.Chain{chain("OUTPUT", "-j tw-a", "-j DROP")}}, 0},
			{dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-m owner --socket-exists")}, Kernel: []rules.Chain{chain("INPUT", "-j tw-a")}}, 1},
			{dataplane.Batch{Kernel: []rules.Chain{chain("OUTPUT", "-m policy --dir in --pol ipsec -j ACCEPT")}}, 1},
		} {
			for range 2 {
				if got := try(t, k, id, c.batch).Verdicts; len(got) != c.want {
					t.Errorf("batch %d: %q", i, told(got))
				}
			}
		}
	})
}

// Sets are as they are in the live namespace at each trial.
func TestKernelTrySets(t *testing.T) {
	for _, b := range backends {
		ns := testns.New(t)
		k := newKernel(t, testns.Options(t, ns, b))
		batch := dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-m set --match-set tw-s src -j DROP", "-p tcp -j DROP")}}
		want := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, told(try(t, k, filter, batch).Verdicts)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", b, diff)
			}
		}
		want("0: tw-a 0: set tw-s does not exist")
		ipset(t, ns, "create", "tw-s", "hash:net")
		want()
		ipset(t, ns, "destroy", "tw-s")
		ipset(t, ns, "create", "tw-s", "hash:net", "family", "inet6")
		want("0: tw-a 0: The protocol family of set tw-s is IPv6, which is not applicable.")
		ipset(t, ns, "destroy", "tw-s")
		want("0: tw-a 0: set tw-s does not exist")
	}
}

// However short the time, each call gets on, and what it says is true.
func TestKernelTryBudget(t *testing.T) {
	for _, b := range backends {
		k := newKernel(t, testns.Options(t, testns.New(t), b))
		for name, c := range map[string]struct {
			refused string
			good    int // units that are
		}{
			"all good":      {"", 20},
			"every other":   {refusals["hook"], 10},
			"all":           {refusals["hook"], 0},
			"unknown words": {refusals["option"], 10},
		} {
			batch := messages(20, func(i int) bool { return c.good == 0 || c.good == 10 && i%2 == 1 }, c.refused)
			batch.Budget = time.Nanosecond
			out := map[int]bool{}
			for len(batch.Chains) > 0 {
				untried := map[int]bool{}
				for _, v := range try(t, k, filter, batch).Verdicts {
					switch {
					case v.Untried && !out[v.Unit]:
						untried[v.Unit] = true
					case v.Err == nil, v.Index != 6, out[v.Unit], c.good == 10 && v.Unit%2 == 0:
						t.Fatalf("%s, %s: %+v", b, name, v)
					default:
						out[v.Unit] = true
					}
				}
				left := func(chain string) bool { return untried[batch.Unit(chain, 0)] }
				before := len(batch.Chains)
				batch.Chains = slices.DeleteFunc(slices.Clone(batch.Chains), func(c rules.Chain) bool { return !left(c.Name) })
				dispatch := slices.DeleteFunc(slices.Clone(batch.Around[1].Rules), func(r rules.Rule) bool { return !left(r.Jump()) })
				batch.Around = []rules.Chain{batch.Around[0], {Name: "tw-dispatch", Rules: dispatch}}
				if len(batch.Chains) == before {
					t.Fatalf("%s, %s: no answer for any of %d units", b, name, before)
				}
				if before == 20 && len(untried) == 0 && c.good < 20 {
					t.Errorf("%s, %s: it took its time", b, name)
				}
			}
			if len(out) != 20-c.good {
				t.Errorf("%s, %s: %d units refused", b, name, len(out))
			}
		}
		// Also where nothing is refused.
		good := messages(100, never, "")
		good.Budget = time.Nanosecond
		untried := map[int]bool{}
		for _, v := range try(t, k, filter, good).Verdicts {
			untried[v.Unit] = true
			if !v.Untried {
				t.Errorf("%s: %+v", b, v)
			}
		}
		if len(untried) == 0 || len(untried) == 100 {
			t.Errorf("%s: %d of 100 good units untried", b, len(untried))
		}
		// There is time for all of it.
		batch := messages(50, every(1, 50), refusals["hook"])
		batch.Budget = time.Hour
		if got := told(try(t, k, filter, batch).Verdicts); len(got) != 1 || !strings.HasPrefix(got[0], "25: tw-25 6 from FORWARD") {
			t.Errorf("%s: %q", b, got)
		}
	}
}

// A context that ends ends a trial, and does no harm to the next.
func TestKernelTryContext(t *testing.T) {
	for _, b := range backends {
		k := newKernel(t, testns.Options(t, testns.New(t), b))
		batch := messages(20, every(1, 20), refusals["hook"])
		unit := batch.Unit
		for range 2 {
			ctx, cancel := context.WithCancel(background)
			batch.Unit = func(chain string, index int) int {
				cancel()
				return unit(chain, index)
			}
			_, err := k.Try(ctx, filter, batch)
			if !errors.Is(err, context.Canceled) || restoreError(t, err).Class != dataplane.Unknown {
				t.Errorf("%s: %v", b, err)
			}
			batch.Unit = unit
			if got := try(t, k, filter, batch).Verdicts; len(got) != 1 {
				t.Errorf("%s: %q", b, told(got))
			}
		}
	}
}

// Several trials of one Kernel do not disturb each other, and Close leaves nothing behind.
func TestKernelTryTogether(t *testing.T) {
	for _, b := range backends {
		before := goleak.IgnoreCurrent()
		k, err := dataplane.NewKernel(background, testns.Options(t, testns.New(t), b))
		if err != nil {
			t.Skipf("no kernel: %v", err)
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				id, refused := filter, refusals["hook"]
				if i%2 == 1 {
					id, refused = filter6, "-m owner --socket-exists -j REJECT"
				}
				batch := messages(30, func(n int) bool { return n%(i+3) == 1 }, refused)
				if id == filter6 {
					for j := range batch.Chains {
						batch.Chains[j].Rules = slices.DeleteFunc(batch.Chains[j].Rules, func(r rules.Rule) bool { return strings.HasPrefix(r.String(), "-s ") })
					}
					batch.Around[1].Rules = nil
					for _, c := range batch.Chains {
						batch.Around[1].Rules = append(batch.Around[1].Rules, rules.MustParseRule("-j "+c.Name))
					}
				}
				trial, err := k.Try(background, id, batch)
				if want := (30 + i + 1) / (i + 3); err != nil || len(trial.Verdicts) != want {
					t.Errorf("%s, %s: %q, %v, want %d", b, id, told(trial.Verdicts), err, want)
				}
			})
		}
		wg.Wait()
		if s := k.Stats(); s.Runs != 0 || s.Probes == 0 {
			t.Errorf("%s: %+v", b, s)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	}
}
