// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
)

// What the runtime asks of a dataplane, which both kernels answer.
type looked interface {
	Pulse(context.Context, rules.TableID) (uint64, error)
	Scan(context.Context, rules.TableID, ...string) (rules.Snapshot, error)
	Expect(context.Context, rules.TableID, []rules.Chain) (map[string]rules.SavedChain, error)
	CanEdit(context.Context, rules.TableID) bool
}

var _ looked = (*Sim)(nil)

const simSeed = "*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n:tw-c - [0:0]\n:INPUT DROP [0:0]\n-A tw-a -p tcp -j tw-b\n-A tw-a -s 10.0.0.1 -g tw-c\n" +
	"-A tw-a -p tcp -j tw-b\n-A tw-b -s 10.0.0.1/32 -g tw-c\n-A INPUT -j tw-a\nCOMMIT\n"

func simScan(t *testing.T, s *Sim, chains ...string) rules.Snapshot {
	t.Helper()
	snap, err := s.Scan(context.Background(), filter4, chains...)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// Scan has of a chain what Read has, but for its rules, and a digest of another kind.
func TestSimScan(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		s := NewSim(b)
		if err := s.Load(4, []byte(simSeed)); err != nil {
			t.Fatal(err)
		}
		read, err := s.Read(context.Background(), filter4)
		if err != nil {
			t.Fatal(err)
		}
		all, named := simScan(t, s), simScan(t, s, append(slices.Collect(maps.Keys(read.Chains)), "no-such-chain")...)
		for name, c := range read.Chains {
			one := named.Chains[name]
			if len(one.Digests) != len(c.Rules) || one.Digests == nil || one.Digest == c.Digest || one.Digest != all.Chains[name].Digest {
				t.Errorf("%s %s: %+v, read %+v", b, name, one, c)
			}
			one.Digests = nil
			named.Chains[name] = one
			c.Full, c.Rules, c.Digest = false, nil, one.Digest
			read.Chains[name] = c
		}
		if diff := cmp.Diff(read, all) + cmp.Diff(all, named); diff != "" {
			t.Errorf("%s:\n%s", b, diff)
		}
		d := simScan(t, s, "tw-a", "tw-b").Chains
		if a := d["tw-a"].Digests; len(d) != 2 || a[0] != a[2] || a[1] == a[0] || a[1] != d["tw-b"].Digests[0] {
			t.Errorf("%s: %+v", b, d)
		}
	}
}

// A pulse stays as it is until somebody else writes the table.
func TestSimPulse(t *testing.T) {
	ctx := context.Background()
	s := NewSim(NFT)
	nat := rules.TableID{IPVersion: 4, Name: "nat"}
	last := map[rules.TableID]uint64{}
	for _, step := range []struct {
		name    string
		do      func() error
		changed bool
	}{
		{"nothing", func() error { return nil }, true}, // from 0
		{"our block", func() error { return s.Restore(ctx, filter4, []byte(simSeed)) }, false},
		{"a foreign block", func() error { return s.Load(4, []byte("*filter\n-A tw-b -j DROP\nCOMMIT\n")) }, true},
		{"our next", func() error { return s.Restore(ctx, filter4, []byte("*filter\n-D tw-b 2\nCOMMIT\n")) }, false},
		{"a foreign table", func() error { return s.ReplaceTable(filter4, simSeed) }, true},
		{"another IP version", func() error { return s.Load(6, []byte("*filter\n:tw-a - [0:0]\nCOMMIT\n")) }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		for _, id := range []rules.TableID{filter4, nat} {
			n, err := s.Pulse(ctx, id)
			if changed := n != last[id]; err != nil || n == 0 || changed != (step.changed && (id == filter4 || last[id] == 0)) {
				t.Errorf("%s: pulse of %s %d after %d, %v", step.name, id, n, last[id], err)
			}
			last[id] = n
		}
		read, err := s.Read(ctx, filter4)
		if scan := simScan(t, s); err != nil || read.Pulse != last[filter4] || scan.Pulse != last[filter4] {
			t.Errorf("%s: pulse %d, read %d, scanned %d, %v", step.name, last[filter4], read.Pulse, scan.Pulse, err)
		}
	}
}

// What is expected of chains is what is found when they are loaded.
func TestSimExpect(t *testing.T) {
	ctx := context.Background()
	chain := func(name string, texts ...string) rules.Chain {
		c := rules.Chain{Name: name}
		for _, text := range texts {
			c.Rules = append(c.Rules, rules.MustParseRule(text))
		}
		return c
	}
	for _, b := range []Backend{NFT, Legacy} {
		s := NewSim(b)
		chains := []rules.Chain{
			chain("tw-none"), chain("tw-a", "-p tcp -j tw-b", "-s 10.0.0.1,10.0.0.2 -g tw-b", "-m set --match-set tw-s src"),
			chain("tw-bad", "-p tcp", "-p tcp --bogus"), chain("tw-timer", "-j IDLETIMER --timeout 9 --label l"), chain("tw-self", "-j tw-self"),
			chain("INPUT", "-o eth0 -j DROP"),
		}
		s.AddSet(4, "tw-s")
		if err := s.Restore(ctx, filter4, []byte("*filter\n:tw-none - [0:0]\n:tw-a - [0:0]\n:tw-b - [0:0]\n:tw-self - [0:0]\n:tw-i - [0:0]\n"+
			"-A tw-a -p tcp -j tw-b\n-A tw-a -s 10.0.0.1 -g tw-b\n-A tw-a -s 10.0.0.2 -g tw-b\n-A tw-a -m set --match-set tw-s src\n"+
			"-A tw-self -j tw-self\n-A tw-i -o eth0 -j DROP\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		s.RemoveSet(4, "tw-s")
		want := simScan(t, s, "tw-none", "tw-a", "tw-self", "tw-i").Chains
		input := want["tw-i"]
		delete(want, "tw-i")
		input.Name = "INPUT"
		want["INPUT"] = input
		s.Hook = func(Call) error { return errors.New("not to be called") }
		got, err := s.Expect(ctx, filter4, chains)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", b, err, diff)
		}
		if !s.CanEdit(ctx, filter4) {
			t.Errorf("%s: no edits", b)
		}
		s.NoScratch = true
		if _, err := s.Expect(ctx, filter4, chains); !errors.Is(err, ErrNoScratch) || s.CanEdit(ctx, filter4) {
			t.Errorf("%s without a scratch namespace: %v", b, err)
		}
	}
}

// The Hook decides over Scan and Pulse, and what has no table is an error.
func TestSimScanFails(t *testing.T) {
	ctx := context.Background()
	no := rules.TableID{IPVersion: 4, Name: "nosuch"}
	s := NewSim(NFT)
	_, e1 := s.Scan(ctx, no)
	_, e2 := s.Pulse(ctx, no)
	_, e3 := s.Expect(ctx, no, nil)
	for _, err := range []error{e1, e2, e3} {
		var re *RestoreError
		if !errors.As(err, &re) || re.Class != Unavailable {
			t.Errorf("no such table: %v", err)
		}
	}
	var ops []string
	why := errors.New("denied")
	s.Hook = func(c Call) error { ops = append(ops, c.Op.String()); return why }
	_, e1 = s.Scan(ctx, filter4)
	_, e2 = s.Pulse(ctx, filter4)
	if e1 != why || e2 != why || !slices.Equal(ops, []string{"scan", "pulse"}) {
		t.Errorf("%v, %v, %q", e1, e2, ops)
	}
}
