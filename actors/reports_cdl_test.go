// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_cdl_kernel_test.go, without a kernel.

// oldTool is one that does not edit by index rightly.
type oldTool struct{ *dataplane.Sim }

func (oldTool) CanEdit(context.Context, rules.TableID) bool { return false }

// R44: a tool for which only the first index of an input counts is given none, and chains are
// written as a whole. One that was found to do it rightly is given edits.
func TestR44OldToolGetsNoIndex(t *testing.T) {
	indexed := regexp.MustCompile(`(?m)^-[RDI] tw-a \d`)
	for name, old := range map[string]bool{"old": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, dataplane.NFT, transaction.Config{})
			var dp actors.Dataplane = b.sim
			if old {
				dp = oldTool{b.sim}
			}
			edits, blocks := 0, 0
			b.m = actors.NewMachine(actors.MachineConfig{
				Dataplane: dp, Scan: true,
				Table: func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
				Observe: func(e actors.Event) {
					b.observe(e)
					if e.Kind == actors.EventRestore && e.Err == nil {
						blocks++
						edits += len(indexed.FindAllString(string(e.Input), -1))
					}
				},
			})
			want := ""
			for n := range 4 {
				var texts []string
				for i := range 6 {
					port := i
					if i%2 == 0 {
						port += 100 * n // the first, the third and the fifth change
					}
					texts = append(texts, fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", port+1))
				}
				b.write(fmt.Sprint(n), "tw-a", texts...)
				b.m.Settle()
				want = "-A tw-a " + strings.Join(texts, "\n-A tw-a ") + "\n"
			}
			if (edits == 0) != old || blocks != 4 {
				t.Errorf("%d lines with an index in %d blocks", edits, blocks)
			}
			if got := b.sim.Save(filter4); !strings.Contains(got, want) {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// R106: a machine without memory for another process is passing trouble: all messages are tried
// again, together and more and more slowly, and nobody is blamed.
func TestR106NoMemoryForATool(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.failing(5, &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: -1, Reason: "the tool could not be started", Err: syscall.ENOMEM})
	for n := range 20 {
		b.write(fmt.Sprint(n), fmt.Sprintf("tw-%d", n), "-j ACCEPT")
	}
	b.m.Settle()
	if len(b.answers) > 0 {
		t.Errorf("answered while nothing can be started: %v", b.answers)
	}
	b.m.Advance(time.Minute)
	tries := 0
	for _, line := range b.log {
		if strings.HasPrefix(line, "restore ") {
			tries++
			if got := strings.Count(line, "tw-"); got != 20 {
				t.Errorf("a block of %d chains: %s", got, line)
			}
		}
	}
	if tries != 6 {
		t.Errorf("%d tries, want 6", tries)
	}
	for n := range 20 {
		if got := b.answers[fmt.Sprint(n)]; got != "applied" {
			t.Errorf("message %d: %q", n, got)
		}
	}
}

// R112: in the repair of a whole table, and in a change of all its chains, nothing is ever more
// open or more closed than before or after: the jump is never absent, no chain is ever empty, the
// policy changes last.
func TestR112NoOtherStateOnTheWay(t *testing.T) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			b := newBench(t, backend, transaction.Config{})
			const n = 100
			seen := 0
			states := func(e actors.Event) {
				b.observe(e)
				if e.Kind != actors.EventRestore || e.Err != nil {
					return
				}
				seen++
				save := b.sim.Save(filter4)
				if strings.Contains(save, ":FORWARD DROP") != strings.Contains(save, "-A FORWARD -j tw-all") {
					t.Errorf("the policy without the jump, or the jump without it:\n%s", save)
				}
				if strings.Contains(save, "-A FORWARD -j tw-all") {
					for i := range n {
						if !strings.Contains(save, fmt.Sprintf("-A tw-%d -p tcp", i)) || !strings.Contains(save, fmt.Sprintf("-A tw-all -j tw-%d\n", i)) {
							t.Errorf("chain tw-%d is empty or not reached", i)
						}
					}
				}
			}
			b.m = actors.NewMachine(actors.MachineConfig{
				Dataplane: b.sim, Observe: states, Scan: true,
				Table: func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
			})
			send := func(port int) {
				var jumps []string
				for i := range n {
					b.write(fmt.Sprint(port, "-", i), fmt.Sprintf("tw-%d", i), fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", port))
					jumps = append(jumps, fmt.Sprintf("-j tw-%d", i))
				}
				b.write(fmt.Sprint(port, "-all"), "tw-all", jumps...)
			}
			b.send("policy", transaction.SetPolicy{Chain: "FORWARD", Policy: "DROP"})
			b.send("hook", transaction.InsertRule("FORWARD", rule("-j tw-all"), transaction.InsertTop))
			send(1)
			b.m.Settle()
			send(2)
			b.m.Settle()
			if err := b.sim.Load(rules.IPv4, []byte("*filter\n-F FORWARD\n-P FORWARD ACCEPT\n-F tw-3\n-F tw-4\nCOMMIT\n")); err != nil {
				t.Fatal(err)
			}
			b.send("repair", transaction.Refresh{})
			b.m.Settle()
			if seen < 3 || b.answers["repair"] != "applied" || !strings.Contains(b.sim.Save(filter4), ":FORWARD DROP") {
				t.Errorf("%d blocks, repair %s\n%s", seen, b.answers["repair"], b.sim.Save(filter4))
			}
		})
	}
}
