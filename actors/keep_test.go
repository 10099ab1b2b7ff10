// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// life is one Runtime of several on the same simulator, one after the other, with a state file.
type life struct {
	t   *testing.T
	dir string
	dp  actors.Dataplane
	log syncBuffer

	rt     *actors.Runtime
	mu     sync.Mutex // guards what follows
	blocks []string
	reads  int
}

type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func begin(t *testing.T, dp actors.Dataplane, dir string, opts actors.Options) *life {
	t.Helper()
	l := &life{t: t, dir: dir, dp: dp}
	opts.StateDir, opts.Table.Grace, opts.NoJitter = dir, true, true
	opts.Logger = zerolog.New(&l.log).Level(zerolog.WarnLevel)
	if opts.GraceTimeout == 0 {
		opts.GraceTimeout = -1
	}
	opts.Observe = func(e actors.Event) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch e.Kind {
		case actors.EventRestore:
			l.blocks = append(l.blocks, string(e.Input))
		case actors.EventRead:
			l.reads++
		}
	}
	l.rt = newRuntime(t, dp, opts)
	return l
}

func (l *life) ask(bodies ...transaction.Body) {
	l.t.Helper()
	for _, b := range bodies {
		if a, err := l.rt.Owner("web", 0).Ask(context.Background(), filter4, b); err != nil || a.Err != nil {
			l.t.Fatal(err, a.Err)
		}
	}
}

func (l *life) end() {
	l.t.Helper()
	if err := l.rt.Stop(context.Background()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *life) did() (blocks string, reads int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.blocks, ""), l.reads
}

// idle fails when the life has read the table, or has written.
func (l *life) idle(what string) {
	l.t.Helper()
	if blocks, reads := l.did(); blocks != "" || reads > 0 {
		l.t.Errorf("%s: %d reads, and sent\n%s", what, reads, blocks)
	}
	if log := l.log.String(); log != "" {
		l.t.Errorf("%s: logged %s", what, log)
	}
}

func webWishes() []transaction.Body {
	return []transaction.Body{
		transaction.RewriteChains{Chains: []rules.Chain{
			chainOf("tw-a", ports(1, 2, 3)...), chainOf("tw-b", "-j tw-missing"), chainOf("tw-empty"), chainOf("web", "-j ACCEPT"),
		}},
		transaction.InsertRule("FORWARD", rule("-j tw-a"), transaction.InsertTop),
		transaction.InsertRule("INPUT", rule("-s 10.0.0.1 -j DROP"), transaction.InsertBottom),
	}
}

const stateOf4Filter = "4-filter.state"

// A restart finds all as it was: it reads nothing, writes nothing, and goes on from there.
func TestRestartWritesNothing(t *testing.T) {
	sim, dir := dataplane.NewSim(dataplane.NFT), t.TempDir()
	l := begin(t, sim, dir, actors.Options{})
	l.ask(webWishes()...)
	l.end()
	want := sim.Save(filter4)
	for range 3 {
		l = begin(t, sim, dir, actors.Options{})
		l.ask(webWishes()...)
		l.idle("again")
		l.end()
	}
	if got := sim.Save(filter4); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	l = begin(t, sim, dir, actors.Options{})
	load(t, sim, "*filter\n:tw-b - [0:0]\nCOMMIT\n") // a stranger empties it
	l.ask(webWishes()...)
	if blocks, reads := l.did(); reads > 0 || strings.Contains(blocks, "tw-a") || !strings.Contains(blocks, "-A tw-b -j tw-missing") {
		t.Errorf("%d reads, and sent\n%s", reads, blocks)
	}
	l.end()
	if got := sim.Save(filter4); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func load(t *testing.T, sim *dataplane.Sim, input string) {
	t.Helper()
	if err := sim.Load(rules.IPv4, []byte(input)); err != nil {
		t.Fatal(err)
	}
}

// A file that cannot be believed is told, once, and the start is the ordinary one.
func TestRestartWithoutBelief(t *testing.T) {
	sim, dir := dataplane.NewSim(dataplane.NFT), t.TempDir()
	var l *life
	for range 2 { // what is a stub in the first run is of an earlier one in all others
		l = begin(t, sim, dir, actors.Options{})
		l.ask(webWishes()...)
		l.end()
	}
	path := filepath.Join(dir, stateOf4Filter)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, text, says string }{
		{"cut short", string(good[:len(good)/2]), "damaged"},
		{"changed", strings.Replace(string(good), "dport 1 ", "dport 9 ", 1), "damaged"},
		{"another version", strings.Replace(string(good), "state 1", "state 9", 1), "another version"},
	}
	for _, tt := range tests {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		l = begin(t, sim, dir, actors.Options{Table: transaction.Config{OwnChains: []string{"web"}}})
		l.ask(webWishes()...)
		blocks, reads := l.did()
		if log := l.log.String(); blocks != "" || reads != 1 || strings.Count(log, "\n") != 1 || !strings.Contains(log, tt.says) {
			t.Errorf("%s: %d reads, sent %q, logged %s", tt.name, reads, blocks, log)
		}
		l.end()
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, good) {
			t.Errorf("%s: the file was not written as it was: %v\n%s", tt.name, err, cmp.Diff(string(good), string(again)))
		}
	}
}

// A process that is killed leaves a file that is not the newest. What it says wrongly is seen.
func TestRestartWithAnOldFile(t *testing.T) {
	sim, dir := dataplane.NewSim(dataplane.NFT), t.TempDir()
	l := begin(t, sim, dir, actors.Options{})
	l.ask(webWishes()[:2]...)
	l.end()
	path := filepath.Join(dir, stateOf4Filter)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	later := append(webWishes(),
		transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(1, 2, 3, 4)...), chainOf("tw-new", "-s 10.0.0.2 -j ACCEPT")}},
		transaction.DeleteChains{Chains: []string{"tw-empty"}})
	l = begin(t, sim, dir, actors.Options{})
	l.ask(later...)
	l.end()
	want := sim.Save(filter4)
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	l = begin(t, sim, dir, actors.Options{})
	l.ask(later[1:3]...)
	l.ask(transaction.RewriteChains{Chains: []rules.Chain{
		chainOf("tw-a", ports(1, 2, 3, 4)...), chainOf("tw-new", "-s 10.0.0.2 -j ACCEPT"), chainOf("tw-b", "-j tw-missing"), chainOf("web", "-j ACCEPT"),
	}})
	if blocks, _ := l.did(); blocks != "" {
		t.Errorf("sent\n%s", blocks)
	}
	l.ask(transaction.EndGrace{}, transaction.Refresh{}, transaction.Cleanup{}, transaction.Cleanup{})
	l.end()
	if got := sim.Save(filter4); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The file is written a second after a change, and not for each change.
func TestStateFileIsWrittenNowAndThen(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		l := begin(t, sim, dir, actors.Options{Refresh: -1})
		path := filepath.Join(dir, stateOf4Filter)
		l.ask(webWishes()[0])
		time.Sleep(900 * time.Millisecond)
		synctest.Wait()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("at once: %v", err)
		}
		l.ask(webWishes()[1])
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		first, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(first, []byte("listed top")) {
			t.Errorf("after a second: %v\n%s", err, first)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if same, err := os.ReadFile(path); err != nil || !bytes.Equal(first, same) {
			t.Errorf("nothing has changed, and the file is another one: %v\n%s", err, same)
		}
		l.ask(webWishes()[2])
		settleDeadLetters(t, l.rt)
		if last, err := os.ReadFile(path); err != nil || !bytes.Contains(last, []byte("listed bottom")) {
			t.Errorf("at the end: %v\n%s", err, last)
		}
	})
}

// A file that cannot be written is told once, and harms nothing.
func TestStateFileCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, dataplane.NewSim(dataplane.NFT), dir, actors.Options{Refresh: -1})
		for _, w := range webWishes() {
			l.ask(w)
			time.Sleep(10 * time.Second)
		}
		settleDeadLetters(t, l.rt)
		if log := l.log.String(); strings.Count(log, "cannot be written") != 1 {
			t.Errorf("logged %s", log)
		}
	})
}

// blind is a dataplane that cannot scan.
type blind struct{ actors.Dataplane }

// Where nothing can be scanned the table is read, and what is known of what was ours stays so.
func TestRestartWithoutScan(t *testing.T) {
	sim, dir := dataplane.NewSim(dataplane.NFT), t.TempDir()
	l := begin(t, sim, dir, actors.Options{})
	l.ask(webWishes()...)
	l.end()
	want := sim.Save(filter4)
	l = begin(t, blind{sim}, dir, actors.Options{})
	l.ask(webWishes()...)
	if blocks, reads := l.did(); blocks != "" || reads == 0 {
		t.Errorf("%d reads, and sent\n%s", reads, blocks)
	}
	l.end()
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpScan {
			return &dataplane.RestoreError{Class: dataplane.Unavailable}
		}
		return nil
	}
	l = begin(t, sim, dir, actors.Options{})
	l.ask(webWishes()...)
	if blocks, reads := l.did(); blocks != "" || reads == 0 {
		t.Errorf("without a scan: %d reads, and sent\n%s", reads, blocks)
	}
	l.end()
	if got := sim.Save(filter4); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// R80: on a restart nothing of the run before goes before its owner has spoken or grace is over,
// the rules of kernel chains included that only the state file knows to be ours.
func TestR80(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		tproxy := chainOf("tw-proxy-tproxy", ports(80, 443)...)
		hook := transaction.InsertRule("INPUT", rule("-j tw-proxy-tproxy"), transaction.InsertTop)
		mark := transaction.InsertRule("FORWARD", rule("-s 10.0.0.1/32 -j ACCEPT"), transaction.InsertTop)
		never := transaction.InsertRule("FORWARD", rule("-s 10.0.0.2/32 -j ACCEPT"), transaction.InsertTop)
		l := begin(t, sim, dir, actors.Options{})
		l.ask(transaction.RewriteChains{Chains: []rules.Chain{tproxy, chainOf("tw-other", "-j ACCEPT")}}, hook, mark, never)
		l.end()
		want := sim.Save(filter4)
		l = begin(t, sim, dir, actors.Options{GraceTimeout: 30 * time.Second, Refresh: 5 * time.Second})
		l.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-other", "-j ACCEPT")}})
		for second := range 60 {
			if second == 20 {
				l.ask(transaction.RewriteChains{Chains: []rules.Chain{tproxy}}, hook, mark)
			}
			if second == 29 {
				if blocks, reads := l.did(); blocks != "" || reads > 0 {
					t.Errorf("%d reads, and sent\n%s", reads, blocks)
				}
			}
			if second == 50 { // what nobody has asked for again
				want = strings.Replace(want, "-A FORWARD -s 10.0.0.2/32 -j ACCEPT\n", "", 1)
			}
			if got := sim.Save(filter4); (second < 29 || second >= 50) && got != want {
				t.Fatalf("after %d s:\n%s\nwant\n%s", second, got, want)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		settleDeadLetters(t, l.rt)
	})
}
