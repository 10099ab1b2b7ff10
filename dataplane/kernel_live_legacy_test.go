// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// newLegacy makes a Kernel that has a tool open for the filter table.
func newLegacy(t *testing.T, o dataplane.Options) (*dataplane.Kernel, int) {
	t.Helper()
	k := newKernel(t, o)
	mustRestore(t, k, filter, oneChain(1, rules.IPv4))
	return k, livePID(t, k, filter)
}

// livePID is the process that is kept open for a table. There must be one: signals to process 0
// are for ourselves.
func livePID(t *testing.T, k *dataplane.Kernel, id rules.TableID) int {
	t.Helper()
	pid := k.LivePID(id)
	if pid == 0 {
		t.Fatal("no tool is kept open")
	}
	return pid
}

func mustRestore(t *testing.T, k *dataplane.Kernel, id rules.TableID, block []byte) {
	t.Helper()
	if err := k.Restore(background, id, block); err != nil {
		t.Fatal(err)
	}
}

// A legacy tool has no alarm that would end it between two blocks: one that is told how long
// to wait for the lock ends meanwhile, with exit code 0.
func TestLegacyToolRests(t *testing.T) {
	t.Parallel()
	ns := testns.New(t)
	k, pid := newLegacy(t, testns.Options(t, ns, dataplane.Legacy))
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if want := "--noflush\x00--verbose\x00-w\x00"; err != nil || !strings.HasSuffix(string(args), "-restore\x00"+want) {
		t.Errorf("arguments %q, %v", args, err)
	}
	alarmed := openRestore(t, ns, filepath.Join(t.TempDir(), "lock"), "iptables-legacy-restore", "-w", "1")
	alarmed.block("*mangle\n:tw-a - [0:0]\nCOMMIT\n", "# first")
	mustRestore(t, k, filter, oneChain(2, rules.IPv4))
	if _, err := io.ReadAll(alarmed.out); err != nil {
		t.Error(err)
	}
	if err := alarmed.cmd.Wait(); err != nil {
		t.Error(err)
	}
	mustRestore(t, k, filter, oneChain(3, rules.IPv4))
	if now := k.LivePID(filter); now != pid {
		t.Errorf("process %d, before %d", now, pid)
	}
	holds(t, k, filter, 3)
}

// Between two blocks the lock is anybody's, and while somebody has it a block waits, for so
// long and no longer. The tool knows nothing of that.
func TestLegacyOpenToolAndLock(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	o.LockWait = 100 * time.Millisecond
	k, pid := newLegacy(t, o)
	if n := holders(t, o.LockFile, false); n != 0 {
		t.Errorf("%d hold the lock between two blocks", n)
	}
	other, release := stranger(t, o.LockFile)
	re := restoreError(t, k.Restore(background, filter, oneChain(2, rules.IPv4)))
	if want := fmt.Sprintf("the xtables lock is held by pid %d (flock)", other); re.Class != dataplane.Busy || re.Reason != want || re.CountersLost {
		t.Errorf("%+v, want %s", re, want)
	}
	if d := k.Stats().LastLockWait; d < o.LockWait {
		t.Errorf("waited %v", d)
	}
	holds(t, k, filter, 1)
	// The wait that was given up goes on, and is taken over.
	eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
	release()
	eventually(t, "the late lock to be given back", func() bool {
		return holders(t, o.LockFile, true)+holders(t, o.LockFile, false) == 0
	})
	mustRestore(t, k, filter, oneChain(3, rules.IPv4))
	if now := k.LivePID(filter); now != pid {
		t.Errorf("process %d, before %d", now, pid)
	}
	holds(t, k, filter, 3)
}

// Who waits for the lock file to be closed is not told of our blocks, of tools that start, or
// of tools that end.
func TestLegacyBlocksCloseNothing(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	k, _ := newLegacy(t, o)
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, o.LockFile, unix.IN_ALL_EVENTS); err != nil {
		t.Fatal(err)
	}
	nat := rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
	for n := range 5 {
		mustRestore(t, k, filter, oneChain(n+2, rules.IPv4))
		mustRestore(t, k, filter6, oneChain(n+2, rules.IPv6))
		mustRestore(t, k, nat, []byte("*nat\n:tw-a - [0:0]\nCOMMIT\n"))
		k.RestLive(nat)
		if k.Restore(background, filter, []byte("*filter\n-A tw-none -j DROP\nCOMMIT\n")) == nil {
			t.Error("what should be refused is not")
		}
	}
	buf := make([]byte, 4096)
	if n, err := unix.Read(fd, buf); err != unix.EAGAIN {
		t.Errorf("%d bytes of events, %v", n, err)
	}
	f, err := os.Open(o.LockFile)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if n, err := unix.Read(fd, buf); n <= 0 {
		t.Errorf("another's close is not told: %v", err)
	}
}

// When another file has the lock's name, the tool is left for one that has the new lock.
func TestLegacyOpenToolLockFileReplaced(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	k, pid := newLegacy(t, o)
	_, release := stranger(t, o.LockFile) // who has a file without a name is in nobody's way
	for n := range 2 {
		if err := os.Remove(o.LockFile); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			mustRestore(t, k, filter, oneChain(n+2, rules.IPv4))
			release()
		} else { // somebody else makes it anew, and has it
			_, release := stranger(t, o.LockFile)
			done := make(chan error, 1)
			go func() { done <- k.Restore(background, filter, oneChain(n+2, rules.IPv4)) }()
			eventually(t, "our wait for the new file", func() bool { return holders(t, o.LockFile, true) == 1 })
			release()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		now := k.LivePID(filter)
		if now == 0 || now == pid {
			t.Fatalf("process %d, before %d", now, pid)
		}
		pid = now
		named, err := os.Stat(o.LockFile)
		if err != nil {
			t.Fatal(err)
		}
		if has, err := os.Stat(fmt.Sprintf("/proc/%d/fd/3", pid)); err != nil || !os.SameFile(named, has) {
			t.Errorf("the tool has another lock: %v", err)
		}
		holds(t, k, filter, n+2)
	}
}

// A legacy tool that has a large table in its memory is not kept open, and a small one is.
func TestLegacyToolMemory(t *testing.T) {
	k, _ := newLegacy(t, testns.Options(t, testns.New(t), dataplane.Legacy))
	k.SetMaxResident(1 << 20) // less than any tool has
	mustRestore(t, k, filter, oneChain(2, rules.IPv4))
	if pid := k.LivePID(filter); pid != 0 {
		t.Errorf("process %d is kept open", pid)
	}
	holds(t, k, filter, 2)
	k.SetMaxResident(0)
	mustRestore(t, k, filter, oneChain(3, rules.IPv4))
	if k.LivePID(filter) == 0 {
		t.Error("it is not kept open")
	}
}

// An open tool does not make us write to a namespace that has lost its name.
func TestLegacyOpenToolNamespaceRemade(t *testing.T) {
	path, old := filepath.Join(t.TempDir(), "ns"), testns.New(t)
	if err := os.Symlink(old, path); err != nil {
		t.Fatal(err)
	}
	k, _ := newLegacy(t, testns.Options(t, path, dataplane.Legacy))
	if err := errors.Join(os.Remove(path), os.Symlink(testns.New(t), path)); err != nil {
		t.Fatal(err)
	}
	re := restoreError(t, k.Restore(background, filter, oneChain(2, rules.IPv4)))
	if re.Class != dataplane.Unavailable || !strings.Contains(re.Reason, "was made again") {
		t.Errorf("%+v", re)
	}
	holds(t, newKernel(t, testns.Options(t, old, dataplane.Legacy)), filter, 1)
}

// A tool that can be given nothing at all has applied nothing: the block goes to another one.
func TestKernelOpenToolTakesNothing(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		t.Parallel()
		id := rules.TableID{IPVersion: v, Name: "filter"}
		mustRestore(t, k, id, oneChain(1, v))
		pid := livePID(t, k, id)
		// While somebody has its output open it does not count as ended.
		out, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for unix.Kill(pid, 0) == nil { // until it has been waited for
			runtime.Gosched()
		}
		if now := k.LivePID(id); now != pid {
			t.Fatalf("process %d, before %d", now, pid)
		}
		mustRestore(t, k, id, oneChain(2, v))
		holds(t, k, id, 2)
	})
}

// pauseDeadline calls Restore with a context whose deadline comes when the tool, which waits for
// input, is found to do something else: a system call, or "running".
func pauseDeadline(t *testing.T, k *dataplane.Kernel, pid int, block []byte, does string) error {
	t.Helper()
	found := func(does string) func() bool {
		return func() bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
			call, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
			return err == nil && call == does
		}
	}
	eventually(t, "the tool to wait for input", found(fmt.Sprint(unix.SYS_READ)))
	ctx, cancel := context.WithCancelCause(background)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- k.Restore(ctx, filter, block) }()
	eventually(t, "the tool in "+does, found(does))
	cancel(dataplane.ErrDeadline)
	return <-done
}

// At the deadline a tool that waits for a lock is killed at once: it has changed nothing.
func TestLegacyOpenToolDeadlineInLock(t *testing.T) {
	k, pid := newLegacy(t, testns.Options(t, testns.New(t), dataplane.Legacy))
	_, release := stranger(t, k.ToolLockFile(filter))
	begin := time.Now()
	re := restoreError(t, pauseDeadline(t, k, pid, oneChain(2, rules.IPv4), fmt.Sprint(unix.SYS_FLOCK)))
	if re.Class != dataplane.Unknown || !errors.Is(re, dataplane.ErrDeadline) || !re.CountersLost {
		t.Errorf("%+v", re)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it was waited for: %v", d)
	}
	release()
	holds(t, k, filter, 1)
	mustRestore(t, k, filter, oneChain(3, rules.IPv4))
	holds(t, k, filter, 3)
}

// A tool that works is not killed at the deadline: it would lose every counter of the table.
func TestLegacyOpenToolDeadlineAtWork(t *testing.T) {
	k := newKernel(t, testns.Options(t, testns.New(t), dataplane.Legacy))
	mustRestore(t, k, filter, plainLoad(messages(1000, never, "")))
	mustRestore(t, k, filter, oneChain(1, rules.IPv4)) // what it needs is loaded
	pid := livePID(t, k, filter)
	if err := pauseDeadline(t, k, pid, oneChain(2, rules.IPv4), "running"); err != nil {
		t.Errorf("it was not waited for: %v", err)
	}
	if now := k.LivePID(filter); now != 0 {
		t.Errorf("process %d is kept open past its deadline", now)
	}
	holds(t, k, filter, 2)
}
