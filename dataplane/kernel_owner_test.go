// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A table has one writer, from its first block until it is closed. Whoever only reads may,
// and other tables, the other IP version and other namespaces are free.
func TestKernelOneWriter(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		path := testns.New(t)
		o := testns.Options(t, path, b)
		first, err := dataplane.NewKernel(background, o)
		if err != nil {
			t.Fatal(err)
		}
		second := newKernel(t, o)
		id := rules.TableID{IPVersion: v, Name: "filter"}
		if _, err := first.Read(background, id); err != nil {
			t.Fatal(err)
		}
		// To be refused is to have written first.
		restoreError(t, first.Restore(background, id, []byte("*filter\n-A INPUT --bogus\nCOMMIT\n")))
		err = second.Restore(background, id, aChain)
		re := restoreError(t, err)
		var held *dataplane.TableHeldError
		want := fmt.Sprintf("table filter is held by pid %d", os.Getpid())
		if re.Class != dataplane.Unavailable || !errors.Is(err, dataplane.ErrTableHeld) || !errors.As(err, &held) ||
			held.PID != os.Getpid() || held.Table != id || re.Reason != want {
			t.Errorf("second writer: %+v, want %s", re, want)
		}
		if _, err := second.Read(background, id); err != nil {
			t.Errorf("second reads: %v", err)
		}
		if err := second.Restore(background, rules.TableID{IPVersion: 10 - v, Name: "filter"}, aChain); err != nil {
			t.Errorf("second writes the other IP version: %v", err)
		}
		if err := second.Restore(background, rules.TableID{IPVersion: v, Name: "mangle"}, []byte("*mangle\nCOMMIT\n")); err != nil {
			t.Errorf("second writes another table: %v", err)
		}
		elsewhere := testns.Options(t, testns.New(t), b)
		elsewhere.StateDir = o.StateDir
		if err := newKernel(t, elsewhere).Restore(background, id, aChain); err != nil {
			t.Errorf("another namespace: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if err := second.Restore(background, id, aChain); err != nil {
			t.Errorf("second, after the first was closed: %v", err)
		}
	})
}

// The other one is another process, and dies: its lock dies with it.
func TestKernelOtherWriterDies(t *testing.T) {
	ns := testns.New(t)
	o := testns.Options(t, ns, dataplane.NFT)
	k := newKernel(t, o)
	var st unix.Stat_t
	if err := unix.Stat(ns, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.StateDir, fmt.Sprintf("net-%d-4-filter.lock", st.Ino))
	pid, release := stranger(t, path)
	// It has not said who it is; the kernel knows.
	re := restoreError(t, k.Restore(background, filter, aChain))
	if want := fmt.Sprintf("table filter is held by pid %d", pid); re.Reason != want {
		t.Errorf("%v, want %s", re, want)
	}
	if err := os.WriteFile(path, []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	re = restoreError(t, k.Restore(background, filter, aChain))
	if want := "table filter is held by pid 4711"; re.Reason != want {
		t.Errorf("%v, want %s", re, want)
	}
	release()
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(path)
	st1, _ := os.Stat(path)
	if err != nil || string(text) != fmt.Sprintf("%d\n", os.Getpid()) || st1.Mode().Perm()&0o022 != 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// Nothing is left behind, and a folder that cannot be made is named.
func TestKernelStateDir(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.NFT)
	o.StateDir = filepath.Join(t.TempDir(), "a", "b")
	k, err := dataplane.NewKernel(background, o)
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(o.StateDir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(o.StateDir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.StateDir = filepath.Join(file, "dir")
	re := restoreError(t, newKernel(t, o).Restore(background, filter, aChain))
	if re.Class != dataplane.Unavailable || !strings.HasPrefix(re.Reason, "table filter cannot be held: ") || !strings.Contains(re.Reason, "not a directory") {
		t.Errorf("%v", re)
	}
}
