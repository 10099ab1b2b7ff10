// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
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
		k.canon.scratch = &scratch{holder: h, dir: dir, lockFile: filepath.Join(dir, "lock"), sets: make(map[setKey]setState)}
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

// A holder that was killed says nothing about rules: the error passes, and the next Canon
// has a namespace again.
func TestCanonHolderDies(t *testing.T) {
	k, err := NewKernel(context.Background(), Options{Backend: NFT})
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	h, err := newHolder()
	if err != nil {
		t.Skipf("no user namespace: %v", err)
	}
	k.canon.scratch = &scratch{holder: h, dir: t.TempDir(), sets: make(map[setKey]setState)}
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for k.canon.scratch.alive() {
		runtime.Gosched()
	}
	rs := []rules.Rule{rules.MustParseRule("-p tcp --dport 80 -j ACCEPT")}
	_, err = k.Canon(context.Background(), filter4, rs)
	var re *RestoreError
	if !errors.As(err, &re) || re.Class != Busy {
		t.Errorf("got %v", err)
	}
	got, err := k.Canon(context.Background(), filter4, rs)
	if err != nil || len(got[0]) != 1 || got[0][0] != "-p tcp -m tcp --dport 80 -j ACCEPT" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestParseSets(t *testing.T) {
	text := "Name: a\nType: hash:net\nRevision: 7\nHeader: family inet hashsize 1024 maxelem 65536 counters bucketsize 12 initval 0xb9825a02\n" +
		"Size in memory: 456\nReferences: 0\nNumber of entries: 0\n\n" +
		"Name: b\nType: bitmap:port\nRevision: 3\nHeader: range 0-100\n\n" +
		"Name: c\nType: list:set\nRevision: 3\nHeader: size 8\n\n" +
		"Name: d\nType: hash:ip,port\nRevision: 7\nHeader: family inet6 hashsize 1024 maxelem 65536 timeout 5 comment bucketsize 12\n"
	want := liveSets{
		"a": {"hash:net", "family", "inet", "counters"}, "b": {"bitmap:port", "range", "0-100"},
		"c": {"list:set"}, "d": {"hash:ip,port", "family", "inet6", "timeout", "5", "comment"},
	}
	if diff := cmp.Diff(want, parseSets(text)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMissingCapability(t *testing.T) {
	status := "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffdfff\nCapAmb:\t0000000000003000\n"
	for uid, want := range map[int]string{0: "CAP_NET_RAW", 1000: ""} {
		if got := missingCapability(status, uid); got != want {
			t.Errorf("user %d: %q, want %q", uid, got, want)
		}
	}
	if got := missingCapability("CapAmb:\t0000000000000000\n", 1); got != "CAP_NET_ADMIN" {
		t.Errorf("got %q", got)
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
