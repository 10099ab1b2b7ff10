// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

func body(name string, texts ...string) transaction.Body {
	return transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, texts...)}}
}

// Each way of sending has its one answer: a Go call, an actor's request, a tell.
func TestEachWayOfSendingHasItsAnswer(t *testing.T) {
	told := make(chan actors.Answer, 2)
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{OnAnswer: func(a actors.Answer) { told <- a }})
	ctx := context.Background()

	a, err := rt.Owner("web", 0).RewriteChains(ctx, filter4, chainOf("tw-a", "-j ACCEPT"))
	if err != nil || a.Result != actors.Applied || a.Owner != "web" || a.Kind != "rewrite" || a.ID == "" || a.Table != filter4 {
		t.Errorf("call: %+v, %v", a, err)
	}
	pid, err := rt.PID(filter4)
	if err != nil {
		t.Fatal(err)
	}
	request := actors.Request{Message: transaction.Message{ID: "r", Owner: "o", Body: body("tw-a", "-j DROP")}}
	got, err := rt.System().Root.RequestFuture(pid, request, 10*time.Second).Result()
	if err != nil {
		t.Fatal(err)
	}
	answer, ok := got.(actors.Answer)
	var e *transaction.Error
	if !ok || answer.ID != "r" || answer.Result != actors.Rejected || !errors.As(answer.Err, &e) || !errors.Is(e, transaction.ErrOwned) {
		t.Errorf("request: %+v", got)
	}
	rt.System().Root.Send(pid, &actors.Request{Message: transaction.Message{ID: "s", Body: body("tw-b")}})
	if err := rt.Tell(filter4, transaction.Message{ID: "t", Body: body("tw-c")}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"s", "t"} {
		if a := <-told; a.ID != want || a.Result != actors.Applied {
			t.Errorf("told: %+v, want %s applied", a, want)
		}
	}
}

// What is pending while a block is under way is the next batch, as a whole.
func TestAllPendingIsOneBatch(t *testing.T) {
	sim := dataplane.NewSim(dataplane.NFT)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	var blocks []string
	sim.Hook = func(c dataplane.Call) error {
		if c.Op != dataplane.OpRestore {
			return nil
		}
		mu.Lock()
		blocks = append(blocks, chainsOf(c.Input))
		mu.Unlock()
		once.Do(func() {
			close(entered)
			<-release
		})
		return nil
	}
	var answered sync.WaitGroup
	answered.Add(101)
	rt := newRuntime(t, sim, actors.Options{OnAnswer: func(actors.Answer) { answered.Done() }})
	tell := func(name string) {
		if err := rt.Tell(filter4, transaction.Message{Body: body(name)}); err != nil {
			t.Error(err)
		}
	}
	tell("tw-first")
	<-entered
	for i := range 100 {
		tell(fmt.Sprintf("tw-%02d", i))
	}
	close(release)
	answered.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(blocks) != 2 || strings.Count(blocks[1], "tw-") != 100 {
		t.Errorf("blocks: %q", blocks)
	}
}

// D10, D11: a callback that panics takes nobody else's answer away.
func TestPanicInACallback(t *testing.T) {
	got := make(chan string, 3)
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{OnAnswer: func(a actors.Answer) {
		got <- a.ID
		if a.ID == "1" {
			panic("callback")
		}
	}})
	if err := rt.Tell(filter4,
		transaction.Message{ID: "1", Body: body("tw-a")},
		transaction.Message{ID: "2", Body: body("tw-b", "-p tcp --bogus -j ACCEPT")},
		transaction.Message{ID: "3", Body: body("tw-c")},
	); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{<-got: true, <-got: true, <-got: true}
	if len(seen) != 3 {
		t.Errorf("answers: %v", seen)
	}
}

// A panic of the dataplane is trouble like any other: the batch is tried again.
func TestPanicInTheDataplane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		panics := 2
		sim.Hook = func(c dataplane.Call) error {
			if panics--; panics >= 0 {
				panic("dataplane")
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{})
		a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a"))
		if err != nil || a.Result != actors.Applied {
			t.Errorf("%+v, %v", a, err)
		}
		settleDeadLetters(t, rt)
	})
}

// A wait that ends is no answer: the message stays, and lands.
func TestPendingIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		busy := true
		var mu sync.Mutex
		sim.Hook = func(c dataplane.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if busy && c.Op == dataplane.OpRestore {
				return &dataplane.RestoreError{Class: dataplane.Busy}
			}
			return nil
		}
		rt := newRuntime(t, sim, actors.Options{})
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if _, err := rt.RewriteChains(ctx, filter4, chainOf("tw-a")); !errors.Is(err, actors.ErrPending) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want ErrPending", err)
		}
		mu.Lock()
		busy = false
		mu.Unlock()
		if a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-b")); err != nil || a.Result != actors.Applied {
			t.Errorf("%+v, %v", a, err)
		}
		if !strings.Contains(sim.Save(filter4), ":tw-a -") {
			t.Errorf("the first message was lost:\n%s", sim.Save(filter4))
		}
		settleDeadLetters(t, rt)
	})
}

// Stop answers everybody: what can be applied is, and when its context ends the rest is
// Unavailable. Afterwards nothing is taken.
func TestStopAnswersEverybody(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprintf("stuck=%v", stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := dataplane.NewSim(dataplane.NFT)
				sim.Hook = func(c dataplane.Call) error {
					if stuck && c.Op == dataplane.OpRestore {
						return &dataplane.RestoreError{Class: dataplane.Busy}
					}
					return nil
				}
				answers := map[string]actors.Answer{}
				rt := newRuntime(t, sim, actors.Options{OnAnswer: func(a actors.Answer) { answers[a.ID] = a }})
				for i := range 10 {
					if err := rt.Tell(filter4, transaction.Message{ID: fmt.Sprint(i), Body: body(fmt.Sprintf("tw-%d", i))}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				err := rt.Stop(ctx)
				synctest.Wait()
				want := actors.Applied
				if stuck {
					want = actors.Unavailable
				}
				if stuck != errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("stop: %v", err)
				}
				for i := range 10 {
					a := answers[fmt.Sprint(i)]
					if a.Result != want || stuck != errors.Is(a.Err, actors.ErrStopped) {
						t.Errorf("message %d: %+v, want %v", i, a, want)
					}
				}
				if err := rt.Tell(filter4, transaction.Message{Body: body("tw-x")}); !errors.Is(err, actors.ErrStopped) {
					t.Errorf("after the stop: %v", err)
				}
				settleDeadLetters(t, rt)
			})
		})
	}
}

// A Runtime that was not started takes nothing.
func TestNotStarted(t *testing.T) {
	rt, err := actors.New(dataplane.NewSim(dataplane.NFT), actors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a")); !errors.Is(err, actors.ErrNotStarted) {
		t.Error(err)
	}
	if err := rt.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// Configurations and calls that cannot work are refused at once.
func TestBadCalls(t *testing.T) {
	if _, err := actors.New(dataplane.NewSim(dataplane.NFT), actors.Options{Table: transaction.Config{Prefixes: []string{"tw"}}}); err == nil {
		t.Error("a prefix without an end mark was taken")
	}
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{})
	if err := rt.Tell(rules.TableID{IPVersion: rules.IPv4, Name: "nosuch"}, transaction.Message{Body: body("tw-a")}); err == nil {
		t.Error("an unknown table was taken")
	}
	if err := rt.Tell(filter4, transaction.Message{ID: "x"}); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a message without a body: %v", err)
	}
}

// InSync of every declared owner ends grace, in tables that are started later too.
func TestInSyncEndsGrace(t *testing.T) {
	sim := dataplane.NewSim(dataplane.NFT)
	for _, table := range []string{"filter", "nat"} {
		if err := sim.Load(rules.IPv4, []byte("*"+table+"\n:tw-old - [0:0]\n-A tw-old -j ACCEPT\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
	}
	rt := newRuntime(t, sim, actors.Options{Table: transaction.Config{Grace: true, Owners: []string{"a", "b"}}})
	ctx := context.Background()
	write := func(owner string, id rules.TableID, name string) {
		t.Helper()
		if a, err := rt.Owner(owner, 0).RewriteChains(ctx, id, chainOf(name, "-j tw-old")); err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
	}
	write("a", filter4, "tw-a")
	if a, err := rt.Owner("a", 0).InSync(ctx); err != nil || a.Result != actors.Applied {
		t.Errorf("%+v, %v", a, err)
	}
	if !strings.Contains(sim.Save(filter4), "-A tw-old -j ACCEPT") {
		t.Errorf("grace ended before every owner was in sync:\n%s", sim.Save(filter4))
	}
	if _, err := rt.Owner("b", 0).InSync(ctx); err != nil {
		t.Error(err)
	}
	write("a", nat4, "tw-a")
	for _, id := range []rules.TableID{filter4, nat4} {
		if !strings.Contains(sim.Save(id), "-A tw-old -m comment --comment \"tableward: missing chain\"") {
			t.Errorf("grace is still open in %s:\n%s", id, sim.Save(id))
		}
	}
}

// settleDeadLetters stops the runtime and lets a second pass: the actor library's log
// throttle keeps a goroutine for so long.
func settleDeadLetters(t *testing.T, rt *actors.Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := rt.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	time.Sleep(2 * time.Second) // of the bubble's time
}

var _ actor.Actor = (*feature)(nil)

// feature is a feature actor: it asks a table by PID and hands the answer on.
type feature struct {
	table *actor.PID
	done  chan<- actors.Answer
}

func (f *feature) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		ctx.Request(f.table, actors.Request{Message: transaction.Message{ID: "f", Owner: "feature", Body: body("tw-f", "-j RETURN")}})
	case actors.Answer:
		f.done <- m
	}
}

// A feature actor of the same system gets its answer as a message.
func TestFeatureActor(t *testing.T) {
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{})
	table, err := rt.PID(filter4)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan actors.Answer, 1)
	pid := rt.System().Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return &feature{table, done} }))
	if a := <-done; a.ID != "f" || a.Result != actors.Applied {
		t.Errorf("%+v", a)
	}
	if err := rt.System().Root.PoisonFuture(pid).Wait(); err != nil {
		t.Error(err)
	}
}
