// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

var filter4 = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}

// host is a State beside the simulator that it plans for.
type host struct {
	t     testing.TB
	id    rules.TableID
	sim   *dataplane.Sim
	state *transaction.State
	sent  []string // every block, in order
	// failDeletes leaves the delete blocks out, as if the kernel refused them.
	failDeletes bool
}

func newHost(t testing.TB, cfg transaction.Config, seed string) *host {
	t.Helper()
	if cfg.Table.Name == "" {
		cfg.Table = filter4
	}
	state, err := transaction.NewState(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, id: cfg.Table, sim: dataplane.NewSim(dataplane.NFT), state: state}
	h.stranger(seed)
	h.read()
	return h
}

// stranger applies restore input behind the State's back.
func (h *host) stranger(input string) {
	h.t.Helper()
	if input == "" {
		return
	}
	if err := h.sim.Load(h.id.IPVersion, []byte(input)); err != nil {
		h.t.Fatalf("stranger: %v", err)
	}
}

// read observes the simulator.
func (h *host) read() {
	h.t.Helper()
	snap, err := h.sim.Read(context.Background(), h.id)
	if err != nil {
		h.t.Fatal(err)
	}
	h.state.Observe(snap)
}

// batch takes messages through the State and the simulator and checks what must always
// hold: the simulator takes the modify block, the invariants, and that planning the same
// messages again is deterministic and leaves no trace.
func (h *host) batch(msgs ...transaction.Message) []transaction.Outcome {
	h.t.Helper()
	again, _ := h.state.Propose(msgs)
	first := rules.AppendRestore(nil, again.Plan().Modify)
	txn, outcomes := h.state.Propose(msgs)
	plan := txn.Plan()
	input := rules.AppendRestore(nil, plan.Modify)
	if string(first) != string(input) {
		h.t.Fatalf("equal input gave\n%s\nand then\n%s", first, input)
	}
	if len(plan.Modify.Lines) > 0 {
		h.send(input)
	}
	h.state.Commit(txn)
	h.check()
	if names := plan.Deletes(); len(names) > 0 && !h.failDeletes {
		h.send(rules.AppendRestore(nil, plan.Delete))
		h.state.Deleted(names...)
	}
	h.check()
	return outcomes
}

func (h *host) send(input []byte) {
	h.t.Helper()
	h.sent = append(h.sent, string(input))
	if err := h.sim.Restore(context.Background(), h.id, input); err != nil {
		h.t.Fatalf("the simulator refused\n%s%v", input, err)
	}
}

func (h *host) check() {
	h.t.Helper()
	if err := h.state.Check(); err != nil {
		h.t.Fatalf("%v\nafter\n%s", err, h.sent)
	}
}

// save is the simulator's table.
func (h *host) save() string { return h.sim.Save(h.id) }

func rule(text string) rules.Rule { return rules.MustParseRule(text) }

func chainOf(name string, texts ...string) rules.Chain {
	c := rules.Chain{Name: name}
	for _, text := range texts {
		c.Rules = append(c.Rules, rule(text))
	}
	return c
}

func rewrite(id, owner string, chains ...rules.Chain) transaction.Message {
	return transaction.Message{ID: id, Owner: owner, Body: transaction.RewriteChains{Chains: chains}}
}

func remove(id, owner string, names ...string) transaction.Message {
	return transaction.Message{ID: id, Owner: owner, Body: transaction.DeleteChains{Chains: names}}
}

func message(id, owner string, body transaction.Body) transaction.Message {
	return transaction.Message{ID: id, Owner: owner, Body: body}
}

// results returns the words for outcomes, for comparison.
func results(outcomes []transaction.Outcome) string {
	var out string
	for _, o := range outcomes {
		out += fmt.Sprintf("%d", o.Result)
	}
	return out
}
