// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// watching collects what Watch tells.
type watching struct {
	pulsing
	changes chan dataplane.Change
	ended   chan error
	end     context.CancelFunc
}

// watch begins to watch, and returns when every change is told from then on.
func (k pulsing) watch() watching {
	k.t.Helper()
	return k.watchWith(1000)
}

// watchWith begins to watch, with room for some changes; the next one must be taken.
func (k pulsing) watchWith(room int) watching {
	k.t.Helper()
	ctx, cancel := context.WithCancel(background)
	w := watching{k, make(chan dataplane.Change, room), make(chan error, 1), cancel}
	begun := make(chan struct{})
	dataplane.SetWatchBegun(k.Kernel, func() { close(begun) })
	go func() {
		w.ended <- k.Watch(ctx, func(c dataplane.Change) {
			select {
			case w.changes <- c:
			case <-ctx.Done():
			}
		})
	}()
	k.t.Cleanup(cancel)
	select {
	case <-begun:
	case err := <-w.ended:
		k.t.Fatal(err)
	}
	return w
}

// next returns the next change.
func (w watching) next() dataplane.Change {
	w.t.Helper()
	select {
	case c := <-w.changes:
		return c
	case err := <-w.ended:
		w.t.Fatalf("Watch has ended: %v", err)
	case <-time.After(30 * time.Second):
		w.t.Fatal("no change was told")
	}
	return dataplane.Change{}
}

// Somebody else's write is told, with who made it where that is known.
func TestWatchForeign(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		k.load("filter", ":tw-a - [0:0]")
		w := k.watch()
		for i := range 5 {
			begin := time.Now()
			cmd := k.command(k.lock, "iptables", "-A", "tw-a", "-p", "tcp", "--dport", fmt.Sprint(i+1))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			c := w.next()
			for k.b == dataplane.Legacy && c.Table != "" { // the tables were looked at before it was done
				c = w.next()
			}
			if c.At.Before(begin) || c.At.After(time.Now()) {
				t.Errorf("at %v, not between %v and now", c.At, begin)
			}
			tool := cmd.Args[2] // behind nsenter, which becomes the tool
			if k.b == dataplane.Legacy {
				named := c.PID == cmd.Process.Pid && strings.HasPrefix(c.Command, tool[:15])
				if !named && (c.PID != 0 || c.Command != "a holder of the xtables lock") || c.Generation != 0 || c.Table != "" {
					t.Errorf("%+v", c)
				}
				continue
			}
			gen, err := dataplane.ScanGeneration(k.Kernel)
			if err != nil {
				t.Fatal(err)
			}
			whole := strings.Join(cmd.Args[2:], " ")
			if c.Generation != gen || c.PID != cmd.Process.Pid || c.Command != tool && c.Command != whole || c.Table != "" {
				t.Errorf("%+v, want generation %d of %d %q", c, gen, cmd.Process.Pid, whole)
			}
		}
	})
}

// Who holds the lock is named, as long as it is held when it is looked at.
func TestWatchNamesTheHolder(t *testing.T) {
	k := newPulsing(t, dataplane.Legacy, rules.IPv4)
	w := k.watch()
	cmd := k.command(k.lock, "flock", k.lock, "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for !dataplane.LockHeld(k.Kernel) {
		runtime.Gosched()
	}
	// Whoever opens the file has the holder looked for.
	waiter := k.command(k.lock, "flock", "-n", k.lock, "true")
	_ = waiter.Run() // fails, as the lock is held
	c := w.next()
	if c.PID != cmd.Process.Pid || !strings.HasPrefix(c.Command, "flock "+k.lock) {
		t.Errorf("%+v, want %d", c, cmd.Process.Pid)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	w.next()
}

// What is done without the lock is told too, with the table, if the kernel's numbers show it.
func TestWatchWithoutTheLock(t *testing.T) {
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		k := newPulsing(t, dataplane.Legacy, v)
		dataplane.SetWatchTick(k.Kernel, time.Millisecond)
		k.load("filter", ":tw-a - [0:0]")
		k.pulse("nat")
		w := k.watch()
		unlocked := filepath.Join(t.TempDir(), "lock")
		for _, table := range []string{"filter", "nat"} {
			k.foreign(unlocked, "iptables -t "+table+" -N theirs")
			if c := w.next(); c.IPVersion != v || c.Table != table || c.PID != 0 || c.Command != "" {
				t.Errorf("%s: %+v", table, c)
			}
		}
		w.end()
		if err := <-w.ended; err != nil || len(w.changes) > 0 {
			t.Errorf("%v; %d more changes", err, len(w.changes))
		}
	}
}

// Own writes are not told, of whatever kind and table: the next that is told is somebody
// else's.
func TestWatchOwnWrites(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		dataplane.SetWatchTick(k.Kernel, time.Millisecond)
		tables := []string{"filter", "nat", "mangle", "raw"}
		before := map[string]uint64{}
		for _, table := range tables {
			before[table] = k.pulse(table)
		}
		w := k.watch()
		for _, lines := range ownBlocks {
			_ = k.restore("filter", lines) // some are refused
		}
		var wg sync.WaitGroup
		for _, table := range tables {
			wg.Go(func() {
				for i := range 20 {
					if err := k.restore(table, fmt.Sprintf(":tw-%d - [0:0]; -A tw-%d -j RETURN", i%7, i%7)); err != nil {
						t.Errorf("%s: %v", table, err)
					}
				}
			})
		}
		wg.Wait()
		for table, n := range before {
			if got := k.pulse(table); got != n {
				t.Errorf("%s: %d changes", table, got-n)
			}
		}
		if len(w.changes) > 0 {
			t.Fatalf("own writes: %+v", w.next())
		}
		cmd := k.command(k.lock, "iptables", "-N", "theirs")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if c := w.next(); c.PID != cmd.Process.Pid && k.b == dataplane.NFT {
			t.Errorf("own writes: %+v", c)
		}
		w.end()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		if k.b == dataplane.NFT && len(w.changes) > 0 {
			t.Errorf("one too many: %+v", w.next())
		}
	})
}

// Large commits need no large buffer, and a buffer that is too small for many of them costs
// their names, not the news.
func TestWatchSmallBuffer(t *testing.T) {
	k := newPulsing(t, dataplane.NFT, rules.IPv4)
	dataplane.SetPulseBuffer(k.Kernel, 4<<10)
	w := k.watchWith(0) // notify blocks, so that the buffer fills
	foreign := func(text string) uint64 {
		cmd := k.command("", "iptables-restore", "--noflush")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		gen, err := dataplane.ScanGeneration(k.Kernel)
		if err != nil {
			t.Fatal(err)
		}
		return gen
	}
	var large strings.Builder
	large.WriteString("*filter\n:theirs - [0:0]\n")
	lines := 10_000
	if inUserNamespace(t) {
		lines = 300 // nft takes no more in one block
	}
	for i := range lines {
		fmt.Fprintf(&large, "-A theirs -s 10.0.%d.%d -j ACCEPT\n", i/256, i%256)
	}
	large.WriteString("COMMIT\n")
	before := k.pulse("filter")
	for range 2 {
		gen := foreign(large.String())
		if c := w.next(); c.Generation != gen || c.PID == 0 {
			t.Errorf("%+v, want generation %d", c, gen)
		}
	}
	if n := k.pulse("filter"); n != before+2 {
		t.Errorf("two large commits: %d changes", n-before)
	}
	for range 3 {
		many := foreign(strings.Repeat("*filter\n-A theirs -j DROP\nCOMMIT\n", 100))
		first := w.next()
		more := foreign("*filter\n-A theirs -j DROP\nCOMMIT\n") // while nothing is taken
		named, c := 1, w.next()
		for ; c.PID != 0; c = w.next() {
			named++
		}
		if first.PID == 0 || first.Generation != many-99 || c.Generation != more || named > 50 {
			t.Errorf("%+v and %d others with a name, then %+v; the generation is %d", first, named, c, more)
		}
	}
	if gen, c := foreign("*filter\n-A theirs -j DROP\nCOMMIT\n"), w.next(); c.Generation != gen || c.PID == 0 {
		t.Errorf("%+v, want generation %d", c, gen)
	}
	w.end()
	if err := <-w.ended; err != nil {
		t.Error(err)
	}
}

// Watch ends with its context, without an error, and with the Kernel, with one.
func TestWatchEnds(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		first, second := k.watch(), k.watch()
		first.end()
		if err := <-first.ended; err != nil {
			t.Errorf("context: %v", err)
		}
		k.foreign(k.lock, "iptables -N theirs")
		second.next()
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if re := restoreError(t, <-second.ended); !strings.Contains(re.Reason, "closed") {
			t.Errorf("close: %v", re)
		}
		if err := k.Watch(background, func(dataplane.Change) {}); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a closed Kernel: %v", err)
		}
	})
}
