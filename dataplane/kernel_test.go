// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

var background = context.Background()

func restoreError(t *testing.T, err error) *dataplane.RestoreError {
	t.Helper()
	var re *dataplane.RestoreError
	if !errors.As(err, &re) {
		t.Fatalf("got %v, want a RestoreError", err)
	}
	return re
}

func TestKernelRestoreAndRead(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		input := "*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n:INPUT DROP [0:0]\n-A tw-a -p tcp -m tcp --dport 22 -j ACCEPT\n" +
			"-A tw-a -g tw-b\n-A INPUT -j tw-a\nCOMMIT"
		if err := k.Restore(background, id, []byte(input)); err != nil {
			t.Fatal(err)
		}
		snap, err := k.Read(background, id, "tw-a")
		if err != nil {
			t.Fatal(err)
		}
		a := snap.Chains["tw-a"]
		if got := []string{a.Rules[0].Text, a.Rules[1].Text}; !a.Full || !slices.Equal(got, []string{"-p tcp -m tcp --dport 22 -j ACCEPT", "-g tw-b"}) {
			t.Errorf("tw-a: full %v, %q", a.Full, got)
		}
		in, found := snap.Chains["INPUT"]
		if found != (b == dataplane.Legacy) || found && (in.Full || in.Rules != nil || in.Policy != "DROP" || !slices.Equal(in.Jumps, []string{"tw-a"})) {
			t.Errorf("INPUT: %+v", in)
		}
		again, err := k.Read(background, id)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range again.Chains {
			before, found := snap.Chains[name]
			if !c.Full || found && c.Digest != before.Digest {
				t.Errorf("%s: full %v, digest %x, before %x", name, c.Full, c.Digest, before.Digest)
			}
		}
		if info := k.Info(); info.Backend != string(b) || info.Version == "" || !slices.Contains(info.Extensions, "REJECT") {
			t.Errorf("info %+v", info)
		}
	})
}

// The generation is the kernel's: it tells whether anybody has committed anything.
func TestKernelGeneration(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		generation := func() uint64 {
			snap, err := k.Read(background, id)
			if err != nil {
				t.Fatal(err)
			}
			return snap.Generation
		}
		before := generation()
		if err := k.Restore(background, id, []byte("*filter\n:tw-a - [0:0]\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		after := generation()
		if b == dataplane.Legacy {
			if before != 0 || after != 0 {
				t.Errorf("legacy has a generation: %d, %d", before, after)
			}
			return
		}
		if before == 0 || after <= before || generation() != after {
			t.Errorf("generation %d, after a commit %d, then %d", before, after, generation())
		}
	})
}

// Different tables are written at the same time, while others are read.
func TestKernelConcurrent(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		var wg sync.WaitGroup
		for _, table := range []string{"filter", "nat", "mangle"} {
			id := rules.TableID{IPVersion: v, Name: table}
			wg.Go(func() {
				for i := range 10 {
					block := fmt.Sprintf("*%s\n:tw-a - [0:0]\n-A tw-a -p tcp -m tcp --dport %d -j ACCEPT\nCOMMIT\n", table, i+1)
					if err := k.Restore(background, id, []byte(block)); err != nil {
						t.Error(err)
						return
					}
					snap, err := k.Read(background, id)
					if err != nil {
						t.Error(err)
						return
					}
					want := fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", i+1)
					if c := snap.Chains["tw-a"]; len(c.Rules) != 1 || c.Rules[0].Text != want {
						t.Errorf("%s: %+v, want %s", id, c.Rules, want)
					}
				}
			})
		}
		wg.Wait()
	})
}

// Every table that was never touched reads as its built-in chains.
func TestKernelReadsFreshTables(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for _, table := range []string{"filter", "nat", "mangle", "raw"} {
			id := rules.TableID{IPVersion: v, Name: table}
			if diff := cmp.Diff(render(t, dataplane.NewSim(b), id), render(t, k, id)); diff != "" {
				t.Errorf("%s:\n%s", id, diff)
			}
		}
		_, err := k.Read(background, rules.TableID{IPVersion: v, Name: "nosuch"})
		if re := restoreError(t, err); re.Class != dataplane.Unavailable {
			t.Errorf("unknown table: %v", re)
		}
	})
}

func TestKernelCanon(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		address, list, listed := "-s 10.0.0.5/24 -j ACCEPT", "-s 10.0.0.1,10.0.0.2 -j tw-x", rules.Canon{"-s 10.0.0.1/32 -j tw-x", "-s 10.0.0.2/32 -j tw-x"}
		masked := rules.Canon{"-s 10.0.0.0/24 -j ACCEPT"}
		if v == rules.IPv6 {
			address, masked = "-s 2001:DB8::5/64 -j ACCEPT", rules.Canon{"-s 2001:db8::/64 -j ACCEPT"}
			list, listed = "-s 2001:db8::1,2001:db8::2 -j tw-x", rules.Canon{"-s 2001:db8::1/128 -j tw-x", "-s 2001:db8::2/128 -j tw-x"}
		}
		cases := []struct {
			rule string
			want rules.Canon
		}{
			{"-p tcp --dport 80 -j ACCEPT", rules.Canon{"-p tcp -m tcp --dport 80 -j ACCEPT"}},
			{address, masked},
			{list, listed},
			{"-j REJECT --reject-with nosuch", nil},
			{"-p tcp --bogus", nil},
			{"-j MASQUERADE", nil}, // refused by the kernel: legacy names no line
			{"-m set --match-set tw-set src -j DROP", rules.Canon{"-m set --match-set tw-set src -j DROP"}},
			{"-g tw-y", rules.Canon{"-g tw-y"}},
			{"-j IDLETIMER --timeout 9 --label l", rules.Canon{"-j IDLETIMER --timeout 9 --label l"}}, // not tried
			{"-m comment --comment \"two words\" -j tw-x", rules.Canon{"-m comment --comment \"two words\" -j tw-x"}},
		}
		for range 2 { // asked, then remembered
			var rs []rules.Rule
			var want []rules.Canon
			for _, c := range cases {
				rs = append(rs, rules.MustParseRule(c.rule))
				want = append(want, c.want)
			}
			got, err := k.Canon(background, id, rs)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("canon (-want +got):\n%s", diff)
			}
		}
		// The live namespace has seen nothing of it.
		if diff := cmp.Diff(render(t, dataplane.NewSim(b), id), render(t, k, id)); diff != "" {
			t.Errorf("after Canon:\n%s", diff)
		}
	})
}

// More rules than a scratch namespace is given at once, and than it may hold.
func TestKernelCanonMany(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "mangle"}
		var rs []rules.Rule
		for i := range 620 {
			rs = append(rs, rules.MustParseRule(fmt.Sprintf("-p tcp --dport %d -j ACCEPT", i+1)))
		}
		got, err := k.Canon(background, id, rs)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range got {
			if want := fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", i+1); len(c) != 1 || c[0] != want {
				t.Fatalf("rule %d: %q, want %q", i, c, want)
			}
		}
	})
}
