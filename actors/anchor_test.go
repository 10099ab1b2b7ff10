// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// restless is a table that others write to all the time.
type restless struct {
	*dataplane.Sim
	writes atomic.Uint64
}

func (r *restless) Pulse(context.Context, rules.TableID) (uint64, error) {
	return r.writes.Add(1), nil
}

func (r *restless) Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	snap, err := r.Sim.Scan(ctx, id, chains...)
	snap.Pulse = r.writes.Add(1)
	return snap, err
}

// A rule in the middle of a kernel chain lands in the end even if the table never rests, though
// its place is only certain while nobody else writes.
func TestAnchorInATableThatNeverRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dp := &restless{Sim: dataplane.NewSim(dataplane.NFT)}
		if err := dp.Load(rules.IPv4, []byte("*filter\n-A INPUT -i lo -j ACCEPT\n-A INPUT -m comment --comment gate -j DROP\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		rt := newRuntime(t, dp, actors.Options{Refresh: -1})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		web := rt.Owner("web", 0)
		for _, text := range []string{"-s 10.0.0.1/32 -j ACCEPT", "-s 10.0.0.2/32 -j ACCEPT"} {
			a, err := web.InsertRuleBefore(ctx, filter4, "INPUT", rule(text), transaction.Commented("gate"))
			if err != nil || a.Result != actors.Applied {
				t.Fatal(err, a)
			}
		}
		want := []string{"-i lo -j ACCEPT", "-s 10.0.0.1/32 -j ACCEPT", "-s 10.0.0.2/32 -j ACCEPT", "-m comment --comment gate -j DROP"}
		if diff := cmp.Diff(want, tableOf(t, dp, filter4)["INPUT"]); diff != "" {
			t.Errorf("INPUT (-want +got):\n%s", diff)
		}
		settleDeadLetters(t, rt)
	})
}

// The handle's methods ask for the places that they are named after, and the status tells whose
// anchor is not there.
func TestFeaturePlaces(t *testing.T) {
	sim := dataplane.NewSim(dataplane.Legacy)
	if err := sim.Load(rules.IPv4, []byte("*filter\n:GATE - [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -j GATE\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	rt := newRuntime(t, sim, actors.Options{Refresh: -1})
	ctx := context.Background()
	web := rt.Owner("web", 0)
	gate := transaction.JumpTo("GATE")
	for _, ask := range []func() (actors.Answer, error){
		func() (actors.Answer, error) {
			return web.InsertRuleBefore(ctx, filter4, "INPUT", rule("-s 10.0.0.1/32 -j DROP"), gate)
		},
		func() (actors.Answer, error) {
			return web.InsertRuleAfter(ctx, filter4, "INPUT", rule("-s 10.0.0.2/32 -j DROP"), gate)
		},
		func() (actors.Answer, error) {
			return web.InsertRule(ctx, filter4, "INPUT", rule("-s 10.0.0.3/32 -j DROP"), transaction.InsertNear)
		},
		func() (actors.Answer, error) {
			return web.InsertRuleAfter(ctx, filter4, "INPUT", rule("-s 10.0.0.4/32 -j DROP"), transaction.Commented("gone"))
		},
	} {
		if a, err := ask(); err != nil || a.Result != actors.Applied {
			t.Fatal(err, a)
		}
	}
	want := []string{"-s 10.0.0.3/32 -j DROP", "-i lo -j ACCEPT", "-s 10.0.0.1/32 -j DROP", "-j GATE", "-s 10.0.0.2/32 -j DROP", "-s 10.0.0.4/32 -j DROP"}
	if diff := cmp.Diff(want, tableOf(t, sim, filter4)["INPUT"]); diff != "" {
		t.Errorf("INPUT (-want +got):\n%s", diff)
	}
	st, err := rt.Status(ctx)
	if err != nil || len(st) != 1 || !slices.EqualFunc(st[0].MissingAnchors, []string{"-s 10.0.0.4/32 -j DROP"}, func(m transaction.MissingAnchor, text string) bool {
		return m.Owner == "web" && m.Chain == "INPUT" && m.Rule.String() == text
	}) {
		t.Errorf("status: %v, %+v", err, st)
	}
}
