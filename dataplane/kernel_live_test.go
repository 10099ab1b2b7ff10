// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// oneChain is a block that makes one chain of one rule.
func oneChain(n int, v rules.IPVersion) []byte {
	source := fmt.Sprintf("10.0.0.%d", n)
	if v == rules.IPv6 {
		source = fmt.Sprintf("2001:db8::%d", n)
	}
	return fmt.Appendf(nil, "*filter\n:tw-live - [0:0]\n-A tw-live -s %s -j ACCEPT\nCOMMIT\n", source)
}

// A tool is kept open from block to block, until it has been idle.
func TestKernelKeepsItsToolOpen(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		first := 0
		for n := range 5 {
			if err := k.Restore(t.Context(), id, oneChain(n+1, v)); err != nil {
				t.Fatal(err)
			}
			pid := k.LivePID(id)
			if n == 0 {
				first = pid
			}
			if pid == 0 || pid != first {
				t.Fatalf("block %d: process %d, the first was %d", n+1, pid, first)
			}
		}
		holds(t, k, id, 5)
		k.RestLive(id)
		if pid := k.LivePID(id); pid != 0 {
			t.Errorf("an idle tool is not closed: %d", pid)
		}
		if err := k.Restore(t.Context(), id, oneChain(6, v)); err != nil {
			t.Fatal(err)
		}
		holds(t, k, id, 6)
	})
}

// holds checks that the chain holds what block n made.
func holds(t *testing.T, k *dataplane.Kernel, id rules.TableID, n int) {
	t.Helper()
	snap, err := k.Read(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	c := snap.Chains["tw-live"]
	want := fmt.Sprintf("10.0.0.%d/", n)
	if id.IPVersion == rules.IPv6 {
		want = fmt.Sprintf("2001:db8::%d/", n)
	}
	if len(c.Rules) != 1 || !strings.Contains(c.Rules[0].Text, want) {
		t.Errorf("%+v, want %s", c.Rules, want)
	}
}

// A tool that is killed while it waits costs nothing: the next block goes to another one.
func TestKernelToolKilledWhileIdle(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for n := range 20 {
			if err := k.Restore(t.Context(), id, oneChain(n+1, v)); err != nil {
				t.Fatalf("block %d: %v", n+1, err)
			}
			if pid := k.LivePID(id); pid != 0 {
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				for unix.Kill(pid, 0) == nil { // until it has been waited for
					runtime.Gosched()
				}
			}
		}
		holds(t, k, id, 20)
	})
}

// A block that is refused ends the tool, and the next one lands; the lines that the tool names
// are those of the block, however many it was given before, and so are those in its words.
func TestKernelLinesOfAnOpenTool(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for n := range 3 {
			for m := range 3 {
				if err := k.Restore(t.Context(), id, oneChain(10*n+m+1, v)); err != nil {
					t.Fatal(err)
				}
			}
			for _, bad := range []string{"-A tw-live -p tcp --bogus -j ACCEPT", "-A tw-none -j ACCEPT", "-A tw-live -m ipvs --ipvs -j ACCEPT"} {
				if err := k.Restore(t.Context(), id, oneChain(99, v)); err != nil {
					t.Fatal(err)
				}
				err := k.Restore(t.Context(), id, []byte("*filter\n:tw-live - [0:0]\n"+bad+"\nCOMMIT\n"))
				var re *dataplane.RestoreError
				if !errors.As(err, &re) {
					t.Fatalf("%s: %v", bad, err)
				}
				// What the kernel refuses a legacy tool puts down to the last line.
				if b == dataplane.Legacy && strings.Contains(bad, "ipvs") {
					if re.Line != 0 || !strings.Contains(re.Stderr, "line 4 failed") {
						t.Errorf("%s: %+v", bad, re)
					}
					continue
				}
				if re.Line != 3 || re.Text != bad {
					t.Errorf("%s: line %d %q", bad, re.Line, re.Text)
				}
				if !strings.Contains(re.Stderr, "line 3") && !strings.Contains(re.Stderr, "line: 3") {
					t.Errorf("%s: the tool's words name another line: %s", bad, re.Stderr)
				}
			}
			holds(t, k, id, 99)
		}
	})
}

// Tools are kept open for each table by itself, and blocks of several tables at once do not
// mix.
func TestKernelToolForEachTable(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		tables := []string{"filter", "nat", "mangle", "raw"}
		errs := make(chan error)
		for _, table := range tables {
			go func() {
				id := rules.TableID{IPVersion: v, Name: table}
				var err error
				for n := 0; n < 10 && err == nil; n++ {
					err = k.Restore(t.Context(), id, fmt.Appendf(nil, "*%s\n:tw-%s - [0:0]\n-A tw-%s -j RETURN\nCOMMIT\n", table, table, table))
				}
				errs <- err
			}()
		}
		for range tables {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		for _, table := range tables {
			snap, err := k.Read(t.Context(), rules.TableID{IPVersion: v, Name: table})
			if err != nil {
				t.Fatal(err)
			}
			for name, c := range snap.Chains {
				if strings.HasPrefix(name, "tw-") && (name != "tw-"+table || len(c.Rules) != 1) {
					t.Errorf("table %s: chain %s with %d rules", table, name, len(c.Rules))
				}
			}
		}
	})
}

// A tool that hangs is ended at the deadline, and what it was given is unknown; one that is
// ended by the caller's context likewise.
func TestKernelOpenToolIsGivenUp(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		if err := k.Restore(t.Context(), id, oneChain(1, v)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(livePID(t, k, id), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := k.Restore(ctx, id, oneChain(2, v))
		var re *dataplane.RestoreError
		if !errors.As(err, &re) || re.Class != dataplane.Unknown || re.CountersLost != (b == dataplane.Legacy) {
			t.Errorf("%+v, want an unknown outcome", err)
		}
		if err := k.Restore(t.Context(), id, oneChain(3, v)); err != nil {
			t.Fatal(err)
		}
		holds(t, k, id, 3)
	})
}
