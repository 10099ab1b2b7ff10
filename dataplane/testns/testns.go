// SPDX-License-Identifier: Apache-2.0

// Package testns gives tests real kernels to work on: fresh network namespaces, which
// nobody else sees and which vanish with the test, and a dataplane.Kernel in one for each
// backend and IP version.
//
// Making a namespace takes CAP_SYS_ADMIN. Without it a test run belongs under
// "unshare -Urn", where the tester is root of a user namespace and everything works the
// same. A combination that cannot run is never passed over in silence: it is skipped with
// the reason, and counted. If the environment variable TABLEWARD_KERNEL_COUNT names a file,
// each combination appends a line to it: "nft4", "nft6", "legacy4", "legacy6" when it runs,
// "skip nft4" when it cannot;
// a test outside of the four appends "skip" and its name.
package testns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// CountFile is the environment variable that names the file of counts.
const CountFile = "TABLEWARD_KERNEL_COUNT"

// New makes a network namespace that lives as long as the test, and returns a path to it.
// It skips the test where none can be made, and counts that.
func New(t testing.TB) string {
	t.Helper()
	f, err := Open()
	if err != nil {
		name, inEach := t.Name(), false
		for _, c := range combinations {
			if strings.HasSuffix(name, "/"+c.name) {
				name, inEach = c.name, true
			}
		}
		if !inEach {
			count(t, "skip "+name)
		}
		t.Skipf("no network namespace can be made: %v; run the tests as root or under unshare -Urn", err)
	}
	t.Cleanup(func() { f.Close() })
	return Path(f)
}

// Open makes a network namespace that lives as long as the file is open.
func Open() (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result, 1)
	go func() {
		// A thread that cannot be brought back stays locked and runs nothing else.
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer home.Close()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- result{nil, err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{f, err}
	}()
	r := <-done
	return r.f, r.err
}

// Path returns a path by which any process may open the namespace.
func Path(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }

// Options returns options for a Kernel in a namespace, with a lock file and table
// locks of the test's own.
func Options(t testing.TB, path string, b dataplane.Backend) dataplane.Options {
	t.Helper()
	return dataplane.Options{
		Backend:  b,
		NetNS:    path,
		LockFile: filepath.Join(t.TempDir(), "xtables.lock"),
		LockWait: 5 * time.Second,
		StateDir: t.TempDir(),
	}
}

// Each runs f once for each backend and IP version, each time with a Kernel in a namespace
// of its own.
func Each(t *testing.T, f func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel)) {
	t.Helper()
	for _, c := range combinations {
		t.Run(c.name, func(t *testing.T) {
			ran := false
			defer func() {
				if !ran {
					count(t, "skip "+c.name)
				}
			}()
			k, err := dataplane.NewKernel(context.Background(), Options(t, New(t), c.backend))
			if err != nil {
				t.Skipf("no kernel: %v", err)
			}
			t.Cleanup(func() {
				if err := k.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			if _, err := k.Read(context.Background(), rules.TableID{IPVersion: c.version, Name: "filter"}); err != nil {
				t.Skipf("no kernel: %v", err)
			}
			ran = true
			count(t, c.name)
			f(t, c.backend, c.version, k)
		})
	}
}

var combinations = []struct {
	name    string
	backend dataplane.Backend
	version rules.IPVersion
}{
	{"nft4", dataplane.NFT, rules.IPv4},
	{"nft6", dataplane.NFT, rules.IPv6},
	{"legacy4", dataplane.Legacy, rules.IPv4},
	{"legacy6", dataplane.Legacy, rules.IPv6},
}

func count(t testing.TB, line string) {
	t.Helper()
	path := os.Getenv(CountFile)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Errorf("count: %v", err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		t.Errorf("count: %v", err)
	}
}
