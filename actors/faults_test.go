// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// troubled is a touchy kernel that fails in every way that is nobody's fault, at every step:
// before anything is done, or when it is done and nobody learns of it.
type troubled struct {
	*touchy
	mu      sync.Mutex
	rnd     *rand.Rand
	backend dataplane.Backend
	rate    int // one call in so many meets trouble; 0: none
}

// trouble returns a failure, and whether the operation is carried out all the same.
func (d *troubled) trouble(chains int) (err error, done bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rate == 0 || d.rnd.IntN(d.rate) > 0 {
		return nil, false
	}
	switch d.rnd.IntN(6) {
	case 0:
		return &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: 4, Reason: "the xtables lock is held"}, false
	case 1:
		return &dataplane.RestoreError{Class: dataplane.Unknown, ExitCode: -1, Reason: "killed"}, false
	case 2:
		return &dataplane.RestoreError{Class: dataplane.Unknown, ExitCode: -1, Reason: "killed after the commit"}, true
	case 3:
		return &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no permission"}, false
	case 4:
		if chains > 3 { // a message that is too large alone is refused for that
			return &dataplane.RestoreError{Class: dataplane.TooLarge, Reason: "Message too long"}, false
		}
	}
	return errors.New("something else"), false
}

func (d *troubled) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	err, done := d.trouble(strings.Count(string(input), "\n:"))
	if err != nil && !done {
		return err
	}
	if refused := d.touchy.Restore(ctx, id, input); refused != nil {
		return refused
	}
	return err
}

func (d *troubled) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if err, _ := d.trouble(0); err != nil {
		return rules.Snapshot{}, err
	}
	return d.touchy.Read(ctx, id, chains...)
}

func (d *troubled) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	if err, _ := d.trouble(0); err != nil {
		return nil, err
	}
	return d.touchy.Canon(ctx, id, rs)
}

func (d *troubled) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	if err, _ := d.trouble(0); err != nil {
		return dataplane.Trial{}, err
	}
	return d.touchy.Try(ctx, id, b)
}

func newTroubled(rnd *rand.Rand) *troubled {
	backend := []dataplane.Backend{dataplane.NFT, dataplane.Legacy}[rnd.IntN(2)]
	k := &touchy{Sim: dataplane.NewSim(backend), manner: manner(rnd.IntN(4)), noScratch: rnd.IntN(4) == 0}
	if rnd.IntN(3) == 0 {
		k.most, k.took = 1+rnd.IntN(6), time.Duration(rnd.IntN(600))*time.Millisecond
	}
	return &troubled{touchy: k, backend: backend, rnd: rand.New(rand.NewPCG(rnd.Uint64(), 1)), rate: 2 + rnd.IntN(12)}
}

// randomWish is a message for one of a few chains, bad now and then.
func randomWish(rnd *rand.Rand, id string) transaction.Message {
	names := []string{"tw-a", "tw-b", "tw-c", "tw-d", "web"}
	texts := []string{
		"-j ACCEPT", "-s 10.0.0.1/32 -j DROP", "-j tw-a", "-j tw-b", "-j tw-c", "-j web",
		note("good"), note("good"), note("bad" + id), note("east"), note("west"), "-p tcp " + note("bad"),
	}
	m := transaction.Message{ID: id, Owner: []string{"", "", "o"}[rnd.IntN(3)]}
	name := names[rnd.IntN(len(names))]
	listed := rule(map[string]string{"": "-j tw-a", "o": "-j web"}[m.Owner]) // one for each owner: the order within a list is that of landing
	switch rnd.IntN(8) {
	case 0:
		m.Body = transaction.DeleteChains{Chains: []string{name}}
	case 1:
		m.Body = transaction.InsertRule("INPUT", listed, transaction.InsertTop)
	case 2:
		m.Body = transaction.RemoveRule("INPUT", listed, false)
	default:
		var rs []string
		for range rnd.IntN(3) {
			rs = append(rs, texts[rnd.IntN(len(texts))])
		}
		m.Body = transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, rs...)}}
	}
	return m
}

// finals are what became of messages in the end: their answer, or what was said later of one
// that had been Unavailable.
type finals struct {
	mu      sync.Mutex
	answers map[string]int
	last    map[string]actors.Result
	errs    map[string]error
}

func newFinals() *finals {
	return &finals{answers: map[string]int{}, last: map[string]actors.Result{}, errs: map[string]error{}}
}

func (f *finals) observe(e actors.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case actors.EventAnswer:
		f.answers[e.Answer.ID]++
	case actors.EventLate:
	default:
		return
	}
	f.last[e.Answer.ID], f.errs[e.Answer.ID] = e.Answer.Result, e.Answer.Err
}

// check holds answers and table against the model: the messages that are in, by themselves,
// in order, on a table without trouble.
func (f *finals) check(sent []transaction.Message, table string, backend dataplane.Backend) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	model := dataplane.NewSim(backend)
	m := actors.NewMachine(actors.MachineConfig{
		Dataplane: model,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15}
		},
	})
	for _, msg := range sent {
		if n := f.answers[msg.ID]; n != 1 {
			return fmt.Errorf("message %s has %d answers", msg.ID, n)
		}
		switch f.last[msg.ID] {
		case actors.Applied, actors.Superseded:
			if err := m.Send(filter4, msg); err != nil {
				return err
			}
		case actors.Unavailable:
			return fmt.Errorf("message %s never came to anything: %v", msg.ID, f.errs[msg.ID])
		}
	}
	m.Settle()
	if diff := cmp.Diff(model.Save(filter4), table); diff != "" {
		return fmt.Errorf("the messages that are in, by themselves (-), and the table (+):\n%s", diff)
	}
	return nil
}

// Every class of failure at every step of the logic without goroutines: one answer each, and
// the table is that of the model.
func TestFaultsAtEveryStep(t *testing.T) {
	runs, seed := 2_000, uint64(1)
	if os.Getenv("TABLEWARD_SOAK") != "" {
		runs, seed = 100_000, uint64(time.Now().UnixNano())
	}
	for i := range runs {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		if err := faultyRun(rnd); err != nil {
			t.Fatalf("seed %d, run %d: %v", seed, i, err)
		}
	}
	t.Logf("%d runs from seed %d", runs, seed)
}

func faultyRun(rnd *rand.Rand) error {
	k, f := newTroubled(rnd), newFinals()
	var log []string
	m := actors.NewMachine(actors.MachineConfig{
		Dataplane: k, Scan: rnd.IntN(3) > 0,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15, Kinds: true}
		},
		Observe: func(e actors.Event) {
			f.observe(e)
			log = append(log, fmt.Sprintf("%v %d %v %.300q", e.At, e.Kind, e.Err, e.Input))
			if e.Answer != nil {
				log = append(log, fmt.Sprintf("    %s %v %v", e.Answer.ID, e.Answer.Result, e.Answer.Err))
			}
		},
	})
	meddled := rnd.IntN(2) == 0
	var sent []transaction.Message
	send := func(msg transaction.Message) {
		sent = append(sent, msg)
		if err := m.Send(filter4, msg); err != nil {
			panic(err)
		}
	}
	at := time.Duration(0)
	for range 1 + rnd.IntN(3) {
		for range 1 + rnd.IntN(8) {
			wish := randomWish(rnd, fmt.Sprint(len(sent)))
			// What fails only together must not get in one by one, because somebody has taken
			// the other out.
			if text := fmt.Sprint(wish.Body); !meddled || !strings.Contains(text, "east") && !strings.Contains(text, "west") {
				send(wish)
			}
		}
		m.Settle()
		if meddled && rnd.IntN(2) == 0 {
			log = append(log, "a stranger: "+meddle(rnd, k.Sim))
		}
		at += time.Duration(rnd.IntN(60)) * time.Second
		m.Advance(at)
	}
	k.rate = 0
	m.Advance(at + time.Hour)
	for _, id := range []string{"cleanup 1", "cleanup 2"} { // what a block left that was taken and then refused
		send(transaction.Message{ID: id, Body: transaction.Cleanup{}})
		m.Settle()
	}
	send(transaction.Message{ID: "refresh", Body: transaction.Refresh{}})
	m.Settle()
	if err := m.State(filter4).Check(); err != nil {
		return err
	}
	if err := f.check(sent, k.Save(filter4), k.backend); err != nil {
		var text []string
		for _, msg := range sent {
			text = append(text, fmt.Sprintf("%s %q %v", msg.ID, msg.Owner, msg.Body))
		}
		return fmt.Errorf("%w\n%s\n%s", err, strings.Join(text, "\n"), strings.Join(log, "\n"))
	}
	return nil
}

// meddle has somebody else change chains of ours. What the simulator refuses is left.
func meddle(rnd *rand.Rand, sim *dataplane.Sim) string {
	var ours []string
	for line := range strings.Lines(sim.Save(filter4)) {
		if name, found := strings.CutPrefix(line, ":tw-"); found {
			ours = append(ours, "tw-"+strings.Fields(name)[0])
		}
	}
	if len(ours) == 0 {
		return "nothing"
	}
	var did []string
	for range 1 + rnd.IntN(3) {
		name := ours[rnd.IntN(len(ours))]
		act := []string{
			"-F " + name, "-D " + name + " 1", "-A " + name + " -p udp -j DROP", "-I " + name + " -p tcp -j RETURN",
			"-F " + name + "\n-X " + name, "-D INPUT -j " + name,
		}[rnd.IntN(6)]
		if sim.Load(rules.IPv4, []byte("*filter\n"+act+"\nCOMMIT\n")) == nil {
			did = append(did, act)
		}
	}
	return strings.Join(did, "; ")
}

// The same through the whole runtime: mailbox, goroutines and timers.
func TestFaultsThroughTheRuntime(t *testing.T) {
	runs, lives := 2_000, 100
	for life := range lives {
		rnd := rand.New(rand.NewPCG(7, uint64(life)))
		k, f := newTroubled(rnd), newFinals()
		rt := newRuntime(t, k, actors.Options{
			Table: transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15}, Observe: f.observe, Clock: frantic{}, Refresh: -1,
		})
		var sent []transaction.Message
		for run := range runs / lives {
			k.mu.Lock()
			k.rate = 2 + rnd.IntN(12)
			k.mu.Unlock()
			for range 1 + rnd.IntN(5) {
				msg := randomWish(rnd, fmt.Sprint(len(sent)))
				sent = append(sent, msg)
				if err := rt.Tell(filter4, msg); err != nil {
					t.Fatal(err)
				}
			}
			waitFor(t, "answers", func() bool { return f.count() == len(sent) })
			k.mu.Lock()
			k.rate = 0
			k.mu.Unlock()
			for i, body := range []transaction.Body{transaction.Cleanup{}, transaction.Cleanup{}, transaction.Refresh{}} {
				msg := transaction.Message{ID: fmt.Sprint("look", run, "/", i), Body: body}
				sent = append(sent, msg)
				if _, err := rt.Send(t.Context(), filter4, msg); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Microsecond) {
				// Deletes come after the answers.
				if err = f.check(sent, k.Save(filter4), k.backend); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatalf("life %d, run %d: %v", life, run, err)
			}
		}
	}
}

// frantic is a clock on which rests hardly last.
type frantic struct{ actors.RealClock }

func (c frantic) AfterFunc(d time.Duration, f func()) func() bool {
	return c.RealClock.AfterFunc(d/100_000, f)
}

func (f *finals) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.answers)
}
