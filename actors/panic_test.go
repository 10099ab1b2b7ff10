// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

var filterTable = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}

// bogus is an event that no dataplane would give, and that the core's logic panics at.
var bogus = opDone{canonDone{asked: make([]rules.Rule, 2), canons: make([]rules.Canon, 1)}}

func startRuntime(t *testing.T, opts Options) *Runtime {
	t.Helper()
	opts.Table.Prefixes = []string{"tw-"}
	rt, err := New(dataplane.NewSim(dataplane.NFT), opts)
	if err != nil {
		t.Fatal(err)
	}
	rt.Start()
	t.Cleanup(func() {
		if err := rt.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return rt
}

// A panic of a table actor's own logic loses nothing: what comes afterwards is applied, on
// the state that there was.
func TestPanicInTheLogic(t *testing.T) {
	rt := startRuntime(t, Options{Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	ctx := context.Background()
	write := func(owner, name string) Answer {
		t.Helper()
		a, err := rt.Owner(owner, 0).RewriteChains(ctx, filterTable, rules.Chain{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := write("a", "tw-a"); a.Err != nil {
		t.Fatal(a.Err)
	}
	pid, err := rt.PID(filterTable)
	if err != nil {
		t.Fatal(err)
	}
	for range maxPanics {
		rt.System().Root.Send(pid, bogus)
	}
	if a := write("a", "tw-b"); a.Result != Applied {
		t.Errorf("after the panics: %+v", a)
	}
	if a := write("b", "tw-a"); !errors.Is(a.Err, transaction.ErrOwned) {
		t.Errorf("the owner of tw-a was forgotten: %+v", a)
	}
}

// Too many panics are the end, and not a silent one: everything is answered, the owner of
// the Runtime is told, and what comes afterwards is answered too.
func TestTooManyPanics(t *testing.T) {
	fatal := make(chan error, 1)
	rt := startRuntime(t, Options{Fatal: func(err error) { fatal <- err; panic("in the callback") }})
	pid, err := rt.PID(filterTable)
	if err != nil {
		t.Fatal(err)
	}
	for range maxPanics + 1 {
		rt.System().Root.Send(pid, bogus)
	}
	if err := <-fatal; !strings.Contains(err.Error(), "4/filter") || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("fatal: %v", err)
	}
	a, err := rt.RewriteChains(context.Background(), filterTable, rules.Chain{Name: "tw-a"})
	if err != nil || a.Result != Unavailable || !errors.Is(a.Err, ErrStopped) {
		t.Errorf("afterwards: %+v, %v", a, err)
	}
}

// A callback that observes and panics ends nothing, whoever calls it.
func TestPanicInObserve(t *testing.T) {
	rt := startRuntime(t, Options{Observe: func(e Event) { panic(fmt.Sprint("event ", e.Kind)) }})
	for i := range 3 {
		a, err := rt.RewriteChains(context.Background(), filterTable, rules.Chain{Name: fmt.Sprintf("tw-%d", i)})
		if err != nil || a.Result != Applied {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

// After the end of a stop's patience nothing is begun any more: what comes then is answered
// at once, though every operation of the dataplane fails in passing by now.
func TestNothingBeginsAfterAnAbort(t *testing.T) {
	sim := dataplane.NewSim(dataplane.NFT)
	sim.Hook = func(dataplane.Call) error { return &dataplane.RestoreError{Class: dataplane.Unknown} }
	answers := make(chan Answer, 1)
	rt, err := New(sim, Options{OnAnswer: func(a Answer) { answers <- a }})
	if err != nil {
		t.Fatal(err)
	}
	rt.Start()
	pid, err := rt.PID(filterTable)
	if err != nil {
		t.Fatal(err)
	}
	root := rt.System().Root
	root.Send(pid, abort{})
	body := transaction.RewriteChains{Chains: []rules.Chain{{Name: "tw-a"}}}
	root.Send(pid, Request{Message: transaction.Message{ID: "late", Body: body}})
	if a := <-answers; a.Result != Unavailable || !errors.Is(a.Err, ErrStopped) {
		t.Errorf("%+v", a)
	}
	if err := rt.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// A restart of the actor by its supervisor loses neither the state nor what waits: both are
// outside of what a restart throws away.
func TestRestartKeepsTheState(t *testing.T) {
	rt := startRuntime(t, Options{Fatal: func(err error) { t.Errorf("fatal: %v", err) }})
	ctx := context.Background()
	if a, err := rt.Owner("a", 0).RewriteChains(ctx, filterTable, rules.Chain{Name: "tw-a"}); err != nil || a.Err != nil {
		t.Fatal(err, a.Err)
	}
	pid, err := rt.PID(filterTable)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan TableStatus)
	close(closed)
	for range 3 {
		rt.System().Root.Send(pid, inquiry{filterTable, closed}) // a panic outside of the guarded logic
	}
	if a, err := rt.Owner("b", 0).RewriteChains(ctx, filterTable, rules.Chain{Name: "tw-a"}); err != nil || !errors.Is(a.Err, transaction.ErrOwned) {
		t.Errorf("after the restarts: %+v, %v", a, err)
	}
}
