// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_d_test.go: D14 and D45, what comes while
// a batch is in trouble, by the time of a bubble.

// sluggish is a touchy kernel whose blocks and probes take their time.
type sluggish struct {
	*touchy
	block, probe time.Duration
}

func (d *sluggish) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	time.Sleep(d.block)
	return d.touchy.Restore(ctx, id, input)
}

func (d *sluggish) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	d.most = int(b.Budget / d.probe)
	trial, err := d.touchy.Try(ctx, id, b)
	trial.Took = time.Duration(trial.Probes) * d.probe
	time.Sleep(trial.Took)
	return trial, err
}

// ownKind is a rule of a kind that no other has, bad but for one of ten.
func ownKind(i int) string {
	if i%10 == 5 {
		return fmt.Sprintf("-m limit --limit %d/hour -j ACCEPT", i)
	}
	return fmt.Sprintf("-m bad%d -j ACCEPT", i)
}

// D45: whatever is being searched for, a message that comes meanwhile waits for one trial and
// one block, not for the search; and one that replaces what is at fault puts an end to it: it
// is applied, and nothing older comes on top of it.
func TestD45MailDoesNotWaitForASearch(t *testing.T) {
	const block, probe = 50 * time.Millisecond, 10 * time.Millisecond
	for name, c := range map[string]struct {
		manner manner
		text   func(i int) string
	}{
		"shown by the live table":        {byCommit, func(i int) string { return note(fmt.Sprint("bad", i)) }},
		"of a new kind":                  {byCommit, func(i int) string { return "-p udp " + note(fmt.Sprint("bad", i)) }},
		"each of a new kind":             {byCommit, ownKind},
		"each of a new kind, with lines": {byParser, ownKind},
		"of many new kinds":              {byCommit, func(i int) string { return ownKind(i % 100) }},
	} {
		for _, n := range []int{64, 500} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, k := newDiary(), &touchy{Sim: dataplane.NewSim(dataplane.NFT), manner: c.manner}
					rt := newRuntime(t, &sluggish{k, block, probe}, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Refresh: -1})
					ask := func(m transaction.Message) time.Duration {
						begin := time.Now()
						answers, err := rt.Send(context.Background(), filter4, m)
						if err != nil || answers[0].Result != actors.Applied {
							t.Errorf("%s: %+v, %v", m.ID, answers, err)
						}
						return time.Since(begin)
					}
					ask(writes("warm", "tw-warm", note("warm")))
					var msgs []transaction.Message
					for i := range n {
						msgs = append(msgs, writes(fmt.Sprint(i), fmt.Sprintf("tw-%04d", i), note("first"), c.text(i)))
					}
					if err := rt.Tell(filter4, msgs...); err != nil {
						t.Fatal(err)
					}
					time.Sleep(150 * time.Millisecond)
					last := fmt.Sprintf("tw-%04d", n-1)
					for i, m := range []transaction.Message{
						writes("other", "tw-other", note("other")), writes("cure", last, note("cured")),
						{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-0001"}}},
					} {
						if took := ask(m); took > 1500*time.Millisecond {
							t.Errorf("message %d, %s, waited %v", i, m.ID, took)
						}
					}
					time.Sleep(time.Minute)
					results, _ := d.results(t)
					for i := range n {
						a, want := results[fmt.Sprint(i)], actors.Rejected
						if !strings.Contains(c.text(i), "bad") {
							want = actors.Applied
						}
						if replaced := i == n-1 || i == 1; a.Result != want && !(replaced && a.Result == actors.Superseded) {
							t.Errorf("message %d: %v: %v", i, a.Result, a.Err)
						}
					}
					if save := k.Save(filter4); len(results) != n || !strings.Contains(save, "-A "+last+" -m comment --comment cured -j ACCEPT\n") || strings.Contains(save, "bad") {
						t.Errorf("%d answers\n%s", len(results), save)
					}
					settleDeadLetters(t, rt)
				})
			})
		}
	}
}

// D45: the same where nothing can be tried beside the live table, and a batch is taken apart
// on it.
func TestD45MailDoesNotWaitForHalves(t *testing.T) {
	for _, n := range []int{64, 500} {
		synctest.Test(t, func(t *testing.T) {
			d, k := newDiary(), &touchy{Sim: dataplane.NewSim(dataplane.Legacy), manner: byCommit, noScratch: true}
			rt := newRuntime(t, &sluggish{k, 50 * time.Millisecond, time.Millisecond}, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Refresh: -1})
			var msgs []transaction.Message
			for i := range n {
				text := note(fmt.Sprint("bad", i))
				if i%10 == 5 {
					text = note("fine")
				}
				msgs = append(msgs, writes(fmt.Sprint(i), fmt.Sprintf("tw-%04d", i), text))
			}
			if err := rt.Tell(filter4, msgs...); err != nil {
				t.Fatal(err)
			}
			last := fmt.Sprintf("tw-%04d", n-1)
			for i, m := range []transaction.Message{writes("other", "tw-other", note("other")), writes("cure", last, note("cured"))} {
				time.Sleep(150 * time.Millisecond)
				begin := time.Now()
				answers, err := rt.Send(context.Background(), filter4, m)
				if took := time.Since(begin); err != nil || answers[0].Result != actors.Applied || took > 1500*time.Millisecond {
					t.Errorf("message %d, %s, of %d waited %v: %+v, %v", i, m.ID, n, took, answers, err)
				}
			}
			time.Sleep(10 * time.Minute)
			results, _ := d.results(t)
			for i := range n {
				a, want := results[fmt.Sprint(i)], actors.Rejected
				if i%10 == 5 {
					want = actors.Applied
				}
				if a.Result != want && !(i == n-1 && a.Result == actors.Superseded) {
					t.Errorf("message %d: %v: %v", i, a.Result, a.Err)
				}
			}
			if save := k.Save(filter4); !strings.Contains(save, "-A "+last+" -m comment --comment cured -j ACCEPT\n") || strings.Contains(save, "bad") {
				t.Error(save)
			}
			if k.live > 3*n {
				t.Errorf("%d blocks for %d messages", k.live, n)
			}
			settleDeadLetters(t, rt)
		})
	}
}

// D14: while a batch rests, since the environment does not take it, mail gets in: it is in the
// next try, so that a delete cures what it can, and a rewrite supersedes.
func TestD14MailJoinsARestingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		sim.Hook = func(c dataplane.Call) error {
			if c.Op == dataplane.OpRestore && strings.Contains(string(c.Input), "huge") {
				return dataplane.Classify(1, "iptables: calloc failed: Cannot allocate memory\n", c.Input)
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Refresh: -1})
		msgs := among(64, writes("huge", "tw-huge", note("huge")), writes("old", "tw-new", note("huge")))
		if err := rt.Tell(filter4, msgs...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Minute + time.Second)
		if results, _ := d.results(t); len(results) != 0 {
			t.Fatalf("%d answers while the batch rests", len(results))
		}
		begin := time.Now()
		answers, err := rt.Send(context.Background(), filter4,
			transaction.Message{ID: "cure", Body: transaction.DeleteChains{Chains: []string{"tw-huge"}}}, writes("new", "tw-new", note("new")))
		if took := time.Since(begin); err != nil || answers[0].Result != actors.Applied || answers[1].Result != actors.Applied || took > 5*time.Second {
			t.Errorf("after %v: %+v, %v", took, answers, err)
		}
		results, _ := d.results(t)
		for _, m := range msgs {
			want := actors.Applied
			if m.ID == "huge" || m.ID == "old" {
				want = actors.Superseded
			}
			if a := results[m.ID]; a.Result != want {
				t.Errorf("%s: %v: %v", m.ID, a.Result, a.Err)
			}
		}
		if n := d.blocks(begin.Sub(d.start)); n != 1 {
			t.Errorf("%d blocks after the cure had come", n)
		}
		settleDeadLetters(t, rt)
	})
}
