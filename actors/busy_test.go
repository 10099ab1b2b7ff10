// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// unresting is a table that others write to faster than it can be looked at as a whole.
type unresting struct {
	*dataplane.Sim
	begun *bool
}

func (r unresting) Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if len(chains) == 0 && *r.begun {
		return rules.Snapshot{}, &dataplane.RestoreError{Class: dataplane.Busy, Reason: "the table changed while it was read"}
	}
	return r.Sim.Scan(ctx, id, chains...)
}

func (r unresting) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if len(chains) == 0 && *r.begun {
		return rules.Snapshot{}, &dataplane.RestoreError{Class: dataplane.Busy, Reason: "it never ended"}
	}
	return r.Sim.Read(ctx, id, chains...)
}

// Who writes all the time holds up looks at the whole table, but no message.
func TestBusyTableHoldsNobodyUp(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	begun := false
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: unresting{b.sim, &begun}, Scan: true, Observe: b.observe,
		Table: func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
	})
	b.write("1", "tw-a", "-j ACCEPT")
	b.m.Settle()
	begun = true
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n-A FORWARD -p tcp -j ACCEPT\n-A FORWARD -p udp -j ACCEPT\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.send("look", transaction.Refresh{})
	b.write("2", "tw-a", "-p tcp -j ACCEPT")
	b.send("hook", transaction.InsertRule("FORWARD", rule("-j tw-a"), transaction.InsertTop))
	b.m.Settle()
	for id, want := range map[string]string{"look": "unavailable", "2": "applied", "hook": "applied"} {
		if got := b.answers[id]; got != want {
			t.Errorf("%s: %s, want %s: %v\n%s", id, got, want, b.errs[id], strings.Join(b.log, "\n"))
		}
	}
	if save := b.sim.Save(filter4); !strings.Contains(save, "-A FORWARD -j tw-a\n-A FORWARD -p tcp") || !strings.Contains(save, "-A tw-a -p tcp") {
		t.Error(save)
	}
	begun = false
	b.send("look again", transaction.Refresh{})
	b.m.Settle()
	if got := b.answers["look again"]; got != "applied" {
		t.Errorf("the look afterwards: %s %v", got, b.errs["look again"])
	}
	if err := b.m.State(filter4).Check(); err != nil {
		t.Error(err)
	}
}

// meddled is a table that somebody writes to after each block, and while it is found out what
// chains should look like.
type meddled struct {
	*dataplane.Sim
	t     *testing.T
	asked map[string]int // how often, by chain
	most  int            // writes that are still to come
}

func (m *meddled) meddle() {
	if m.most--; m.most < 0 {
		return
	}
	if err := m.Load(rules.IPv4, []byte("*filter\n-A FORWARD -p udp -j ACCEPT\nCOMMIT\n")); err != nil {
		m.t.Error(err)
	}
}

func (m *meddled) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	defer m.meddle()
	return m.Sim.Restore(ctx, id, input)
}

func (m *meddled) Expect(ctx context.Context, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error) {
	defer m.meddle()
	for _, c := range chains {
		m.asked[c.Name]++
	}
	return m.Sim.Expect(ctx, id, chains)
}

// What a chain should look like is found out once, however often the table changes meanwhile:
// of a large table it takes so long that it would never be verified.
func TestExpectationsOutliveAMovedTable(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	m := &meddled{Sim: b.sim, t: t, asked: map[string]int{}, most: 2}
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: m, Scan: true, Observe: b.observe,
		Table: func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
	})
	b.write("a", "tw-a", "-p tcp -j ACCEPT", "-j DROP")
	b.write("b", "tw-b", "-j tw-a")
	b.send("hook", transaction.InsertRule("FORWARD", rule("-j tw-b"), transaction.InsertTop))
	b.m.Settle()
	b.send("look", transaction.Refresh{})
	b.m.Settle()
	if m.most > 0 || len(m.asked) != 2 || m.asked["tw-a"] != 1 || m.asked["tw-b"] != 1 {
		t.Errorf("asked %v, with %d writes to come", m.asked, m.most)
	}
	b.write("a2", "tw-a", "-j ACCEPT")
	m.most = 1 // after the block
	b.m.Settle()
	if m.asked["tw-a"] != 2 || m.asked["tw-b"] != 1 {
		t.Errorf("asked %v after tw-a was changed", m.asked)
	}
	for id, got := range b.answers {
		if got != "applied" {
			t.Errorf("%s: %s: %v", id, got, b.errs[id])
		}
	}
	if err := b.m.State(filter4).Check(); err != nil {
		t.Error(err)
	}
}
