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

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accepted)
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
	total, most := 20_000, 4_000
	if os.Getenv("TABLEWARD_SOAK") != "" {
		total, most = 1_000_000, 20_000
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	seed := uint64(1)
	lives, sent := 0, 0
	for ; sent < total; lives++ {
		l := &ledger{accepted: map[string]bool{}, answers: map[string]int{}}
		oneLife(t, l, most, rand.New(rand.NewPCG(seed, uint64(lives))))
		l.check(t)
		sent += len(l.accepted)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d messages in %d runtimes", sent, lives)
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

// oneLife runs one runtime from start to stop, which may come while senders are at work, for
// about as many messages as most.
func oneLife(t *testing.T, l *ledger, most int, rnd *rand.Rand) {
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
	var wg sync.WaitGroup
	for s := range soakSenders {
		r := rand.New(rand.NewPCG(rnd.Uint64(), uint64(s)))
		wg.Go(func() { sender(rt, l, r, s, most/soakSenders) })
	}
	if rnd.IntN(2) == 0 { // else it is stopped while they are at work
		wg.Wait()
	} else {
		share := rnd.IntN(most / 2)
		waitFor(t, "the senders", func() bool { return l.size() >= share })
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

var (
	goodTexts = []string{"-j ACCEPT", "-j RETURN", "-s 10.0.0.1/32 -j ACCEPT", "-j tw-shared"}
	badTexts  = []string{"-p tcp --bogus -j ACCEPT", "-j NOPE", "-j MASQUERADE"}
)

// soakBody is what a sender says: mostly rewrites, one in a hundred of them bad.
func soakBody(r *rand.Rand, n int) transaction.Body {
	name := fmt.Sprintf("tw-%d-%d", n, r.IntN(4))
	switch p := r.IntN(200); {
	case p < 10:
		return transaction.DeleteChains{Chains: []string{name}}
	case p < 14:
		return transaction.InsertRule("INPUT", rule("-j "+name), transaction.InsertTop)
	case p < 18:
		return transaction.RemoveRule("INPUT", rule("-j "+name), false)
	case p < 19:
		return transaction.Refresh{}
	case p < 21:
		return transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, badTexts[r.IntN(len(badTexts))])}}
	}
	return transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, goodTexts[r.IntN(len(goodTexts))])}}
}
