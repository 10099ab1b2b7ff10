// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// blocking is a simulator whose restores wait until they are let go.
type blocking struct {
	*dataplane.Sim
	entered chan struct{}
	release chan struct{}
}

func newBlocking() *blocking {
	return &blocking{dataplane.NewSim(dataplane.NFT), make(chan struct{}, 100), make(chan struct{})}
}

func (b *blocking) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	b.entered <- struct{}{}
	select {
	case <-b.release:
		return b.Sim.Restore(ctx, id, input)
	case <-ctx.Done():
		return &dataplane.RestoreError{Class: dataplane.Unknown, Err: ctx.Err()}
	}
}

// Status, new messages and the stop never wait for the block that is under way.
func TestStatusDuringARun(t *testing.T) {
	dp := newBlocking()
	rt := newRuntime(t, dp, actors.Options{OnAnswer: func(actors.Answer) {}})
	tell := func(id string) {
		t.Helper()
		if err := rt.Tell(filter4, transaction.Message{ID: id, Body: body("tw-" + id)}); err != nil {
			t.Fatal(err)
		}
	}
	tell("a")
	<-dp.entered
	tell("b")
	tell("c")
	st, err := rt.Status(context.Background())
	if err != nil || len(st) != 1 || st[0].Pending != 2 || st[0].Messages != 3 || st[0].Table != filter4 {
		t.Errorf("status %+v, %v", st, err)
	}
	close(dp.release)
}

// A limit refuses callers from outside while as many messages wait, and takes them again.
func TestErrBusy(t *testing.T) {
	dp := newBlocking()
	var answered sync.WaitGroup
	rt := newRuntime(t, dp, actors.Options{MaxPending: 2, OnAnswer: func(actors.Answer) { answered.Done() }})
	tell := func(id string) error {
		answered.Add(1)
		err := rt.Tell(filter4, transaction.Message{ID: id, Body: body("tw-" + id)})
		if err != nil {
			answered.Done()
		}
		return err
	}
	if err := tell("a"); err != nil {
		t.Fatal(err)
	}
	<-dp.entered
	for _, id := range []string{"b", "c"} {
		if err := tell(id); err != nil {
			t.Errorf("message %s: %v", id, err)
		}
	}
	if err := tell("d"); !errors.Is(err, actors.ErrBusy) {
		t.Errorf("the limit is passed: %v", err)
	}
	close(dp.release)
	answered.Wait()
	if err := tell("e"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	answered.Wait()
}

// A stop in the middle of a hang: when its context ends the operation is ended, and
// everything is answered.
func TestStopDuringAHang(t *testing.T) {
	dp := newBlocking()
	var answers atomic.Int64
	rt := newRuntime(t, dp, actors.Options{OnAnswer: func(a actors.Answer) {
		if a.Result == actors.Unavailable && errors.Is(a.Err, actors.ErrStopped) {
			answers.Add(1)
		}
	}})
	for i := range 5 {
		if err := rt.Tell(filter4, transaction.Message{Body: body(fmt.Sprintf("tw-%d", i))}); err != nil {
			t.Fatal(err)
		}
	}
	<-dp.entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := rt.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("stop: %v", err)
	}
	if n := answers.Load(); n != 5 {
		t.Errorf("%d answers, want 5", n)
	}
}

// D48: a table's actor that somebody stops answers what it had and what comes after, and
// the owner of the Runtime is told.
func TestStoppedByAStranger(t *testing.T) {
	for _, poison := range []bool{false, true} {
		t.Run(fmt.Sprintf("poison=%v", poison), func(t *testing.T) {
			dp := newBlocking()
			answers := make(chan actors.Answer, 20)
			fatal := make(chan error, 1)
			rt := newRuntime(t, dp, actors.Options{
				OnAnswer: func(a actors.Answer) { answers <- a },
				Fatal:    func(err error) { fatal <- err },
			})
			for i := range 5 {
				if err := rt.Tell(filter4, transaction.Message{Body: body(fmt.Sprintf("tw-%d", i))}); err != nil {
					t.Fatal(err)
				}
			}
			<-dp.entered
			pid, err := rt.PID(filter4)
			if err != nil {
				t.Fatal(err)
			}
			if poison {
				rt.System().Root.Poison(pid)
			} else {
				rt.System().Root.Stop(pid)
			}
			if err := <-fatal; !strings.Contains(err.Error(), "4/filter") {
				t.Errorf("fatal: %v", err)
			}
			close(dp.release)
			if err := rt.Tell(filter4, transaction.Message{Body: body("tw-late")}); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				if a := <-answers; a.Result != actors.Unavailable || !errors.Is(a.Err, actors.ErrStopped) {
					t.Errorf("answer %+v", a)
				}
			}
		})
	}
}

// The periodic refresh repairs what a stranger broke, deletes orphans once grace is over,
// and there is only one of it however slow the table is.
func TestPeriodicRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		seed := "*filter\n:tw-old - [0:0]\n-A tw-old -j ACCEPT\nCOMMIT\n"
		if err := sim.Load(rules.IPv4, []byte(seed)); err != nil {
			t.Fatal(err)
		}
		rt := newRuntime(t, sim, actors.Options{NoJitter: true, Refresh: time.Minute})
		if a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a", "-j ACCEPT")); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
		synctest.Wait() // what was written has been verified
		if err := sim.Load(rules.IPv4, []byte("*filter\n-F tw-a\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if strings.Contains(sim.Save(filter4), "-A tw-a") {
			t.Error("repaired before its time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if save := sim.Save(filter4); !strings.Contains(save, "-A tw-a -j ACCEPT") || strings.Contains(save, "tw-old") {
			t.Errorf("after a refresh:\n%s", save)
		}
		settleDeadLetters(t, rt)
	})
}

// D20: without a word of the owners grace ends by its timer, and loudly.
func TestGraceTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		seed := "*filter\n:tw-old - [0:0]\n-A tw-old -j ACCEPT\nCOMMIT\n"
		if err := sim.Load(rules.IPv4, []byte(seed)); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		rt := newRuntime(t, sim, actors.Options{
			Table: transaction.Config{Grace: true, Owners: []string{"never"}}, GraceTimeout: 30 * time.Second, Refresh: -1,
			Logger: zerolog.New(zerolog.SyncWriter(&log)),
		})
		if a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a", "-j tw-old")); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if !strings.Contains(sim.Save(filter4), "-A tw-old -j ACCEPT") {
			t.Error("grace ended early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !strings.Contains(sim.Save(filter4), "-A tw-old -m comment") {
			t.Errorf("grace did not end:\n%s", sim.Save(filter4))
		}
		settleDeadLetters(t, rt)
		if !strings.Contains(log.String(), "grace ends by its timer") {
			t.Errorf("the timer is not loud: %s", log.String())
		}
	})
}

// On nft the tables share the pace: commits that free something are 20 ms apart, whatever
// their table, and what waits meanwhile makes larger batches.
func TestPaceIsSharedByTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var times []time.Duration
		start := time.Now()
		sim := dataplane.NewSim(dataplane.NFT)
		sim.Hook = func(c dataplane.Call) error {
			// What only creates chains frees nothing.
			if c.Op == dataplane.OpRestore && regexp.MustCompile(`10\.0\.0\.[2-9]/`).Match(c.Input) {
				mu.Lock()
				times = append(times, time.Since(start))
				mu.Unlock()
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{Pace: actors.NFTPace, Refresh: -1})
		ctx := context.Background()
		var wg sync.WaitGroup
		for _, id := range []rules.TableID{filter4, nat4} {
			for k := range 4 {
				wg.Go(func() {
					for i := range 5 {
						c := chainOf(fmt.Sprintf("tw-%d", k), fmt.Sprintf("-s 10.0.0.%d/32 -j RETURN", i+1))
						if a, err := rt.RewriteChains(ctx, id, c); err != nil || a.Err != nil {
							t.Error(err, a.Err)
						}
					}
				})
			}
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i := 1; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < actors.NFTPace {
				t.Errorf("commit %d comes %v after the one before: %v", i, gap, times)
			}
		}
		if n := len(times); n > 12 {
			t.Errorf("%d commits for 40 messages: nothing was gathered", n)
		}
		settleDeadLetters(t, rt)
	})
}

// With a spacing, what comes within it is one batch.
func TestSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		var restores atomic.Int64
		sim.Hook = func(c dataplane.Call) error {
			if c.Op == dataplane.OpRestore {
				restores.Add(1)
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{Spacing: 10 * time.Millisecond, Refresh: -1, OnAnswer: func(actors.Answer) {}})
		for i := range 100 {
			if err := rt.Tell(filter4, transaction.Message{Body: body(fmt.Sprintf("tw-%d", i))}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		settleDeadLetters(t, rt)
		if n := restores.Load(); n < 9 || n > 11 {
			t.Errorf("%d restores in 100 ms with a spacing of 10 ms", n)
		}
	})
}

// A request to a table's actor that the system knows no more has its answer too.
func TestRequestAfterTheEnd(t *testing.T) {
	answers := make(chan actors.Answer, 1)
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{OnAnswer: func(a actors.Answer) { answers <- a }})
	pid, err := rt.PID(filter4)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt.System().Root.Send(pid, actors.Request{Message: transaction.Message{ID: "late", Body: transaction.Refresh{}}})
	select {
	case a := <-answers:
		if a.ID != "late" || a.Result != actors.Unavailable || !errors.Is(a.Err, actors.ErrStopped) {
			t.Errorf("%+v", a)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
}

// A stop under load is done within the run that is under way and one more, which takes all
// that is pending.
func TestStopUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		sim.Hook = func(c dataplane.Call) error {
			if c.Op == dataplane.OpRestore {
				time.Sleep(time.Second)
			}
			return nil
		}
		var applied atomic.Int64
		rt := newRuntime(t, sim, actors.Options{OnAnswer: func(a actors.Answer) {
			if a.Result == actors.Applied {
				applied.Add(1)
			}
		}})
		for i := range 5000 {
			if err := rt.Tell(filter4, transaction.Message{Body: body(fmt.Sprintf("tw-%d", i))}); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				synctest.Wait() // the first is under way
			}
		}
		start := time.Now()
		if err := rt.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > 2*time.Second || applied.Load() != 5000 {
			t.Errorf("%d answers after %v", applied.Load(), d)
		}
		time.Sleep(2 * time.Second) // of the bubble's time, for the actor library's log throttle
	})
}
