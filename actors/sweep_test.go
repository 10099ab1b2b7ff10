// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// restarted is a runtime that finds what an earlier run left, with its real timers: grace
// until the owner "policy" is in sync, and a look at the table each minute.
type restarted struct {
	t        *testing.T
	sim      *dataplane.Sim
	rt       *actors.Runtime
	restores atomic.Int64
	slow     atomic.Bool // a read takes ten seconds
}

const earlierRun = "*filter\n:tw-jump - [0:0]\n:tw-pol - [0:0]\n-A FORWARD -j tw-jump\n-A tw-jump -j tw-pol\n-A tw-pol -j DROP\nCOMMIT\n"

// afterRestart runs f in a bubble, a second after the runtime has taken FORWARD's hook over.
func afterRestart(t *testing.T, f func(r *restarted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &restarted{t: t, sim: dataplane.NewSim(dataplane.NFT)}
		r.stranger(earlierRun)
		r.sim.Hook = func(c dataplane.Call) error {
			if c.Op == dataplane.OpRead && r.slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		r.rt = newRuntime(t, r.sim, actors.Options{
			Table:   transaction.Config{Grace: true, Owners: []string{"policy"}},
			Refresh: time.Minute, GraceTimeout: -1, NoJitter: true,
			Observe: func(e actors.Event) {
				if e.Kind == actors.EventRestore {
					r.restores.Add(1)
				}
			},
		})
		r.send(transaction.InsertRule("FORWARD", rule("-j tw-jump"), transaction.InsertTop))
		time.Sleep(time.Second)
		f(r)
		settleDeadLetters(t, r.rt)
	})
}

func (r *restarted) stranger(input string) {
	r.t.Helper()
	if err := r.sim.Load(rules.IPv4, []byte(input)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *restarted) send(body transaction.Body) {
	r.t.Helper()
	if a, err := r.rt.Owner("policy", 0).Ask(context.Background(), filter4, body); err != nil || a.Err != nil {
		r.t.Fatal(err, a.Err)
	}
}

func (r *restarted) inSync() {
	r.t.Helper()
	if _, err := r.rt.Owner("policy", 0).InSync(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// at lets time pass until d after the restart.
func (r *restarted) at(start time.Time, d time.Duration) {
	time.Sleep(d - time.Since(start))
	synctest.Wait()
}

func (r *restarted) holds(what string, lines ...string) {
	r.t.Helper()
	save := r.sim.Save(filter4)
	for _, line := range lines {
		text, absent := strings.CutPrefix(line, "!")
		if strings.Contains(save, text) == absent {
			r.t.Errorf("%s: %q is wrong in\n%s", what, line, save)
		}
	}
}

// The first situation: policies come back within one period. The chains are adopted, and
// nothing is written at all.
func TestSweepPoliciesInTime(t *testing.T) {
	afterRestart(t, func(r *restarted) {
		start := time.Now()
		r.send(body("tw-pol", "-j DROP"))
		r.send(body("tw-jump", "-j tw-pol"))
		r.inSync()
		r.at(start, 5*time.Minute)
		r.holds("after five minutes", "-A tw-jump -j tw-pol", "-A tw-pol -j DROP")
		if n := r.restores.Load(); n != 0 {
			t.Errorf("%d restores for what was there already", n)
		}
	})
}

// The second: later than one period. Nothing works any more then, since the jump chain was
// emptied; the policy's chain is deleted, and made again when the policy comes.
func TestSweepPoliciesLate(t *testing.T) {
	afterRestart(t, func(r *restarted) {
		start := time.Now()
		r.send(body("tw-jump"))
		r.inSync()
		r.at(start, 65*time.Second)
		r.holds("after a period", "!:tw-pol", ":tw-jump")
		r.send(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-pol", "-j DROP"), chainOf("tw-jump", "-j tw-pol")}})
		r.at(start, 5*time.Minute)
		r.holds("in the end", "-A tw-jump -j tw-pol", "-A tw-pol -j DROP")
	})
}

// The third: the table is looked at in the middle of a policy's coming. Its chain is not
// taken for an orphan, although the read was made before the message was.
func TestSweepWhileAPolicyComes(t *testing.T) {
	afterRestart(t, func(r *restarted) {
		start := time.Now()
		r.send(body("tw-jump"))
		r.inSync()
		r.slow.Store(true)
		r.at(start, 62*time.Second)
		both := transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-pol", "-j DROP"), chainOf("tw-jump", "-j tw-pol")}}
		if err := r.rt.Owner("policy", 0).Tell(filter4, both); err != nil {
			t.Fatal(err)
		}
		r.at(start, 5*time.Minute)
		r.holds("in the end", "-A tw-jump -j tw-pol", "-A tw-pol -j DROP")
	})
}

// The fourth: somebody wrote the chain into the kernel before he said so. One look at it
// does not make it an orphan that is deleted.
func TestSweepKernelBeforeMessage(t *testing.T) {
	afterRestart(t, func(r *restarted) {
		start := time.Now()
		r.send(body("tw-pol", "-j DROP"))
		r.send(body("tw-jump", "-j tw-pol"))
		r.inSync()
		r.at(start, 58*time.Second)
		r.stranger("*filter\n:tw-new - [0:0]\n-A tw-new -j ACCEPT\nCOMMIT\n")
		r.at(start, 70*time.Second)
		r.holds("after one look", "-A tw-new -j ACCEPT")
		r.send(body("tw-new", "-j ACCEPT"))
		r.at(start, 5*time.Minute)
		r.holds("in the end", "-A tw-new -j ACCEPT")
	})
}

// The fifth: an old snapshot brings a deleted chain and its jump back. The first look empties
// the jump chain, and deletes again what was deleted.
func TestSweepStaleSnapshot(t *testing.T) {
	afterRestart(t, func(r *restarted) {
		start := time.Now()
		r.send(body("tw-pol", "-j DROP"))
		r.send(body("tw-jump", "-j tw-pol"))
		r.inSync()
		r.send(body("tw-jump"))
		r.send(transaction.DeleteChains{Chains: []string{"tw-pol"}})
		r.at(start, 30*time.Second)
		r.stranger("*filter\n:tw-jump - [0:0]\n:tw-pol - [0:0]\n-A tw-jump -j tw-pol\n-A tw-pol -j DROP\nCOMMIT\n")
		r.at(start, 65*time.Second)
		r.holds("after the first look", "!-A tw-jump", "!:tw-pol", ":tw-jump")
	})
}

// A message that comes in any phase of a run (the read, the write, the delete, the answer)
// is kept and is in the kernel in the end.
func TestMessagesInEveryPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		var rt *actors.Runtime
		var told atomic.Int64
		tell := func() {
			n := told.Add(1)
			if n > 40 {
				return
			}
			if err := rt.Tell(filter4, transaction.Message{ID: fmt.Sprint(n), Body: body(fmt.Sprintf("tw-%d", n), "-j ACCEPT")}); err != nil {
				t.Error(err)
			}
		}
		sim.Hook = func(dataplane.Call) error {
			tell()
			return nil
		}
		rt = newRuntime(t, sim, actors.Options{Refresh: time.Minute, OnAnswer: func(actors.Answer) { tell() }})
		for i := range 5 {
			if _, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-main", fmt.Sprintf("-s 10.0.0.%d/32 -j ACCEPT", i+1))); err != nil {
				t.Fatal(err)
			}
			if _, err := rt.Refresh(context.Background(), filter4); err != nil {
				t.Fatal(err)
			}
			if _, err := rt.DeleteChains(context.Background(), filter4, "tw-main"); err != nil {
				t.Fatal(err)
			}
		}
		settleDeadLetters(t, rt)
		for n := 1; n <= 40; n++ {
			if !strings.Contains(sim.Save(filter4), fmt.Sprintf("-A tw-%d -j ACCEPT\n", n)) {
				t.Errorf("message %d is not in the kernel", n)
			}
		}
	})
}

// D54: however slow the table is, periodic looks do not pile up.
func TestPeriodicRefreshDoesNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		var reads atomic.Int64
		sim.Hook = func(c dataplane.Call) error {
			if c.Op == dataplane.OpRead && reads.Add(1) == 2 {
				time.Sleep(10 * time.Minute)
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{Refresh: time.Minute, NoJitter: true})
		if a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a")); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
		time.Sleep(11*time.Minute + 30*time.Second)
		synctest.Wait()
		if n := reads.Load(); n > 4 {
			t.Errorf("%d reads: the ticks of ten minutes have piled up", n)
		}
		settleDeadLetters(t, rt)
	})
}

// D53: a message is counted once, however often it is tried.
func TestMessagesAreCountedOnce(t *testing.T) {
	sim := dataplane.NewSim(dataplane.Legacy)
	sim.NoScratch = true // so that the live table is searched
	rt := newRuntime(t, sim, actors.Options{Refresh: -1})
	var msgs []transaction.Message
	for i := range 8 {
		text := "-j ACCEPT"
		if i == 5 {
			text = "-j MASQUERADE" // found by halves
		}
		msgs = append(msgs, transaction.Message{Body: body(fmt.Sprintf("tw-%d", i), text)})
	}
	if _, err := rt.Send(context.Background(), filter4, msgs...); err != nil {
		t.Fatal(err)
	}
	st, err := rt.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s := st[0]
	if s.Messages != 8 || s.Answers[actors.Applied] != 7 || s.Answers[actors.Rejected] != 1 || s.Batches < 3 || s.Restores != s.Batches {
		t.Errorf("status %+v", s)
	}
}
