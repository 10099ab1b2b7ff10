// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// shown is what a table shows of chains that may be ours and of where they are hooked up,
// without those that only wait for their deletion.
func shown(snap rules.Snapshot) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(snap.Chains)) {
		if !strings.HasPrefix(name, "tw-") && name != "web" && name != "INPUT" {
			continue
		}
		fmt.Fprintf(&b, ":%s -\n", name)
		for _, r := range snap.Chains[name].Rules {
			fmt.Fprintf(&b, "-A %s %s\n", name, r.Text)
		}
	}
	return withoutCondemned(b.String())
}

// haste is how a Dataplane keeps an isolation from doing all in one block.
type haste int

const (
	unhurried  haste = iota
	noTime           // a trial says of one unit only, and the rest is put off
	noTrial          // there is no scratch namespace: the live table is searched
	noKinds          // nothing is tried before it is refused
	hasteKinds       // so many
)

// filmed is a Dataplane that keeps what the table shows after each commit.
type filmed struct {
	actors.Dataplane
	haste haste
	id    rules.TableID
	seen  []string
}

func (d *filmed) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	err := d.Dataplane.Restore(ctx, id, input)
	if err == nil {
		snap, err := d.Read(ctx, id)
		if err != nil {
			return err
		}
		d.seen = append(d.seen, shown(snap))
	}
	return err
}

func (d *filmed) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	switch {
	case d.haste == noTrial:
		return dataplane.Trial{}, dataplane.ErrNoScratch
	case d.haste == noTime && b.Budget > 0:
		b.Budget = 1
	}
	return d.Dataplane.(actors.Trier).Try(ctx, id, b)
}

// film is a Machine on a filmed table that goodBase has filled.
type film struct {
	*filmed
	m *actors.Machine
	f *finals
}

func newFilm(dp actors.Dataplane, id rules.TableID, h haste) film {
	d, f := &filmed{Dataplane: dp, id: id, haste: h}, newFinals()
	m := actors.NewMachine(actors.MachineConfig{
		Dataplane: d, Observe: f.observe,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15, Kinds: h != noKinds}
		},
	})
	out := film{d, m, f}
	out.send(goodBase())
	d.seen = d.seen[len(d.seen)-1:]
	return out
}

func (s film) send(msgs []transaction.Message) {
	for _, msg := range msgs {
		if err := s.m.Send(s.id, msg); err != nil {
			panic(err)
		}
	}
	s.m.Settle()
}

// shownBy are the tables that messages show when they come as one batch to a simulator.
func shownBy(backend dataplane.Backend, id rules.TableID, msgs []transaction.Message) []string {
	s := newFilm(dataplane.NewSim(backend), id, noTrial)
	s.send(msgs)
	return s.seen
}

// shownBySome tells whether some of the messages, in order, show a state. Nearly always it is
// all of them, since all that is good lands in one block.
func shownBySome(backend dataplane.Backend, id rules.TableID, good []transaction.Message, state string) bool {
	for without := range 1 << len(good) {
		var some []transaction.Message
		for j, msg := range good {
			if without&(1<<j) == 0 {
				some = append(some, msg)
			}
		}
		if slices.Contains(shownBy(backend, id, some), state) {
			return true
		}
	}
	return false
}

// kernelWish is a random message with rules of which a real kernel refuses some, each in its
// own way.
func kernelWish(rnd *rand.Rand, v rules.IPVersion, id string) transaction.Message {
	address, noAddress := "10.0.0.1/32", "10.0.0.256"
	if v == rules.IPv6 {
		address, noAddress = "2001:db8::1/128", "2001:db8::12345"
	}
	bad := []string{
		"-p tcp --bogus 1 -j DROP", "-m set --match-set tw-no src -j DROP", "-s " + noAddress + " -j DROP",
		"-m owner --uid-owner 0 -j DROP", "-m ipvs --ipvs -j DROP", "-p tcp -j REDIRECT --to-ports 80",
		"-p tcp -m tcp --dport 99999 -j ACCEPT",
	}
	m := randomWish(rnd, id)
	b, ok := m.Body.(transaction.RewriteChains)
	if !ok {
		return m
	}
	for i, r := range b.Chains[0].Rules {
		switch text := r.String(); {
		case strings.Contains(text, "bad"):
			b.Chains[0].Rules[i] = rule(bad[rnd.IntN(len(bad))])
		case strings.Contains(text, "10.0.0.1/32"):
			b.Chains[0].Rules[i] = rule(strings.ReplaceAll(text, "10.0.0.1/32", address))
		}
	}
	return m
}

// monitor reads a table as fast as it can until it is told to stop, and returns the states
// that it saw.
func monitor(t *testing.T, k *dataplane.Kernel, id rules.TableID) (stop func() []string) {
	over, seen := make(chan struct{}), make(chan []string)
	go func() {
		var out []string
		for {
			select {
			case <-over:
				seen <- out
				return
			default:
			}
			snap, err := k.Read(context.Background(), id)
			if err != nil {
				t.Error(err)
				continue
			}
			// What was read while nft committed may be of two states.
			if k.Info().Backend != "nft" || snap.Generation != 0 {
				out = append(out, shown(snap))
			}
		}
	}()
	return func() []string {
		close(over)
		return <-seen
	}
}

// No state is ever visible that a sequence of the good messages would not show: on the kernel
// the table after every commit, and whatever somebody reads meanwhile, is what some of them
// show, sent in order to a simulator.
func TestKernelShowsNoOtherState(t *testing.T) {
	runs, seed := 8, uint64(5)
	if os.Getenv("TABLEWARD_SOAK") != "" {
		runs, seed = 150, uint64(time.Now().UnixNano())
	}
	testns.Each(t, func(t *testing.T, backend dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		var sum filmCount
		for h := range hasteKinds {
			t.Run(fmt.Sprint("blamed on an innocent jump, haste ", h), func(t *testing.T) {
				sum.add(filmKernel(t, blamedOnJump(), backend, id, h))
			})
		}
		for i := range runs {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed+uint64(v), uint64(i)))
				var sent []transaction.Message
				for n := range 2 + rnd.IntN(6) {
					sent = append(sent, kernelWish(rnd, v, fmt.Sprint(n)))
				}
				sum.add(filmKernel(t, sent, backend, id, haste(i)%hasteKinds))
			})
		}
		t.Logf("seed %d: %d batches in %d commits, with %d bad messages; %d reads meanwhile; %d states in the middle of a batch",
			seed, runs+int(hasteKinds), sum.commits, sum.bad, sum.reads, sum.between)
		if sum.bad == 0 || sum.reads == 0 {
			t.Error("nothing was to be seen")
		}
	})
}

type filmCount struct{ commits, bad, reads, between int }

func (c *filmCount) add(o filmCount) {
	c.commits, c.bad, c.reads, c.between = c.commits+o.commits, c.bad+o.bad, c.reads+o.reads, c.between+o.between
}

// blamedOnJump is a batch of which nft refuses not the bad rule but the line before COMMIT that
// puts back the jump which reaches it.
func blamedOnJump() []transaction.Message {
	return []transaction.Message{
		{ID: "0", Body: transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop)},
		{ID: "1", Body: transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-b", "-m owner --uid-owner 0 -j DROP")}}},
		{ID: "2", Body: transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-d", "-j ACCEPT")}}},
	}
}

// filmKernel sends a batch to a kernel while somebody reads along, and judges what was seen.
func filmKernel(t *testing.T, sent []transaction.Message, backend dataplane.Backend, id rules.TableID, h haste) (n filmCount) {
	k, ns := kernelIn(t, backend)
	reader, err := dataplane.NewKernel(context.Background(), testns.Options(t, ns, backend))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	s := newFilm(k, id, h)
	stop := monitor(t, reader, id)
	s.send(sent)
	read := stop()
	var good []transaction.Message
	for _, msg := range sent {
		switch s.f.last[msg.ID] {
		case actors.Applied, actors.Superseded:
			good = append(good, msg)
		case actors.Rejected, actors.Conflict:
			n.bad++
		}
	}
	n.commits, n.reads = len(s.seen)-1, len(read)
	known := map[string]bool{}
	for _, state := range shownBy(backend, id, good) {
		known[state] = true
	}
	for i, state := range slices.Concat(s.seen, read) {
		if known[state] {
			continue
		}
		n.between++
		if known[state] = shownBySome(backend, id, good, state); !known[state] {
			who := fmt.Sprintf("commit %d of %d", i, n.commits)
			if i > n.commits {
				who = "a reader"
			}
			t.Fatalf("haste %d: no sequence of the good messages shows what %s saw:\n%s\nsent %v\ngood %v\nfinal answers %v", h, who, state, sent, good, s.f.last)
		}
	}
	return n
}
