// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// killTable is a table as saved: each chain's policy and rules, as lines.
type killTable map[string]string

func (k killTable) equal(other killTable) bool { return maps.Equal(k, other) }

func readKill(t *testing.T, k *dataplane.Kernel, id rules.TableID) killTable {
	t.Helper()
	snap, err := k.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	table := killTable{}
	for name, c := range snap.Chains {
		lines := []string{c.Policy}
		for _, r := range c.Rules {
			lines = append(lines, r.Text)
		}
		table[name] = strings.Join(lines, "\n")
	}
	return table
}

// killWant is what a scene may leave in the kernel, and what it has to in the end.
type killWant struct {
	old, final killTable
}

// newKillWant gets both from runtimes that nobody disturbs, where no run was before.
func newKillWant(t *testing.T, b dataplane.Backend, v rules.IPVersion, s *killScene) killWant {
	t.Helper()
	id := rules.TableID{IPVersion: v, Name: "filter"}
	clean := func(msgs []transaction.Message) killTable {
		opts := testns.Options(t, testns.New(t), b)
		seedKill(t, opts, v, killSeed)
		k := openKill(t, opts)
		nextRun(t, k, id, msgs)
		return readKill(t, k, id)
	}
	return killWant{clean(s.before), clean(s.final)}
}

// checkWhole holds that each chain of ours is whole: as before, as after, a stub, or absent.
func (w killWant) checkWhole(t *testing.T, got killTable) {
	t.Helper()
	orphans := killTable{"tw-gone": "\n-j tw-lost", "tw-lost": "\n-p udp -j DROP"}
	for name, text := range got {
		whole := []string{
			w.old[name], w.final[name], orphans[name],
			"\n" + transaction.MissingStub("filter")[0].String(), "\n" + transaction.CondemnedStub("filter")[0].String(),
		}
		if strings.HasPrefix(name, "tw-") && !slices.Contains(whole, text) {
			t.Errorf("%s is none of what it may be:\n%s", name, text)
		}
	}
}

func (w killWant) checkFinal(t *testing.T, when string, got killTable) {
	t.Helper()
	if diff := cmp.Diff(w.final, got); diff != "" {
		t.Errorf("%s the kernel (+) does not hold what was asked for (-):\n%s", when, diff)
	}
}

// nextRun is a runtime from its start to its end; meanwhile is called when grace is over.
func nextRun(t *testing.T, k *dataplane.Kernel, id rules.TableID, wishes []transaction.Message, meanwhile ...func()) {
	t.Helper()
	rt, err := newKillRuntime(k, k.Info())
	if err != nil {
		t.Fatal(err)
	}
	send := func(piece []transaction.Message) func() {
		return func() {
			if err := sendAll(t.Context(), rt, id, piece); err != nil {
				t.Error(err)
			}
		}
	}
	for _, f := range append([]func(){send(wishes), send(endGrace)}, append(meanwhile, send(cleanup), send(cleanup))...) {
		f()
	}
	if err := rt.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func openKill(t *testing.T, opts dataplane.Options) *dataplane.Kernel {
	t.Helper()
	k, err := dataplane.NewKernel(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return k
}

// seedKill writes blocks with a Kernel that holds the table no longer than that.
func seedKill(t *testing.T, opts dataplane.Options, v rules.IPVersion, blocks ...string) {
	t.Helper()
	k, err := dataplane.NewKernel(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		if err := k.Restore(t.Context(), rules.TableID{IPVersion: v, Name: "filter"}, []byte(block)); err != nil {
			t.Error(err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}
