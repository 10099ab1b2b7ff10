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
