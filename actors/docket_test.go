// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// docket is a Machine on any kernel with all that it did and answered written down.
type docket struct {
	t       *testing.T
	id      rules.TableID
	m       *actors.Machine
	order   []string // ids, as they were answered
	answers map[string]actors.Answer
	events  []actors.Event
	records []actors.BatchRecord
}

// newDocket makes a Machine that tries kinds of rules first where dp can be tried in.
func newDocket(t *testing.T, dp actors.Dataplane, id rules.TableID, backend string) *docket {
	d := &docket{t: t, id: id}
	d.forget()
	d.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: dp,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: depthOf(backend), Backend: backend, Kinds: true}
		},
		Observe: func(e actors.Event) {
			d.events = append(d.events, e)
			if e.Kind != actors.EventAnswer {
				return
			}
			if _, again := d.answers[e.Answer.ID]; again {
				t.Errorf("message %s is answered twice", e.Answer.ID)
			}
			d.order, d.answers[e.Answer.ID] = append(d.order, e.Answer.ID), *e.Answer
		},
		OnBatch: func(r actors.BatchRecord) { d.records = append(d.records, r) },
	})
	return d
}

func depthOf(backend string) int {
	if backend == string(dataplane.Legacy) {
		return 0
	}
	return 15
}

// kernelDocket is a docket of one table of a real kernel.
func kernelDocket(t *testing.T, k *dataplane.Kernel, v rules.IPVersion, table string) *docket {
	return newDocket(t, k, rules.TableID{IPVersion: v, Name: table}, k.Info().Backend)
}

func (d *docket) forget() {
	d.answers, d.order, d.events, d.records = map[string]actors.Answer{}, nil, nil, nil
}

// batch has messages planned together, and forgets what was before.
func (d *docket) batch(msgs ...transaction.Message) {
	d.t.Helper()
	d.forget()
	d.send(msgs...)
	d.m.Settle()
}

func (d *docket) send(msgs ...transaction.Message) {
	d.t.Helper()
	for _, m := range msgs {
		if err := d.m.Send(d.id, m); err != nil {
			d.t.Fatal(err)
		}
	}
}

// work sums up what was done: blocks on the live table, deletes left out, and probes.
func (d *docket) work() (restores, probes int) {
	for _, e := range d.events {
		if e.Kind == actors.EventRestore && !e.Delete {
			restores++
		}
		probes += e.Probes
	}
	return restores, probes
}

// atMost holds the work against its bounds.
func (d *docket) atMost(restores, probes int) {
	d.t.Helper()
	if r, p := d.work(); r > restores || p > probes {
		d.t.Errorf("%d blocks on the live table, at most %d; %d probes, at most %d\n%s", r, restores, p, probes, d.story())
	}
}

// story tells what happened.
func (d *docket) story() string {
	var b strings.Builder
	for _, e := range d.events {
		switch e.Kind {
		case actors.EventRestore:
			fmt.Fprintf(&b, "%v restore %s: %v\n", e.At, chainsOf(e.Input), e.Err)
		case actors.EventAnswer, actors.EventLate:
			fmt.Fprintf(&b, "%v %s %v: %v\n", e.At, e.Answer.ID, e.Answer.Result, e.Answer.Err)
		default:
			fmt.Fprintf(&b, "%v event %d: %d probes, %v\n", e.At, e.Kind, e.Probes, e.Err)
		}
	}
	return b.String()
}

// results holds that the messages named have that result and all others of a batch are applied.
func (d *docket) results(msgs []transaction.Message, result actors.Result, ids ...string) {
	d.t.Helper()
	for _, m := range msgs {
		want := actors.Applied
		if slices.Contains(ids, m.ID) {
			want = result
		}
		if a := d.answers[m.ID]; a.Result != want {
			d.t.Errorf("%s: %v (%v), want %v", m.ID, a.Result, a.Err, want)
		}
	}
	if len(d.answers) != len(msgs) {
		d.t.Errorf("%d answers to %d messages", len(d.answers), len(msgs))
	}
}

// refusal is what a message was told.
func (d *docket) refusal(id string) *transaction.Error {
	d.t.Helper()
	var e *transaction.Error
	if !errors.As(d.answers[id].Err, &e) {
		d.t.Fatalf("%s: %v: %v", id, d.answers[id].Result, d.answers[id].Err)
	}
	return e
}

// held reads a chain; nil when it does not exist.
func held(t *testing.T, dp actors.Dataplane, id rules.TableID, chain string) []string {
	t.Helper()
	return tableOf(t, dp, id)[chain]
}

// writes is a message that rewrites one chain.
func writes(id, chain string, texts ...string) transaction.Message {
	return transaction.Message{ID: id, Body: body(chain, texts...)}
}

// good are n messages of a chain each, with nothing wrong.
func good(n int) (msgs []transaction.Message) {
	for i := range n {
		msgs = append(msgs, writes(fmt.Sprint("good", i), fmt.Sprintf("tw-%03d", i), fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+i), "-j RETURN"))
	}
	return msgs
}

// among puts messages between the n good ones.
func among(n int, bad ...transaction.Message) []transaction.Message {
	return slices.Insert(good(n), n/2, bad...)
}

// freshKernel is a Kernel in a namespace, until the test ends.
func freshKernel(t *testing.T, path string, b dataplane.Backend) *dataplane.Kernel {
	t.Helper()
	k, err := dataplane.NewKernel(context.Background(), testns.Options(t, path, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

// putIn has a stranger's lines of a block put into a table, past everything of ours.
func putIn(t *testing.T, k *dataplane.Kernel, id rules.TableID, lines string) {
	t.Helper()
	if err := k.Restore(context.Background(), id, []byte("*"+id.Name+"\n"+lines+"COMMIT\n")); err != nil {
		t.Fatal(err)
	}
}

// tableOf reads a table: the rules of each chain.
func tableOf(t *testing.T, dp actors.Dataplane, id rules.TableID) map[string][]string {
	t.Helper()
	snap, err := dp.Read(context.Background(), id)
	if err != nil {
		t.Error(err)
		return nil
	}
	table := map[string][]string{}
	for name, c := range snap.Chains {
		table[name] = []string{}
		for _, r := range c.Rules {
			table[name] = append(table[name], r.Text)
		}
	}
	return table
}
