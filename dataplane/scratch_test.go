// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
)

// Without root the scratch namespace is held by a process in a user namespace. The Kernel of
// this test would work in the tester's own namespace; nothing but Canon is called.
func TestCanonInUserNamespace(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		k, err := NewKernel(context.Background(), Options{Backend: b})
		if err != nil {
			t.Skipf("no kernel: %v", err)
		}
		h, err := newHolder()
		if err != nil {
			t.Skipf("no user namespace: %v", err)
		}
		dir := t.TempDir()
		k.canon.scratch = &scratch{holder: h, dir: dir, lockFile: filepath.Join(dir, "lock"), sets: make(map[setKey]bool)}
		got, err := k.Canon(context.Background(), filter4, []rules.Rule{
			rules.MustParseRule("-p tcp --dport 80 -j tw-x"),
			rules.MustParseRule("-m set --match-set tw-s src -j DROP"),
			rules.MustParseRule("-p tcp --bogus"),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []rules.Canon{{"-p tcp -m tcp --dport 80 -j tw-x"}, {"-m set --match-set tw-s src -j DROP"}, nil}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", b, diff)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A tool that waits for input may be killed; one that works is given time.
func TestWorks(t *testing.T) {
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for works(cmd.Process.Pid) { // until it has come to its read
		runtime.Gosched()
	}
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if works(cmd.Process.Pid) {
		t.Error("a process that has ended works")
	}
}
