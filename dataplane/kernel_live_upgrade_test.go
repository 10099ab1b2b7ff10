// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// copyTools makes a folder with copies of the tools, and returns the names of the restore tool
// there and in the system.
func copyTools(t *testing.T, b dataplane.Backend, v rules.IPVersion) (restore, system string) {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"save", "restore"} {
		restore = map[rules.IPVersion]string{rules.IPv4: "iptables-", rules.IPv6: "ip6tables-"}[v] + string(b) + "-" + tool
		found, err := exec.LookPath(restore)
		if err != nil {
			t.Skipf("no tool: %v", err)
		}
		program, err := os.ReadFile(found)
		if err != nil {
			t.Fatal(err)
		}
		system, restore = found, filepath.Join(dir, restore)
		if err := os.WriteFile(restore, program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return restore, system
}

// stop stops a process, and sees that it has stopped: until then it may read.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// unread is how much a process has not read of what was written to its input.
func unread(t *testing.T, pid int) int {
	t.Helper()
	in, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", pid), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	n, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ) // which is FIONREAD
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// While a tool is open another release may take its place, and the extensions that it loads
// are that release's. What such a tool refuses is asked of the new one, if the old one has
// surely changed nothing: of a legacy tool that is what it does not understand.
func TestKernelToolUpgradedInBlock(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for _, c := range []struct {
			name, rule string
			asked      bool
		}{
			{"parser", "-p tcp --bogus -j ACCEPT", true},
			{"kernel", "-p tcp -j REDIRECT", b == dataplane.NFT},
		} {
			t.Run(c.name, func(t *testing.T) {
				o := testns.Options(t, testns.New(t), b)
				restore, system := copyTools(t, b, v)
				o.ToolDir = filepath.Dir(restore)
				k := newKernel(t, o)
				mustRestore(t, k, id, oneChain(1, v))
				pid := livePID(t, k, id)
				stop(t, pid)
				done := make(chan error, 1)
				go func() {
					done <- k.Restore(background, id, []byte("*filter\n:tw-live - [0:0]\n-A tw-live "+c.rule+"\n-A INPUT -j tw-live\nCOMMIT\n"))
				}()
				eventually(t, "the block", func() bool { return unread(t, pid) > 0 })
				// The new release understands the option, and has another target.
				script := fmt.Sprintf("#!/bin/sh\nsed 's/ --bogus / --syn /; s/ REDIRECT/ DROP/' | exec %s \"$@\"\n", system)
				if err := errors.Join(os.WriteFile(restore+"-new", []byte(script), 0o755), os.Rename(restore+"-new", restore),
					unix.Kill(pid, unix.SIGCONT)); err != nil {
					t.Fatal(err)
				}
				err := <-done
				if c.asked != (err == nil) {
					t.Errorf("%v, asked again: %v", err, c.asked)
				}
				snap, err := k.Read(background, id)
				if hooked := len(snap.Chains["INPUT"].Rules) == 1; err != nil || hooked != c.asked {
					t.Errorf("applied: %v, asked again: %v; %v", hooked, c.asked, err)
				}
			})
		}
	})
}

// A tool that is replaced between two blocks gives way to the new one.
func TestKernelToolUpgradedWhileIdle(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		o := testns.Options(t, testns.New(t), b)
		restore, system := copyTools(t, b, v)
		o.ToolDir = filepath.Dir(restore)
		k := newKernel(t, o)
		mustRestore(t, k, id, oneChain(1, v))
		pid := livePID(t, k, id)
		program, err := os.ReadFile(system)
		if err := errors.Join(err, os.WriteFile(restore+"-new", program, 0o755), os.Rename(restore+"-new", restore)); err != nil {
			t.Fatal(err)
		}
		mustRestore(t, k, id, oneChain(2, v))
		if now := k.LivePID(id); now == 0 || now == pid {
			t.Errorf("process %d, before %d", now, pid)
		}
		holds(t, k, id, 2)
	})
}
