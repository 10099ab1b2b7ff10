// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
)

var (
	filter4 = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	nat4    = rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
)

func mustLoad(t testing.TB, s *Sim, input string) {
	t.Helper()
	if err := s.Load(rules.IPv4, []byte(input)); err != nil {
		t.Fatalf("load: %v", err)
	}
}

func classOf(err error) Class {
	var re *RestoreError
	if errors.As(err, &re) {
		return re.Class
	}
	return 0
}

func TestSimSave(t *testing.T) {
	s := NewSim(NFT)
	mustLoad(t, s, "*nat\n:PREROUTING DROP [0:0]\n:z - [0:0]\n:a - [0:0]\n-A z -j a\n-A a\n[1:2] -A PREROUTING -m comment --comment \"two  words\" -j z\nCOMMIT\n")
	want := "*nat\n:PREROUTING DROP [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n:a - [0:0]\n:z - [0:0]\n" +
		"-A PREROUTING -m comment --comment \"two  words\" -j z\n-A a\n-A z -j a\nCOMMIT\n"
	if diff := cmp.Diff(want, s.Save(nat4)); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Read(context.Background(), filter4); err != nil {
		t.Fatal(err)
	}
	if err := s.Load(rules.IPv6, []byte("*filter\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	empty := "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
	if diff := cmp.Diff("# 4/filter\n"+empty+"# 4/nat\n"+want+"# 6/filter\n"+empty, s.String()); diff != "" {
		t.Error(diff)
	}
}

// Blocks of one input stand alone: those before a refused one stay.
func TestSimAppliesTableByTable(t *testing.T) {
	for _, b := range []Backend{NFT, Legacy} {
		s := NewSim(b)
		err := s.Load(rules.IPv4, []byte("*filter\n:x - [0:0]\nCOMMIT\n*nat\n:y - [0:0]\n-A nope -j y\nCOMMIT\n"))
		var re *RestoreError
		if !errors.As(err, &re) || re.Class != Rejected || re.Line != 6 || re.Text != "-A nope -j y" {
			t.Errorf("%s: %+v", b, re)
		}
		if !strings.Contains(s.Save(filter4), ":x - [0:0]") || strings.Contains(s.Save(nat4), ":y") {
			t.Errorf("%s:\n%s", b, s)
		}
	}
}

func TestSimHook(t *testing.T) {
	s := NewSim(NFT)
	injected := &RestoreError{Class: Busy, Reason: "injected"}
	var calls []string
	s.Hook = func(c Call) error {
		calls = append(calls, fmt.Sprintf("%s %s %d", c.Op, c.Table, len(c.Input)))
		if c.Op == OpRestore {
			return injected
		}
		return nil
	}
	block := "*filter\n:x - [0:0]\nCOMMIT\n"
	if err := s.Restore(context.Background(), filter4, []byte(block)); err != injected {
		t.Errorf("restore: %v", err)
	}
	mustLoad(t, s, "*filter\n:y - [0:0]\nCOMMIT\n") // past the hook
	snap, err := s.Read(context.Background(), filter4)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := snap.Chains["x"]; ok || len(snap.Chains) != 4 {
		t.Errorf("chains %v", snap.Chains)
	}
	canon, err := s.Canon(context.Background(), filter4, []rules.Rule{
		rules.MustParseRule("-p tcp  -j  ACCEPT"), rules.MustParseRule("--bogus"), rules.MustParseRule("-j MASQUERADE"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]rules.Canon{{"-p tcp -j ACCEPT"}, nil, nil}, canon); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"restore 4/filter 26", "read 4/filter 0", "canon 4/filter 0"}, calls); diff != "" {
		t.Error(diff)
	}
}

func TestSimReplaceTable(t *testing.T) {
	s := NewSim(Legacy)
	mustLoad(t, s, "*filter\n:x - [0:0]\n:INPUT DROP [0:0]\n-A INPUT -j x\nCOMMIT\n")
	text := "*filter\n:INPUT ACCEPT [5:6]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n:y - [0:0]\n-A FORWARD -j y\nCOMMIT\n"
	if err := s.ReplaceTable(filter4, text); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.ReplaceAll(text, "5:6", "0:0"), s.Save(filter4)); diff != "" {
		t.Error(diff)
	}
	before := s.Save(filter4)
	if err := s.ReplaceTable(filter4, "*filter\n-A nope -j ACCEPT\nCOMMIT\n"); classOf(err) != Rejected {
		t.Errorf("bad text: %v", err)
	}
	if err := s.ReplaceTable(filter4, "*nat\nCOMMIT\n"); err == nil {
		t.Error("another table's text was taken")
	}
	if s.Save(filter4) != before {
		t.Error("a refused text has changed the table")
	}
	// References hold in the table that was taken over.
	if err := s.Load(rules.IPv4, []byte("*filter\n-X y\nCOMMIT\n")); classOf(err) != Rejected {
		t.Errorf("-X of a referenced chain: %v", err)
	}
}

func TestSimSets(t *testing.T) {
	s := NewSim(NFT)
	block := []byte("*filter\n-A INPUT -m set --match-set tw-s src -j DROP\nCOMMIT\n")
	s.AddSet(rules.IPv6, "tw-s")
	if err := s.Restore(context.Background(), filter4, block); classOf(err) != Rejected {
		t.Errorf("set of the other family: %v", err)
	}
	s.AddSet(rules.IPv4, "tw-s")
	if err := s.Restore(context.Background(), filter4, block); err != nil {
		t.Error(err)
	}
	s.RemoveSet(rules.IPv4, "tw-s")
	if err := s.Restore(context.Background(), filter4, block); classOf(err) != Rejected {
		t.Errorf("set removed: %v", err)
	}
}

func TestSimReadChains(t *testing.T) {
	s := NewSim(NFT)
	mustLoad(t, s, "*filter\n:x - [0:0]\n:y - [0:0]\n-A x -j y\n-A y -j ACCEPT\nCOMMIT\n")
	read := func(chains ...string) rules.Snapshot {
		snap, err := s.Read(context.Background(), filter4, chains...)
		if err != nil {
			t.Fatal(err)
		}
		return snap
	}
	one, all := read("y"), read()
	if one.Chains["x"].Full || !one.Chains["y"].Full || one.Chains["x"].Digest != all.Chains["x"].Digest {
		t.Errorf("%+v", one)
	}
	if diff := cmp.Diff([]string{"y"}, one.Chains["x"].Jumps); diff != "" {
		t.Error(diff)
	}
	generation := all.Generation
	mustLoad(t, s, "*filter\n-A y -j DROP\nCOMMIT\n")
	changed := read()
	if changed.Generation != generation+1 || changed.Chains["y"].Digest == all.Chains["y"].Digest {
		t.Errorf("generation %d after %d", changed.Generation, generation)
	}
	mustLoad(t, s, "*filter\n-D y -j DROP\nCOMMIT\n")
	if back := read(); back.Chains["y"].Digest != all.Chains["y"].Digest {
		t.Error("equal content has another digest")
	}
}

func TestSimConcurrent(t *testing.T) {
	s := NewSim(NFT)
	var wg sync.WaitGroup
	for _, table := range []string{"filter", "nat", "mangle", "filter"} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			id := rules.TableID{IPVersion: v, Name: table}
			wg.Go(func() {
				for i := range 50 {
					s.AddSet(v, fmt.Sprint(i))
					block := fmt.Sprintf("*%s\n:c%d - [0:0]\n-A c%d -m set --match-set %d src -j ACCEPT\nCOMMIT\n", table, i, i, i)
					if err := s.Restore(context.Background(), id, []byte(block)); err != nil {
						t.Error(err)
					}
					if _, err := s.Read(context.Background(), id); err != nil {
						t.Error(err)
					}
					_ = s.String()
				}
			})
		}
	}
	wg.Wait()
}

// What a block changes in place is undone if it is refused, and what is kept for speed is
// what could be derived.
func TestSimUndo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSim(rapid.SampledFrom([]Backend{NFT, Legacy}).Draw(t, "backend"))
		tb := s.table(nat4)
		name := rapid.SampledFrom([]string{"a", "b", "c", "OUTPUT", "POSTROUTING"})
		target := rapid.SampledFrom([]string{"a", "b", "c", "ACCEPT", "RETURN", "MASQUERADE", "d"})
		line := rapid.Custom(func(t *rapid.T) string {
			n, to := name.Draw(t, "chain"), target.Draw(t, "target")
			return rapid.SampledFrom([]string{
				":" + n + " - [0:0]", ":" + n + " - [0:0]", "-N " + n, "-A " + n + " -j " + to, "-A " + n + " -p tcp -j " + to,
				"-A " + n + " -j " + to, "-I " + n + " -g " + to, "-I " + n + " 2 -j " + to, "-R " + n + " 1 -j " + to,
				"-D " + n + " 1", "-D " + n + " -j " + to, "-F " + n, "-X " + n, "-E " + n + " d", "-E d " + n, "-F", "-P OUTPUT DROP",
			}).Draw(t, "line")
		})
		for range 30 {
			before := tb.save()
			lines := rapid.SliceOfN(line, 1, 6).Draw(t, "lines")
			err := s.Load(rules.IPv4, []byte("*nat\n"+strings.Join(lines, "\n")+"\nCOMMIT\n"))
			if err != nil && tb.save() != before {
				t.Fatalf("%v, and the table has changed:\n%s\nfrom\n%s", err, tb.save(), before)
			}
			checkTable(t, tb)
		}
	})
}

// checkTable derives from the chains what a table keeps.
func checkTable(t *rapid.T, tb *simTable) {
	refs := make(map[string]map[string]int)
	hooked := 0
	for name, c := range tb.chains {
		ends, ch := 0, 0
		if c.name != name {
			t.Fatalf("chain %s is kept as %s", c.name, name)
		}
		for _, e := range c.rules {
			switch {
			case e.dead:
				t.Fatalf("a dead rule in %s", name)
			case e.jump && tb.chains[e.target] == nil:
				t.Fatalf("%s jumps to %s, which is not there", name, e.target)
			case e.jump && refs[e.target] == nil:
				refs[e.target] = make(map[string]int)
			}
			if e.jump {
				refs[e.target][name]++
			}
			if e.forbid != 0 {
				ch++
			}
			if e.unconditional {
				ends++
			}
		}
		if hooked += ch; ends != c.ends || ch != c.hooked {
			t.Fatalf("%s: ends %d, kept %d; hooked %d, kept %d", name, ends, c.ends, ch, c.hooked)
		}
	}
	kept := make(map[string]map[string]int)
	for name, from := range tb.refs {
		kept[name] = make(map[string]int)
		for c, n := range from {
			kept[name][c.name] = n
		}
	}
	if !maps.EqualFunc(refs, kept, maps.Equal) || hooked != tb.hooked {
		t.Fatalf("references %v, kept %v; hooked %d, kept %d", refs, kept, hooked, tb.hooked)
	}
}
