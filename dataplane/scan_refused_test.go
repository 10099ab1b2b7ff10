// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// withoutCapabilities calls f on a thread in a namespace of its own that lacks capabilities. The
// thread is brought back afterwards: it may be the first one of the process, which never ends.
func withoutCapabilities(t *testing.T, capabilities []int, f func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- lacking(capabilities, f)
	}()
	if err := <-done; err != nil {
		t.Skipf("no thread without capabilities: %v", err)
	}
}

// lacking is called on a locked thread, and unlocks it when all is as before.
func lacking(capabilities []int, f func()) error {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	if err := unix.Capget(&header, &all[0]); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	defer func() {
		if unix.Capset(&header, &all[0]) == nil && unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	some := all
	for _, c := range capabilities {
		some[c/32].Effective &^= 1 << (c % 32)
	}
	if err := unix.Capset(&header, &some[0]); err != nil {
		return err
	}
	f()
	return nil
}

// Of the capabilities that the tools need a scan needs one. Where it is missing the error says
// so, and that Read must do.
func TestScanCapabilities(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		scan := func() error {
			var wg sync.WaitGroup
			r := &reader{ns: &namespace{}, settled: new(atomic.Uint64), wg: &wg, inet: -1, inet6: -1}
			defer wg.Wait()
			defer r.close()
			_, err := r.scan(context.Background(), b, filter4, nil)
			return err
		}
		withoutCapabilities(t, []int{unix.CAP_NET_RAW}, func() {
			if err := scan(); err != nil {
				t.Errorf("%s without CAP_NET_RAW: %v", b, err)
			}
		})
		withoutCapabilities(t, []int{unix.CAP_NET_ADMIN}, func() {
			err := scanError(context.Background(), filter4, scan())
			var re *RestoreError
			if !errors.As(err, &re) || re.Class != Unavailable || !errors.Is(err, os.ErrPermission) || !strings.Contains(re.Reason, "CAP_NET_ADMIN") {
				t.Errorf("%s without CAP_NET_ADMIN: %+v", b, err)
			}
		})
	}
}

// Whoever has to wait for somebody else's commit waits no longer than wanted.
func TestScanWaitsNoLonger(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	// A pipe that is full takes no request, as a socket does not while a commit is made.
	size, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(pipe[1], make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no more time")
	cancel(why)
	r := &reader{nl: &netfilter{fd: pipe[1]}, wg: &wg, inet: -1, inet6: -1}
	s := nftScan{reader: r, ctx: ctx, id: filter4}
	if err := s.settle(); !errors.Is(err, why) || !r.broken || r.nl != nil {
		t.Errorf("%v, reader %+v", err, r)
	}
	r.close()
	// Now the commit ends.
	unix.Close(pipe[0])
	wg.Wait()
}

// What a failed scan means for its caller.
func TestScanErrors(t *testing.T) {
	id := rules.TableID{IPVersion: 6, Name: "nat"}
	for err, want := range map[error]Class{
		errChanged: Busy, unix.ENOMEM: Busy, unix.EMFILE: Busy,
		unix.ENOENT: Unavailable, unix.ENOPROTOOPT: Unavailable, unix.EAFNOSUPPORT: Unavailable, errNotUnderstood: Unavailable,
	} {
		got := scanError(context.Background(), id, &brokenError{err})
		var re *RestoreError
		if !errors.As(got, &re) || re.Class != want || !errors.Is(got, err) || !strings.Contains(re.Reason, "6/nat") {
			t.Errorf("%v: %+v, want %v", err, got, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var re *RestoreError
	if err := scanError(ctx, id, errChanged); !errors.As(err, &re) || re.Class != Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("at the end of the context: %+v", err)
	}
}

// What is kept for scans is given back.
func TestScanCloses(t *testing.T) {
	before := sockets(t)
	for _, b := range []Backend{NFT, Legacy} {
		ns, err := newNamespace()
		if err != nil {
			t.Skipf("no namespace: %v", err)
		}
		var s scanner
		for range 2 { // with the socket that is kept
			r := s.take(ns)
			if _, err := r.scan(context.Background(), b, filter4, nil); err != nil {
				t.Error(err)
			}
			s.give(r)
		}
		one, two := s.take(ns), s.take(ns)
		if one == two || one.nl == nil && one.inet < 0 {
			t.Errorf("%s: %+v was not kept", b, one)
		}
		two.broken = true
		s.give(one)
		s.give(two)
		if got := sockets(t); got != before+1 {
			t.Errorf("%s: %d sockets are open, want one more than %d", b, got, before)
		}
		s.close()
		if got := sockets(t); got != before {
			t.Errorf("%s: %d sockets are open, want %d", b, got, before)
		}
		ns.close()
	}
}

// sockets counts the process's sockets.
func sockets(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
