// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

func (k scanning) read(table string, chains ...string) rules.Snapshot {
	k.t.Helper()
	snap, err := k.Read(background, k.id(table), chains...)
	if err != nil {
		k.t.Fatal(err)
	}
	return snap
}

// chainsRead compares chains that were read by their names with what a save has of them. Only
// on nft those that were not named are left out, if there are few names.
func chainsRead(t *testing.T, b dataplane.Backend, k scanning, table string, all rules.Snapshot, names []string) {
	t.Helper()
	got := k.read(table, names...)
	if got.Generation != all.Generation {
		t.Errorf("%s: generation %d, want %d", table, got.Generation, all.Generation)
	}
	for _, name := range names {
		have, found := got.Chains[name]
		want, exists := all.Chains[name]
		if found != exists || !reflect.DeepEqual(have, want) {
			t.Errorf("%s %s:\n%+v, in full\n%+v", table, name, have, want)
		}
	}
	for name := range got.Chains {
		if b == dataplane.NFT && len(names) <= 50 && !slices.Contains(names, name) {
			t.Errorf("%s %s was not named", table, name)
		}
	}
}

// A chain that is read by its name is what it is in a save of the table, whatever its rules.
func TestReadNamed(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		k.loadSamples(samples(t, b, k.v))
		k.load("filter", ":INPUT DROP [0:0]; -A INPUT -p tcp; :it's - [0:0]; :ümlaut - [0:0]; :1 - [0:0]; -A ümlaut -j it's; -A 1 -j ACCEPT -c 5 500; "+
			`:tw-empty - [0:0]; -A it's -m comment --comment "a \"b\" \\ c's #x"; -A it's -m comment --comment ""; -A it's -m comment --comment "-N tw-empty"`)
		for _, table := range allTables {
			all := k.read(table)
			names := append(slices.Sorted(maps.Keys(all.Chains)), "no-such-chain", "", "-F", strings.Repeat("x", 29))
			for part := range slices.Chunk(names, 45) {
				chainsRead(t, b, k, table, all, part)
			}
			chainsRead(t, b, k, table, all, names[max(0, len(names)-51):])
			chainsRead(t, b, k, table, all, []string{"no-such-chain"})
		}
	})
}

// What is read of a table that somebody changes all the time is of one state.
func TestReadNamedIsOneState(t *testing.T) {
	k := newScanning(t, dataplane.NFT, 4) // iptables-legacy-save sees to no such thing
	names := []string{"tw-a", "tw-b", "INPUT"}
	read := func() map[string]rules.SavedChain {
		got := k.read("filter", names...).Chains
		maps.DeleteFunc(got, func(name string, _ rules.SavedChain) bool { return !slices.Contains(names, name) })
		for name, c := range got {
			c.Policy = "" // the kernel counts the generation before the new policies hold
			got[name] = c
		}
		return got
	}
	var want []map[string]rules.SavedChain
	write := ""
	for _, s := range writerStates(3) {
		k.load("filter", s)
		want = append(want, read())
		write += block("filter", forFamily(k.v, s))
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- k.writeUntil(stop, strings.Repeat(write, 3)) }()
	for range 10 {
		got := read()
		if !slices.ContainsFunc(want, func(w map[string]rules.SavedChain) bool { return reflect.DeepEqual(w, got) }) {
			t.Errorf("neither state: %+v", got)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// In a table that holds what only nft can show, chains that do not can be read.
func TestReadNamedBesideIncompatible(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft")
	}
	k := newScanning(t, dataplane.NFT, 4)
	k.load("filter", ":tw-a - [0:0]; -A tw-a -p tcp -j DROP")
	want := k.read("filter")
	k.nft("add chain ip filter FOREIGN", "add rule ip filter FOREIGN meta mark set numgen inc mod 3")
	got := k.read("filter", "tw-a", "INPUT", "no-such-chain")
	if len(got.Chains) != 2 || !reflect.DeepEqual(got.Chains["tw-a"], want.Chains["tw-a"]) || !reflect.DeepEqual(got.Chains["INPUT"], want.Chains["INPUT"]) {
		t.Errorf("%+v, before %+v", got, want)
	}
	if _, err := k.Read(background, k.id("filter"), "tw-a", "FOREIGN"); !errors.Is(err, dataplane.ErrIncompatible) {
		t.Errorf("the other chain: %v", err)
	}
}

// Without the tool of one command, or with one that may be of another release, a save is read.
func TestReadNamedByOtherTools(t *testing.T) {
	for _, other := range []string{"", "#!/bin/sh\nexit 1\n"} {
		dir := t.TempDir()
		for _, name := range []string{"iptables-nft-restore", "iptables-nft-save"} {
			path, err := exec.LookPath("/usr/sbin/" + name)
			if err != nil {
				t.Skip("no nft tools")
			}
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if other != "" {
			if err := os.WriteFile(filepath.Join(dir, "iptables-nft"), []byte(other), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		o := testns.Options(t, testns.New(t), dataplane.NFT)
		o.ToolDir = dir
		k := newKernel(t, o)
		if err := k.Restore(background, filter, []byte("*filter\n:tw-a - [0:0]\n-A tw-a -p tcp\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		snap, err := k.Read(background, filter, "tw-a")
		if err != nil || len(snap.Chains["tw-a"].Rules) != 1 || snap.Chains["INPUT"].Policy != "ACCEPT" {
			t.Errorf("%+v, %v", snap, err)
		}
	}
}

// Read of named chains of a table of a thousand, beside a save.
func BenchmarkReadNamed(b *testing.B) {
	for _, chains := range []int{100, 1000, 5000} {
		k := newScanning(b, dataplane.NFT, 4)
		for _, block := range bigTable(chains) {
			if err := k.Restore(background, filter, block); err != nil {
				b.Fatal(err)
			}
		}
		for _, n := range []int{1, 10, 50} {
			var names []string
			for i := range n {
				names = append(names, "tw-"+strconv.Itoa(i))
			}
			b.Run(strconv.Itoa(chains)+"/"+strconv.Itoa(n), func(b *testing.B) {
				for b.Loop() {
					k.read("filter", names...)
				}
			})
		}
		b.Run(strconv.Itoa(chains)+"/save", func(b *testing.B) {
			for b.Loop() {
				k.read("filter")
			}
		})
	}
}
