// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
)

// The same namespace has the same identity and folder in each Kernel; another one has another
// identity, even if it gets the number of one that has ended.
func TestIdentity(t *testing.T) {
	open := func(path string) *dataplane.Kernel {
		t.Helper()
		k, err := dataplane.NewKernel(context.Background(), testns.Options(t, path, dataplane.NFT))
		if err != nil {
			t.Skipf("no kernel: %v", err)
		}
		t.Cleanup(func() { _ = k.Close() })
		return k
	}
	path := testns.New(t)
	one, same := open(path), open(path)
	if one.Identity() == "" || one.Identity() != same.Identity() {
		t.Errorf("one namespace: %q and %q", one.Identity(), same.Identity())
	}
	seen := map[string]bool{one.Identity(): true}
	for range 5 {
		f, err := testns.Open()
		if err != nil {
			t.Fatal(err)
		}
		id := open(testns.Path(f)).Identity()
		f.Close()
		if seen[id] {
			t.Errorf("%q twice", id)
		}
		seen[id] = true
	}
	dir, err := one.StateDir()
	if err != nil || dir == "" {
		t.Errorf("folder %q: %v", dir, err)
	}
}
