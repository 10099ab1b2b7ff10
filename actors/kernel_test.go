// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	writers         = 8
	chainsPerWriter = 125
	rewritesEach    = 1000
	mostUnanswered  = 100
	mostBlocks      = 400
)

// 8 goroutines, each the only writer of its own 125 chains, 1,000 rewrites each, at most
// 100 unanswered: every message is answered once, the kernel holds each chain's last
// content, in few blocks.
func TestKernelManyWriters(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		answers := newTally()
		var blocks atomic.Int64
		rt := newRuntime(t, k, actors.Options{
			OnAnswer: answers.take,
			Observe: func(e actors.Event) {
				if e.Kind == actors.EventRestore {
					blocks.Add(1)
				}
			},
		})
		want := manyWriters(t, rt, id, answers)
		answers.wait()
		for msg, n := range answers.counts {
			if n != 1 {
				t.Errorf("message %s has %d answers", msg, n)
			}
		}
		if len(answers.counts) != writers*rewritesEach {
			t.Errorf("%d messages have an answer, of %d", len(answers.counts), writers*rewritesEach)
		}
		if n := blocks.Load(); n > mostBlocks {
			t.Errorf("%d blocks for %d messages, more than %d", n, writers*rewritesEach, mostBlocks)
		}
		t.Logf("%d messages in %d blocks", writers*rewritesEach, blocks.Load())
		snap, err := k.Read(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, c := range snap.Chains {
			if strings.HasPrefix(name, "tw-") {
				texts := make([]string, len(c.Rules))
				for i, r := range c.Rules {
					texts[i] = r.Text
				}
				got[name] = strings.Join(texts, "\n")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the kernel (+) does not hold each chain's last content (-):\n%s", diff)
		}
	})
}

// manyWriters sends everything and returns what each chain's last message said.
func manyWriters(t *testing.T, rt *actors.Runtime, id rules.TableID, answers *tally) map[string]string {
	var mu sync.Mutex
	want := map[string]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			f := rt.Owner(fmt.Sprintf("writer-%d", w), 0)
			window := answers.window(fmt.Sprintf("writer-%d", w))
			last := map[string]string{}
			for i := range rewritesEach {
				window <- struct{}{}
				name := fmt.Sprintf("tw-%d-%d", w, (i*7)%chainsPerWriter)
				text := fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+i)
				if err := f.Tell(id, transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, text)}}); err != nil {
					t.Error(err)
				}
				last[name] = text
			}
			mu.Lock()
			defer mu.Unlock()
			for name, text := range last {
				want[name] = text
			}
		})
	}
	wg.Wait()
	return want
}

// tally counts answers and bounds what each owner has unanswered.
type tally struct {
	mu      sync.Mutex
	counts  map[string]int
	bad     []actors.Answer
	windows map[string]chan struct{}
}

func newTally() *tally { return &tally{counts: map[string]int{}, windows: map[string]chan struct{}{}} }

// window returns the owner's channel: a send takes a place, an answer gives it back.
func (a *tally) window(owner string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.windows[owner] == nil {
		a.windows[owner] = make(chan struct{}, mostUnanswered)
	}
	return a.windows[owner]
}

func (a *tally) take(answer actors.Answer) {
	window := a.window(answer.Owner)
	a.mu.Lock()
	a.counts[answer.ID]++
	if answer.Err != nil {
		a.bad = append(a.bad, answer)
	}
	a.mu.Unlock()
	<-window
}

// wait returns when nothing is unanswered.
func (a *tally) wait() {
	a.mu.Lock()
	windows := make([]chan struct{}, 0, len(a.windows))
	for _, w := range a.windows {
		windows = append(windows, w)
	}
	a.mu.Unlock()
	for _, w := range windows {
		for range mostUnanswered {
			w <- struct{}{} // all places can be taken: none is held by an unanswered message
		}
	}
}

// One bad message of many is refused with its reason, and all others are in the kernel.
func TestKernelOneBadOfMany(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for _, tt := range []struct{ name, bad, reason string }{
			{"unknown option", "-p tcp --bogus 1 -j ACCEPT", "unknown option"},
			{"missing set", "-m set --match-set nosuchset src -j ACCEPT", "nosuchset"},
			{"target of another table", "-j MASQUERADE", ""},
		} {
			t.Run(tt.name, func(t *testing.T) {
				rt := newRuntime(t, k, actors.Options{})
				var msgs []transaction.Message
				for i := range 20 {
					text := fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+i)
					if i == 13 {
						text = tt.bad
					}
					name := fmt.Sprintf("tw-%d", i)
					msgs = append(msgs, transaction.Message{ID: name, Body: transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, text)}}})
				}
				hook := transaction.InsertRule("FORWARD", rule("-j tw-13"), transaction.InsertTop)
				msgs = append(msgs, transaction.Message{ID: "hook", Body: hook})
				answers, err := rt.Send(context.Background(), id, msgs...)
				if err != nil {
					t.Fatal(err)
				}
				bad := slices.DeleteFunc(slices.Clone(answers), func(a actors.Answer) bool { return a.Result == actors.Applied })
				if len(bad) != 1 || bad[0].ID != "tw-13" || bad[0].Result != actors.Rejected || !strings.Contains(bad[0].Err.Error(), tt.reason) {
					t.Errorf("not applied: %+v", bad)
				}
				snap, err := k.Read(context.Background(), id)
				if err != nil {
					t.Fatal(err)
				}
				if n := len(snap.Chains["tw-13"].Rules); n != 1 || !strings.Contains(snap.Chains["tw-13"].Rules[0].Text, "missing chain") {
					t.Errorf("tw-13 is no stub: %+v", snap.Chains["tw-13"])
				}
			})
		}
	})
}
