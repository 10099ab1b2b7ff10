// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tableward/tableward/rules"
)

// tryTwo has one rule of two refused.
var tryTwo = Batch{Chains: []rules.Chain{{Name: "tw-a", Rules: []rules.Rule{
	rules.MustParseRule("-p tcp -j ACCEPT"), rules.MustParseRule("-p tcp --bogus"),
}}}}

func tryKernel(t *testing.T, o Options) *Kernel {
	t.Helper()
	o.StateDir = t.TempDir()
	k, err := NewKernel(context.Background(), o)
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func mustTry(t *testing.T, k *Kernel) {
	t.Helper()
	trial, err := k.Try(context.Background(), filter4, tryTwo)
	if err != nil {
		t.Fatal(err)
	}
	if v := trial.Verdicts; len(v) != 1 || v[0].Index != 1 || v[0].Err == nil {
		t.Errorf("%+v", v)
	}
}

// A tool that was killed while it waited, or just when it was given a block, says nothing
// about rules: they are tried in another namespace.
func TestTryAfterKill(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		k := tryKernel(t, Options{Backend: b})
		good := Batch{Chains: []rules.Chain{{Name: "tw-a", Rules: tryTwo.Chains[0].Rules[:1]}}}
		if _, err := k.Try(context.Background(), filter4, good); err != nil {
			t.Skipf("no scratch namespace: %v", err)
		}
		for i := range 20 {
			if len(k.rooms.idle) != 1 || k.rooms.idle[0].tools[4] == nil {
				t.Fatalf("no tool is kept: %+v", k.rooms.idle)
			}
			p := k.rooms.idle[0].tools[4]
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				<-p.ended
			}
			trial, err := k.Try(context.Background(), filter4, good)
			if err != nil || len(trial.Verdicts) > 0 {
				t.Fatalf("%s: %+v, %v", b, trial, err)
			}
		}
		mustTry(t, k)
	}
}

// A holder that was killed takes its namespace with it; there are others.
func TestTryHolderDies(t *testing.T) {
	k := tryKernel(t, Options{Backend: NFT})
	h, err := newHolder()
	if err != nil {
		t.Skipf("no user namespace: %v", err)
	}
	r, err := k.newRoom()
	if err != nil {
		t.Skipf("no scratch namespace: %v", err)
	}
	_ = r.s.ns.close()
	r.s.ns, r.s.holder, r.sends = nil, h, 1
	k.leaveRoom(r)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	mustTry(t, k)
}

// In a user namespace of its own everything is the same.
func TestTryInUserNamespace(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		k := tryKernel(t, Options{Backend: b})
		h, err := newHolder()
		if err != nil {
			t.Skipf("no user namespace: %v", err)
		}
		r, err := k.newRoom()
		if err != nil {
			t.Skipf("no scratch namespace: %v", err)
		}
		_ = r.s.ns.close()
		r.s.ns, r.s.holder = nil, h
		k.leaveRoom(r)
		for range 2 {
			mustTry(t, k)
		}
		if len(k.rooms.idle) != 1 || k.rooms.idle[0] != r {
			t.Errorf("%s: another namespace was used", b)
		}
	}
}

// A tool that prints nothing before it ends is not kept open, and its answers count.
func TestTrySilentTool(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'fake v1 (nf_tables)'; exit 0; }\n" +
		"in=$(cat)\ncase $in in *bogus*) echo 'iptables-nft-restore v1 (nf_tables): unknown option \"--bogus\"' >&2\n" +
		"echo Error occurred at line: $(echo \"$in\" | grep -n bogus | cut -d: -f1) >&2; echo \"$in\" | grep -m 1 '^#'; exit 2;; esac\n" +
		"echo \"$in\" | grep '^#'\n"
	for _, name := range []string{"iptables-nft-restore", "iptables-nft-save", "iptables"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := tryKernel(t, Options{ToolDir: dir})
	k.rooms.echoWait = 1
	if _, err := k.Try(context.Background(), filter4, Batch{}); err != nil {
		t.Skipf("no scratch namespace: %v", err)
	}
	for range 2 {
		mustTry(t, k)
		if !k.rooms.silent.Load() {
			t.Error("it is taken to echo at once")
		}
		if slices.ContainsFunc(k.rooms.idle, func(r *room) bool { return len(r.tools) > 0 }) {
			t.Error("it is kept open")
		}
	}
}

// A room that has grown is left for a new one.
func TestTryLeavesGrownRooms(t *testing.T) {
	k := tryKernel(t, Options{Backend: NFT})
	r, err := k.newRoom()
	if err != nil {
		t.Skipf("no scratch namespace: %v", err)
	}
	r.reached = maxReached + 1
	k.leaveRoom(r)
	mustTry(t, k)
	if len(k.rooms.idle) != 1 || k.rooms.idle[0] == r || !r.spoilt {
		t.Errorf("%+v", k.rooms.idle)
	}
}
