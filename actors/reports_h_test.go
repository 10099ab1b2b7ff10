// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file are of reports about things that are done again, and about restarts.
// What kernels hold is in reports_h_kernel_test.go.

func eachBackend(t *testing.T, f func(t *testing.T, sim *dataplane.Sim)) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b), func(t *testing.T) { f(t, dataplane.NewSim(b)) })
	}
}

func strangerIn(t *testing.T, sim *dataplane.Sim, lines ...string) {
	t.Helper()
	if err := sim.Load(rules.IPv4, []byte("*filter\n"+strings.Join(lines, "\n")+"\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
}

// R79: wherever an earlier program was killed on its way from old chains to new ones, the next
// one gets to what is wanted in one pass: a block, and one that deletes what is left over.
func TestR79AnyLeftoverState(t *testing.T) {
	way := []string{
		":tw-A - [0:0]", "-A tw-A -p tcp -m tcp --dport 1 -j ACCEPT", "-A INPUT -j tw-A", // the old state
		"-E tw-A tw-OLD-A", "-N tw-A", "-A tw-A -p tcp -m tcp --dport 2 -j ACCEPT", "-I INPUT -j tw-A", "-D INPUT -j tw-OLD-A",
		"-F tw-OLD-A", "-X tw-OLD-A",
	}
	wish := transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-A", "-p tcp -m tcp --dport 2 -j ACCEPT")}}
	for n := range len(way) + 1 {
		t.Run(fmt.Sprintf("after %d steps", n), func(t *testing.T) {
			eachBackend(t, func(t *testing.T, sim *dataplane.Sim) {
				for _, line := range way[:n] {
					strangerIn(t, sim, line)
				}
				l := begin(t, sim, t.TempDir(), actors.Options{})
				l.ask(wish, transaction.InsertRule("INPUT", rule("-j tw-A"), transaction.InsertTop))
				l.ask(transaction.EndGrace{}, transaction.Cleanup{})
				l.end()
				if got, want := sim.Save(filter4), "-A INPUT -j tw-A\n-A tw-A -p tcp -m tcp --dport 2 -j ACCEPT\nCOMMIT\n"; !strings.HasSuffix(got, want) || strings.Contains(got, "OLD") {
					t.Errorf("got:\n%swant:\n%s", got, want)
				}
				if blocks, _ := l.did(); strings.Count(blocks, "COMMIT\n") > 4 { // a block for each message, and one that deletes
					t.Errorf("%s", blocks)
				}
			})
		})
	}
}

// R82: chains that disappear between a write and the next look, or in the middle of a cleanup,
// are repaired, or gone as they should be. Nothing ends for it.
func TestR82ChainsDisappear(t *testing.T) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			b := newBench(t, backend, transaction.Config{})
			flush := func(lines ...string) {
				strangerIn(t, b.sim, lines...)
			}
			b.write("a", "tw-a", "-j ACCEPT")
			b.write("b", "tw-b", "-j DROP")
			b.send("hook", transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop))
			b.m.Settle()
			want := b.sim.Save(filter4)
			b.sim.Hook = func(c dataplane.Call) error {
				if c.Op == dataplane.OpRead || c.Op == dataplane.OpScan {
					b.sim.Hook = nil
					flush("-F", "-X")
				}
				return nil
			}
			b.send("look", transaction.Refresh{})
			b.m.Settle()
			b.send("look again", transaction.Refresh{})
			b.m.Settle()
			if got := b.sim.Save(filter4); got != want {
				t.Errorf("after a flush:\n%swant:\n%s", got, want)
			}
			b.send("delete", transaction.DeleteChains{Chains: []string{"tw-b"}})
			b.sim.Hook = func(c dataplane.Call) error {
				if c.Op == dataplane.OpRestore && strings.Contains(string(c.Input), "-X tw-b") {
					b.sim.Hook = nil
					flush("-F tw-b", "-X tw-b")
				}
				return nil
			}
			b.m.Settle()
			b.send("cleanup", transaction.Cleanup{})
			b.m.Settle()
			if b.sim.Hook != nil || strings.Contains(b.sim.Save(filter4), "tw-b") {
				t.Errorf("the deletion:\n%s\n%s", b.sim.Save(filter4), strings.Join(b.log, "\n"))
			}
			for _, id := range []string{"a", "b", "hook", "look", "look again", "delete", "cleanup"} {
				if b.answers[id] != "applied" {
					t.Errorf("%s: %s: %v", id, b.answers[id], b.errs[id])
				}
			}
			b.write("a2", "tw-a", "-p tcp -j ACCEPT")
			b.m.Settle()
			if b.answers["a2"] != "applied" || !strings.Contains(b.sim.Save(filter4), "-A tw-a -p tcp -j ACCEPT\n") {
				t.Errorf("afterwards: %s %v", b.answers["a2"], b.errs["a2"])
			}
			if err := b.m.State(filter4).Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// D20: grace ends when all owners have said that they are in sync, however long that takes, and
// not before: what a slow one will ask for stays as it is.
func TestD20GraceEndsByKnowledge(t *testing.T) {
	eachBackend(t, func(t *testing.T, sim *dataplane.Sim) {
		strangerIn(t, sim, ":tw-slow - [0:0]", ":tw-old - [0:0]", "-A INPUT -j tw-slow", "-A tw-slow -p tcp -j ACCEPT", "-A tw-old -j DROP")
		b := newBench(t, dataplane.NFT, transaction.Config{})
		b.sim = sim
		b.m = actors.NewMachine(actors.MachineConfig{
			Dataplane: sim, Observe: b.observe,
			Table: func(rules.TableID) transaction.Config {
				return transaction.Config{Prefixes: []string{"tw-"}, Grace: true, Owners: []string{"fast", "slow"}}
			},
		})
		send := func(id, owner string, body transaction.Body) {
			t.Helper()
			if err := b.m.Send(filter4, transaction.Message{ID: id, Owner: owner, Body: body}); err != nil {
				t.Fatal(err)
			}
			b.m.Settle()
		}
		send("1", "fast", transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-fast", "-j tw-slow")}})
		send("2", "fast", transaction.InSync{})
		send("3", "", transaction.Cleanup{})
		if got := sim.Save(filter4); !strings.Contains(got, "-A tw-slow -p tcp -j ACCEPT\n") || !strings.Contains(got, "-A tw-old -j DROP\n") {
			t.Errorf("before the slow one is in sync:\n%s", got)
		}
		send("4", "slow", transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-slow", "-p tcp -j ACCEPT", "-j DROP")}})
		send("5", "slow", transaction.InsertRule("INPUT", rule("-j tw-slow"), transaction.InsertTop))
		send("6", "slow", transaction.InSync{})
		send("7", "", transaction.Cleanup{})
		if got := sim.Save(filter4); strings.Contains(got, "tw-old") || !strings.HasSuffix(got, "-A INPUT -j tw-slow\n-A tw-fast -j tw-slow\n-A tw-slow -p tcp -j ACCEPT\n-A tw-slow -j DROP\nCOMMIT\n") {
			t.Errorf("after all are in sync:\n%s", got)
		}
	})
}

// D27: a rewrite with what the chain holds already is answered and not sent, alone or amid
// others; and so is each further one.
func TestD27UnchangedIsNotSent(t *testing.T) {
	eachBackend(t, func(t *testing.T, sim *dataplane.Sim) {
		l := begin(t, sim, t.TempDir(), actors.Options{})
		wish := func(port int) transaction.Body {
			return transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(1, 2)...), chainOf("tw-b", ports(port)...)}}
		}
		l.ask(wish(1))
		sent, _ := l.did()
		l.ask(wish(1), wish(1))
		if blocks, _ := l.did(); blocks != sent {
			t.Errorf("sent again:\n%s", blocks[len(sent):])
		}
		l.ask(wish(2))
		if blocks, _ := l.did(); strings.Contains(blocks[len(sent):], "tw-a") || blocks == sent {
			t.Errorf("sent for a change of tw-b:\n%s", blocks[len(sent):])
		}
		l.end()
	})
}

// D36: a refresh moves no rule that is where it should be: the rules that others put behind ours
// and before those at the bottom stay, and ours do not move among each other.
func TestD36RefreshMovesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, sim *dataplane.Sim) {
		l := begin(t, sim, t.TempDir(), actors.Options{})
		l.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(1)...), chainOf("tw-b", ports(2)...)}},
			transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop), transaction.InsertRule("INPUT", rule("-j tw-b"), transaction.InsertBottom))
		strangerIn(t, sim, "-I INPUT 2 -p udp -j ACCEPT", "-I INPUT 3 -p icmp -j ACCEPT")
		want := sim.Save(filter4)
		sent, _ := l.did()
		for range 5 {
			l.ask(transaction.Refresh{})
		}
		if blocks, _ := l.did(); blocks != sent || sim.Save(filter4) != want {
			t.Errorf("sent:\n%s\n%s", blocks[len(sent):], sim.Save(filter4))
		}
		// Of two repairs one is needed: the rule that was taken, and no other.
		strangerIn(t, sim, "-D INPUT -j tw-b")
		l.ask(transaction.Refresh{})
		if blocks, _ := l.did(); sim.Save(filter4) != want || strings.Contains(blocks[len(sent):], "tw-a") {
			t.Errorf("sent:\n%s\n%s", blocks[len(sent):], sim.Save(filter4))
		}
		l.end()
	})
}
