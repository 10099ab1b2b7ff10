// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// The refusals that a search is measured with, and tested.
var refusals = map[string]string{
	"option":  "-p tcp --bogus -j ACCEPT",
	"set":     "-m set --match-set tw-none src -j DROP",
	"at once": "-p tcp -j REDIRECT",
	"hook":    "-m owner --socket-exists -j ACCEPT",
}

// messages is a batch of units of ten rules in a chain each, all reached from FORWARD by way
// of one chain. Of the units for which bad says so the seventh rule is refused.
func messages(units int, bad func(int) bool, refused string) dataplane.Batch {
	dispatch := rules.Chain{Name: "tw-dispatch"}
	b := dataplane.Batch{}
	unit := map[string]int{}
	for i := range units {
		c := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
		unit[c.Name] = i
		for j := range 10 {
			text := fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -m comment --comment \"rule %d\" -j ACCEPT", i/250, i%250, j, 1000+j, j)
			switch {
			case j == 0:
				text = "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
			case j == 8:
				text = "-p tcp -m multiport --dports 80,443 -j ACCEPT"
			case j == 9:
				text = "-m comment --comment last -j RETURN"
			case j == 6 && bad(i):
				text = refused
			}
			c.Rules = append(c.Rules, rules.MustParseRule(text))
		}
		b.Chains = append(b.Chains, c)
		dispatch.Rules = append(dispatch.Rules, rules.MustParseRule(fmt.Sprintf("-s 10.%d.%d.0/24 -j %s", i/250, i%250, c.Name)))
	}
	b.Around = []rules.Chain{chain("FORWARD", "-j tw-dispatch"), dispatch}
	b.Unit = func(chain string, _ int) int { return unit[chain] }
	return b
}

// plainLoad is what it takes to load a batch of messages at once.
func plainLoad(b dataplane.Batch) []byte {
	block := rules.Block{Table: "filter"}
	line := func(l rules.Line) { block.Lines = append(block.Lines, l) }
	for _, c := range append(b.Chains, b.Around[1]) {
		line(rules.Line{Command: rules.Declare, Chain: c.Name})
	}
	for _, c := range append(b.Chains, b.Around...) {
		for _, r := range c.Rules {
			line(rules.Line{Command: rules.Append, Chain: c.Name, Rule: r})
		}
	}
	return rules.AppendRestore(nil, block)
}

func never(int) bool { return false }

// every tells of some among so many, evenly, and not the first.
func every(bad, units int) func(int) bool {
	return func(i int) bool { return bad > 0 && i%(units/bad) == units/bad/2 }
}

func newBenchKernel(b *testing.B, backend dataplane.Backend) *dataplane.Kernel {
	b.Helper()
	k, err := dataplane.NewKernel(background, testns.Options(b, testns.New(b), backend))
	if err != nil {
		b.Skipf("no kernel: %v", err)
	}
	return k
}

func closeKernel(b *testing.B, k *dataplane.Kernel) {
	b.Helper()
	if err := k.Close(); err != nil {
		b.Error(err)
	}
}

var backends = []dataplane.Backend{dataplane.NFT, dataplane.Legacy}

// Four rules that one hook reaches: the first Try of a Kernel, and those after it.
func BenchmarkTryFew(b *testing.B) {
	batch := dataplane.Batch{
		Chains: []rules.Chain{chain("tw-a", "-p tcp -m tcp --dport 80 -j ACCEPT", "-m owner --socket-exists -j ACCEPT",
			"-m conntrack --ctstate NEW -j ACCEPT", "-m comment --comment x -j DROP")},
		Around: []rules.Chain{chain("OUTPUT", "-j tw-a")},
	}
	for _, backend := range backends {
		b.Run(string(backend)+"/cold", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				k := newBenchKernel(b, backend)
				b.StartTimer()
				tryOnce(b, k, batch, 0)
				b.StopTimer()
				closeKernel(b, k)
				b.StartTimer()
			}
		})
		b.Run(string(backend)+"/warm", func(b *testing.B) {
			k := newBenchKernel(b, backend)
			defer closeKernel(b, k)
			tryOnce(b, k, batch, 0)
			for b.Loop() {
				tryOnce(b, k, batch, 0)
			}
		})
	}
}

func tryOnce(b *testing.B, k *dataplane.Kernel, batch dataplane.Batch, bad int) dataplane.Trial {
	b.Helper()
	t, err := k.Try(background, filter, batch)
	if err != nil {
		b.Fatal(err)
	}
	if len(t.Verdicts) != bad {
		b.Fatalf("%d verdicts, want %d", len(t.Verdicts), bad)
	}
	return t
}

// The search among 1,000 units of 10 rules, beside a plain load of the same batch; "loads"
// is the ratio of the two.
func BenchmarkTrySearch(b *testing.B) {
	const units = 1000
	for _, backend := range backends {
		for name, refused := range refusals {
			for _, bad := range []int{0, 1, 3, 10, units} {
				b.Run(fmt.Sprintf("%s/%s/%d", backend, name, bad), func(b *testing.B) {
					batch := messages(units, every(bad, units), refused)
					plain := plainLoad(messages(units, never, ""))
					var load, search time.Duration
					probes := 0
					for b.Loop() {
						b.StopTimer()
						k := newBenchKernel(b, backend)
						begin := time.Now()
						if err := k.Restore(background, filter, plain); err != nil {
							b.Fatal(err)
						}
						load += time.Since(begin)
						b.StartTimer()
						t := tryOnce(b, k, batch, bad)
						b.StopTimer()
						search += t.Took
						probes += t.Probes
						closeKernel(b, k)
						b.StartTimer()
					}
					b.ReportMetric(float64(search)/float64(load), "loads/op")
					b.ReportMetric(float64(probes)/float64(b.N), "probes/op")
					b.ReportMetric(float64(load.Milliseconds())/float64(b.N), "plain-ms/op")
				})
			}
		}
	}
}
