// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const soakSenders = 64

// ledger counts the answers of each message, by its id.
type ledger struct {
	mu       sync.Mutex
	accepted map[string]bool
	answers  map[string]int
}

func (l *ledger) accept(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted[id] = true
}

func (l *ledger) refuse(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.accepted, id)
}

func (l *ledger) observe(e actors.Event) {
	if e.Kind != actors.EventAnswer {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[e.Answer.ID]++
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.accepted {
		if n := l.answers[id]; n != 1 {
			t.Fatalf("message %s has %d answers", id, n)
		}
	}
	if len(l.answers) != len(l.accepted) {
		t.Errorf("%d messages were taken, %d answered", len(l.accepted), len(l.answers))
	}
}

// From 64 senders, with faults and panics of the dataplane, callbacks that panic, waits
// that are given up and runtimes that are stopped in the middle: each message that was
// taken has exactly one answer, and nothing stays behind.
func TestOneAnswerEachWhateverHappens(t *testing.T) {
	total, runtimes := 20_000, 8
	if os.Getenv("TABLEWARD_SOAK") != "" {
		total, runtimes = 1_000_000, 100
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	seed := uint64(1)
	for life := range runtimes {
		l := &ledger{accepted: map[string]bool{}, answers: map[string]int{}}
		oneLife(t, l, total/runtimes, rand.New(rand.NewPCG(seed, uint64(life))))
		l.check(t)
		if t.Failed() {
			return
		}
	}
	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// waitFor waits for a condition, at most ten seconds.
func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// oneLife runs one runtime from start to stop, which may come while senders are at work.
func oneLife(t *testing.T, l *ledger, total int, rnd *rand.Rand) {
	sim := dataplane.NewSim([]dataplane.Backend{dataplane.NFT, dataplane.Legacy}[rnd.IntN(2)])
	faults := rand.New(rand.NewPCG(rnd.Uint64(), 1))
	var mu sync.Mutex
	sim.Hook = func(dataplane.Call) error {
		mu.Lock()
		n := faults.IntN(300)
		mu.Unlock()
		switch n {
		case 0:
			panic("the dataplane panics")
		case 1:
			return &dataplane.RestoreError{Class: dataplane.Busy}
		case 2:
			return &dataplane.RestoreError{Class: dataplane.Unknown}
		case 3:
			return &dataplane.RestoreError{Class: dataplane.RejectedSomewhere, ExitCode: 1}
		case 4:
			return &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "made up"}
		case 5:
			return &dataplane.RestoreError{Class: dataplane.TooLarge}
		}
		return nil
	}
	rt, err := actors.New(sim, actors.Options{
		Table: transaction.Config{Prefixes: []string{"tw-"}}, Observe: l.observe, Clock: hasty{},
		OnAnswer: func(a actors.Answer) {
			if len(a.ID)%7 == 0 {
				panic("a callback panics")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	rt.Start()
	early := rnd.IntN(2) == 0
	var wg sync.WaitGroup
	for s := range soakSenders {
		r := rand.New(rand.NewPCG(rnd.Uint64(), uint64(s)))
		wg.Go(func() { sender(rt, l, r, s, total/soakSenders) })
	}
	if !early {
		wg.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rnd.IntN(200))*time.Millisecond)
	defer cancel()
	if err := rt.Stop(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop: %v", err)
	}
	wg.Wait()
}

// hasty is a clock on which rests are a thousand times shorter.
type hasty struct{ actors.RealClock }

func (h hasty) AfterFunc(d time.Duration, f func()) func() bool {
	return h.RealClock.AfterFunc(d/1000, f)
}

// sender sends in every way, and gives some waits up.
func sender(rt *actors.Runtime, l *ledger, r *rand.Rand, n, total int) {
	tables := []rules.TableID{filter4, nat4}
	for i := range total {
		id := fmt.Sprintf("%d/%d", n, i)
		m := transaction.Message{ID: id, Owner: fmt.Sprint(n), Body: soakBody(r, n)}
		table := tables[r.IntN(len(tables))]
		l.accept(id)
		var err error
		switch r.IntN(10) {
		case 0:
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(1000))*time.Microsecond)
			_, err = rt.Send(ctx, table, m)
			cancel()
		case 1:
			_, err = rt.Send(context.Background(), table, m)
		default:
			err = rt.Tell(table, m)
		}
		if errors.Is(err, actors.ErrStopped) {
			l.refuse(id)
			return
		}
	}
}

var soakTexts = []string{
	"-j ACCEPT", "-j RETURN", "-s 10.0.0.1/32 -j ACCEPT", "-j tw-shared", "-p tcp --bogus -j ACCEPT", "-j NOPE", "-j MASQUERADE",
}

func soakBody(r *rand.Rand, n int) transaction.Body {
	name := fmt.Sprintf("tw-%d-%d", n, r.IntN(4))
	text := soakTexts[r.IntN(len(soakTexts))]
	switch r.IntN(10) {
	case 0:
		return transaction.DeleteChains{Chains: []string{name}}
	case 1:
		return transaction.InsertRule("INPUT", rule("-j "+name), transaction.InsertTop)
	case 2:
		return transaction.RemoveRule("INPUT", rule("-j "+name), false)
	case 3:
		return transaction.Refresh{}
	}
	return transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, text)}}
}
