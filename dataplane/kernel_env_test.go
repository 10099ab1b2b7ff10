// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A namespace that was made again under its name is not written to through the old one.
func TestKernelNamespaceRemade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	old := testns.New(t)
	if err := os.Symlink(old, path); err != nil {
		t.Fatal(err)
	}
	k, err := dataplane.NewKernel(background, testns.Options(t, path, dataplane.NFT))
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	defer k.Close()
	id, input := rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\n:tw-a - [0:0]\nCOMMIT\n")
	if err := k.Restore(background, id, input); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	re := restoreError(t, k.Restore(background, id, input))
	if re.Class != dataplane.Unavailable || !strings.Contains(re.Reason, "is gone") {
		t.Errorf("gone: %v", re)
	}
	if err := os.Symlink(testns.New(t), path); err != nil {
		t.Fatal(err)
	}
	re = restoreError(t, k.Restore(background, id, []byte("*filter\n:tw-b - [0:0]\nCOMMIT\n")))
	if re.Class != dataplane.Unavailable || !strings.Contains(re.Reason, "was made again") {
		t.Errorf("made again: %v", re)
	}
	snap, err := newKernel(t, testns.Options(t, old, dataplane.NFT)).Read(background, id)
	if _, found := snap.Chains["tw-b"]; err != nil || found {
		t.Errorf("the old namespace was written to: %v, %v", snap, err)
	}
	if _, err := dataplane.NewKernel(background, dataplane.Options{NetNS: "no-such-namespace"}); err == nil {
		t.Error("a namespace that does not exist was opened")
	}
}

// The threads of this process stay in its own namespace.
func TestKernelComesBack(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := func() string {
		s, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := home()
	k, err := dataplane.NewKernel(background, testns.Options(t, testns.New(t), dataplane.NFT))
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	defer k.Close()
	for range 20 {
		if _, err := k.Read(background, rules.TableID{IPVersion: 4, Name: "filter"}); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if s, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net"); err == nil && s != before {
			t.Errorf("thread %s is in %s, not in %s", task.Name(), s, before)
		}
	}
}

// Without a wish the backend is that of the tools on PATH, unless only the other holds
// rules.
func TestKernelChoosesBackend(t *testing.T) {
	for _, held := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		path := testns.New(t)
		k, err := dataplane.NewKernel(background, testns.Options(t, path, held))
		if err != nil {
			t.Skipf("no kernel: %v", err)
		}
		defer k.Close()
		if err := k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\n-A INPUT -p tcp -j DROP\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		chosen, err := dataplane.NewKernel(background, testns.Options(t, path, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer chosen.Close()
		if got := chosen.Info().Backend; got != string(held) {
			t.Errorf("%s holds rules, %s was chosen", held, got)
		}
	}
}
