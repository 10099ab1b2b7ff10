// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

var (
	filter  = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	filter6 = rules.TableID{IPVersion: rules.IPv6, Name: "filter"}
	aChain  = []byte("*filter\n:tw-a - [0:0]\nCOMMIT\n")
)

func newKernel(t *testing.T, o dataplane.Options) *dataplane.Kernel {
	t.Helper()
	k, err := dataplane.NewKernel(background, o)
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// stranger locks a file as another program would, until the function that it returns is
// called.
func stranger(t *testing.T, path string) (pid int, release func()) {
	t.Helper()
	tool, err := exec.LookPath("flock")
	if err != nil {
		t.Skip("no flock")
	}
	cmd := exec.Command(tool, path, "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release = func() {
		stdin.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(release)
	eventually(t, "the stranger has the lock", func() bool { return holders(t, path, false) == 1 })
	return cmd.Process.Pid, release
}

// holders counts who has the lock of a file, or waits for it.
func holders(t *testing.T, path string, waiting bool) (n int) {
	t.Helper()
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, fmt.Sprintf(":%d ", st.Ino)) && strings.Contains(line, "->") == waiting {
			n++
		}
	}
	return n
}

func TestKernelLockHeld(t *testing.T) {
	for _, id := range []rules.TableID{filter, filter6} {
		o := testns.Options(t, testns.New(t), dataplane.Legacy)
		o.LockWait = 200 * time.Millisecond
		k := newKernel(t, o)
		pid, release := stranger(t, o.LockFile)
		begin := time.Now()
		re := restoreError(t, k.Restore(background, id, aChain))
		if want := fmt.Sprintf("the xtables lock is held by pid %d (flock)", pid); re.Class != dataplane.Busy || re.Reason != want || re.Line != 0 {
			t.Errorf("lock held: %+v, want %s", re, want)
		}
		if d := time.Since(begin); d < o.LockWait || d > o.LockWait+3*time.Second {
			t.Errorf("waited %v", d)
		}
		if s := k.Stats(); s.Locks != 1 || s.LastLockWait < o.LockWait || s.LockWait != s.LastLockWait || s.Runs != 0 {
			t.Errorf("%+v", s)
		}
		// Reading takes no lock.
		if _, err := k.Read(background, id); err != nil {
			t.Error(err)
		}
		release()
		if err := k.Restore(background, id, aChain); err != nil {
			t.Errorf("lock given back: %v", err)
		}
	}
}

// Who waits gets the lock when it is given back: 5 s later in the long form.
func TestKernelLockComesLate(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	o.LockWait = time.Minute
	k := newKernel(t, o)
	_, release := stranger(t, o.LockFile)
	done := make(chan error, 1)
	go func() { done <- k.Restore(background, filter, aChain) }()
	eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
	begin := time.Now()
	if os.Getenv("TABLEWARD_SOAK") != "" {
		time.Sleep(5 * time.Second)
	}
	held := time.Since(begin)
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := k.Stats(); s.LastLockWait < held || s.LastLockWait > held+5*time.Second {
		t.Errorf("held for %v: %+v", held, s)
	}
	if n := holders(t, o.LockFile, false); n != 0 {
		t.Errorf("%d hold the lock", n)
	}
}

// A wait ends with its context. The flock under it cannot be ended; the next wait takes it
// over, and a late lock that nobody wants is given back.
func TestKernelLockCancelled(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	k := newKernel(t, o)
	_, release := stranger(t, o.LockFile)
	for range 5 {
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		err := k.Restore(ctx, filter, aChain)
		cancel()
		if re := restoreError(t, err); re.Class != dataplane.Busy || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v", re)
		}
	}
	eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
	release()
	eventually(t, "the late lock to be given back", func() bool {
		return holders(t, o.LockFile, true)+holders(t, o.LockFile, false) == 0
	})
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
}

// The lock file is a name: who deletes it while it is held lets the next one in, and a wait
// for the deleted file is worth nothing.
func TestKernelLockFileReplaced(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	k := newKernel(t, o)
	_, release := stranger(t, o.LockFile)
	done := make(chan error, 1)
	go func() { done <- k.Restore(background, filter, aChain) }()
	eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
	if err := os.Remove(o.LockFile); err != nil {
		t.Fatal(err)
	}
	_, second := stranger(t, o.LockFile)
	release()
	eventually(t, "our wait for the new file", func() bool { return holders(t, o.LockFile, true) == 1 })
	second()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestKernelLockFileMissing(t *testing.T) {
	for name, want := range map[string]string{
		"nosuch/lock": "no such file or directory", "": "is a directory",
	} {
		o := testns.Options(t, testns.New(t), dataplane.Legacy)
		o.LockFile = filepath.Join(t.TempDir(), name)
		re := restoreError(t, newKernel(t, o).Restore(background, filter, aChain))
		if want := "can't open lock file " + o.LockFile + ": " + want; re.Class != dataplane.Unavailable || re.Reason != want {
			t.Errorf("got %v, want %s", re, want)
		}
	}
}

// nft has no lock, and waits for none.
func TestKernelLockOfNFT(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.NFT)
	k := newKernel(t, o)
	stranger(t, o.LockFile)
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	if s := k.Stats(); s.Locks != 0 || s.Runs != 1 {
		t.Errorf("%+v", s)
	}
}

// The lock that we hold is the one that the tool of other programs takes, and ours is free
// between two blocks.
func TestKernelLockIsTheTools(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	dir := t.TempDir()
	// A tool between us and the real one, which waits until it is told to go on.
	script := "#!/bin/sh\n[ \"$1\" = --version ] || case $XTABLES_LOCKFILE in */missing/*) ;; *) echo \"$*\" >" + dir +
		"/args; cat " + dir + "/go >/dev/null;; esac\nexec iptables-legacy-restore \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "iptables-legacy-restore"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "iptables-legacy-save"), []byte("#!/bin/sh\nexec iptables-legacy-save \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.ToolDir = dir
	k := newKernel(t, o)
	done := make(chan error, 1)
	go func() { done <- k.Restore(background, filter, aChain) }()
	eventually(t, "our lock", func() bool { return holders(t, o.LockFile, false) == 1 })
	tool := exec.Command("iptables-legacy-restore", "--noflush", "-w", "1")
	tool.Env = append(os.Environ(), "XTABLES_LOCKFILE="+o.LockFile)
	tool.Stdin = strings.NewReader("*tableward-probe\n")
	if out, err := tool.CombinedOutput(); err == nil || tool.ProcessState.ExitCode() != 4 || !strings.Contains(string(out), "Stopped waiting after 1s") {
		t.Errorf("another tool: %v, %s", err, out)
	}
	f, err := os.OpenFile(filepath.Join(dir, "go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := holders(t, o.LockFile, false); n != 0 {
		t.Errorf("%d hold the lock after the block", n)
	}
	if args, _ := os.ReadFile(filepath.Join(dir, "args")); string(args) != "--noflush --verbose -w\n" {
		t.Errorf("arguments %q", args)
	}
}

// The lock is free when a block is applied, although the tool, which has a descriptor of it,
// has not ended.
func TestKernelLockFreeBeforeTheToolEnds(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	o.ToolDir = t.TempDir()
	end := filepath.Join(o.ToolDir, "end")
	script := "#!/bin/sh\niptables-legacy-restore \"$@\" || exit\n[ \"$1\" = --version ] || read -r end <" + end + "\n"
	for name, text := range map[string]string{"restore": script, "save": "#!/bin/sh\nexec iptables-legacy-save \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(o.ToolDir, "iptables-legacy-"+name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(end, 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKernel(t, o)
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	if s := k.Stats(); s.Locks != 1 || holders(t, o.LockFile, false) != 0 {
		t.Errorf("%d hold the lock after the block; %+v", holders(t, o.LockFile, false), s)
	}
	f, err := os.OpenFile(end, os.O_WRONLY, 0) // a tool that has ended would never read
	if err != nil {
		t.Fatal(err)
	}
	if n := holders(t, o.LockFile, false); n != 0 {
		t.Errorf("%d hold the lock while the tool is ending", n)
	}
	f.Close()
}

// A tool that locks what it likes is left to it: to hold the lock while it runs would be to
// wait for ourselves.
func TestKernelLockNotHonoured(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'iptables v1.4.7'; exit 0; }\n" +
		"echo \"$* $XTABLES_LOCKFILE\" >>" + dir + "/args\ncat\n"
	for _, name := range []string{"iptables-legacy-restore", "iptables-legacy-save"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := dataplane.Options{Backend: dataplane.Legacy, ToolDir: dir, StateDir: t.TempDir(), LockWait: 2600 * time.Millisecond, LockFile: filepath.Join(dir, "lock")}
	k := newKernel(t, o)
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(args)), "\n")
	if want := "--noflush --verbose -w 3 " + o.LockFile; lines[len(lines)-1] != want {
		t.Errorf("arguments %q, want %q last", lines, want)
	}
	if _, err := os.Stat(o.LockFile); !os.IsNotExist(err) || k.Stats().Locks != 0 {
		t.Errorf("the lock was taken: %v", err)
	}
}
