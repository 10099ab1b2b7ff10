// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// randomBatch is a batch whose rules are good, or refused in some way, at some hooks.
func randomBatch(r *rand.Rand) dataplane.Batch {
	texts := []string{
		"-p tcp -m tcp --dport 80 -j ACCEPT", "-m conntrack --ctstate NEW -j DROP", "-m comment --comment x -j RETURN", "-j ACCEPT", "-j RETURN",
		"-m owner --socket-exists -j ACCEPT", "-m mac --mac-source 00:00:00:00:00:01 -j DROP", "-m policy --dir in --pol ipsec -j DROP",
		"-j MASQUERADE", "-p tcp --bogus", "-m addrtype --limit-iface-in --dst-type LOCAL -j DROP",
	}
	text := func() string { return texts[min(r.IntN(2*len(texts)), r.IntN(2*len(texts)))%len(texts)] }
	var b dataplane.Batch
	n := 4 + r.IntN(8)
	jump := func(below int) string { return fmt.Sprintf("-j tw-%d", below+r.IntN(n-below)) }
	for i := range n {
		c := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
		for range r.IntN(5) {
			if i < n-1 && r.IntN(4) == 0 {
				c.Rules = append(c.Rules, rules.MustParseRule(jump(i+1)))
			} else {
				c.Rules = append(c.Rules, rules.MustParseRule(text()))
			}
		}
		b.Chains = append(b.Chains, c)
	}
	for _, hook := range []string{"INPUT", "FORWARD", "OUTPUT"} {
		c, around := rules.Chain{Name: hook}, rules.Chain{Name: hook}
		for range r.IntN(3) {
			c.Rules = append(c.Rules, rules.MustParseRule(text()), rules.MustParseRule(jump(0)))
		}
		if r.IntN(2) == 0 {
			around.Rules = append(around.Rules, rules.MustParseRule(jump(0)))
		}
		b.Kernel, b.Around = append(b.Kernel, c), append(b.Around, around)
	}
	return b
}

// wholeTable is a batch as the table would hold it, without the units that are out.
func wholeTable(b dataplane.Batch, out map[int]bool) []byte {
	block := rules.Block{Table: "filter"}
	for _, c := range b.Chains {
		block.Lines = append(block.Lines, rules.Line{Command: rules.Declare, Chain: c.Name})
	}
	for _, c := range slices.Concat(b.Chains, b.Around) {
		for i, r := range c.Rules {
			if !out[b.Unit(c.Name, i)] || rules.IsBuiltin("filter", c.Name) {
				block.Lines = append(block.Lines, rules.Line{Command: rules.Append, Chain: c.Name, Rule: r})
			}
		}
	}
	for _, c := range b.Kernel {
		for i, r := range c.Rules {
			if !out[b.Unit(c.Name, i)] {
				block.Lines = append(block.Lines, rules.Line{Command: rules.Append, Chain: c.Name, Rule: r})
			}
		}
	}
	return rules.AppendRestore(nil, block)
}

// What is not refused, the live table takes. And a Sim refuses the same.
func TestKernelTryIsTrue(t *testing.T) {
	for _, backend := range backends {
		k := newKernel(t, testns.Options(t, testns.New(t), backend))
		r := rand.New(rand.NewPCG(1, 2))
		refused, n := 0, 20
		switch {
		case os.Getenv("TABLEWARD_SOAK") != "":
			n = 400
		case testing.Short():
			n = 8
		}
		for i := range n {
			b := randomBatch(r)
			alone := i%2 == 0
			units := 1 + r.IntN(6)
			b.Unit = func(chain string, index int) int {
				if alone {
					return 100_000*len(chain) + 1000*int(chain[0]) + 10*int(chain[len(chain)-1]) + index // no two alike
				}
				return (7*len(chain) + int(chain[len(chain)-1]) + index) % units
			}
			vs := try(t, k, filter, b).Verdicts
			out := map[int]bool{}
			for _, v := range vs {
				if v.Err == nil || out[v.Unit] {
					t.Fatalf("%s: %+v", backend, v)
				}
				out[v.Unit] = true
			}
			refused += len(out)
			fresh := newKernel(t, testns.Options(t, testns.New(t), backend))
			if err := fresh.Restore(background, filter, wholeTable(b, out)); err != nil {
				t.Errorf("%s: %v, without what is refused:\n%s\n%s", backend, err, strings.Join(told(vs), "\n"), wholeTable(b, out))
			}
			sim := try(t, dataplane.NewSim(backend), filter, b).Verdicts
			if alone {
				if diff := cmp.Diff(told(sim), told(vs)); diff != "" {
					t.Errorf("%s (-sim +kernel):\n%s", backend, diff)
				}
				for _, v := range vs[:min(len(vs), 2)] {
					if err := fresh.Restore(background, filter, oneRule(v)); err == nil {
						t.Errorf("%s: taken after all: %q", backend, told([]dataplane.Verdict{v}))
					}
				}
			} else if diff := cmp.Diff(unitsOf(sim), unitsOf(vs)); diff != "" { // of several rules another one may be named
				t.Errorf("%s (-sim +kernel):\n%s\n%q\n%q", backend, diff, told(sim), told(vs))
			}
		}
		if refused < n {
			t.Errorf("%s: only %d of %d batches' units were refused", backend, refused, n)
		}
	}
}

// oneRule puts the rule of a verdict where it is refused, alone.
func oneRule(v dataplane.Verdict) []byte {
	at := v.Chain
	block := rules.Block{Table: "filter"}
	if !rules.IsBuiltin("filter", at) {
		at = "tw-alone"
		block.Lines = append(block.Lines, rules.Line{Command: rules.Declare, Chain: at})
		if v.Hook != "" {
			block.Lines = append(block.Lines, rules.Line{Command: rules.Insert, Chain: v.Hook, Rule: rules.MustParseRule("-j tw-alone")})
		}
	}
	r := rules.MustParseRule(v.Err.Text)
	block.Lines = append(block.Lines, rules.Line{Command: rules.Insert, Chain: at, Rule: r})
	return rules.AppendRestore(nil, block)
}

func unitsOf(vs []dataplane.Verdict) (units []int) {
	for _, v := range vs {
		units = append(units, v.Unit)
	}
	slices.Sort(units)
	return units
}
