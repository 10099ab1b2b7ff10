// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

// gates is a kernel chain of strangers with rules to stand by.
const gates = `:GATE - [0:0]
:OTHER - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -p udp -j GATE
-A INPUT -m comment --comment "the gate" -j RETURN
-A INPUT -p tcp -j OTHER
-A INPUT -i eth9 -j GATE
`

// stranger has somebody else write to the table.
func (h *host) stranger(lines string) {
	h.t.Helper()
	h.tool("*"+h.id.Name+"\n"+lines+"COMMIT\n", "-restore", "--noflush", "-w", "5")
}

// Rules of two owners follow their anchors where a stranger moves them, on every kernel, with
// the policy of the chain in the same block, and what he does to the rules is repaired.
func TestKernelAnchors(t *testing.T) {
	const web, dns, log = "-p tcp -m tcp --dport 443 -j ACCEPT", "-p udp -m udp --dport 53 -j ACCEPT", "-p icmp -j RETURN"
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		id, rt, k := h.id, h.rt, h.k
		h.stranger(gates)
		ctx := context.Background()
		a, b := rt.Owner("a", 2), rt.Owner("b", 1)
		answers, err := rt.Send(ctx, id,
			transaction.Message{Owner: "a", Priority: 2, Body: transaction.InsertRuleBefore("INPUT", rule(web), transaction.JumpTo("GATE"))},
			transaction.Message{Owner: "a", Priority: 2, Body: transaction.SetPolicy{Chain: "INPUT", Policy: "DROP"}},
			transaction.Message{Owner: "b", Priority: 1, Body: transaction.InsertRuleBefore("INPUT", rule(dns), transaction.JumpTo("GATE"))},
			transaction.Message{Owner: "b", Priority: 1, Body: transaction.InsertRuleAfter("INPUT", rule(log), transaction.Commented("the gate"))})
		for _, answer := range answers {
			if err != nil || answer.Result != actors.Applied {
				t.Fatal(err, answer)
			}
		}
		check := func(what string, want ...string) {
			t.Helper()
			if answer, err := a.Refresh(ctx, id); err != nil || answer.Err != nil {
				t.Fatal(err, answer.Err)
			}
			snap, err := k.Read(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range snap.Chains["INPUT"].Rules {
				got = append(got, r.Text)
			}
			if diff := cmp.Diff(want, got); diff != "" || snap.Chains["INPUT"].Policy != "DROP" {
				t.Errorf("%s: INPUT with policy %s (-want +got):\n%s", what, snap.Chains["INPUT"].Policy, diff)
			}
		}
		const gate, note, other, gate9, lo = "-p udp -j GATE", `-m comment --comment "the gate" -j RETURN`, "-p tcp -j OTHER", "-i eth9 -j GATE", "-i lo -j ACCEPT"
		check("in one block", lo, dns, web, gate, note, log, other, gate9)
		h.stranger("-D INPUT " + gate + "\n-A INPUT " + gate + "\n")
		check("the anchor moved down", lo, note, log, other, dns, web, gate9, gate)
		h.stranger("-D INPUT " + note + "\n-I INPUT " + note + "\n")
		check("the other moved to the top", note, log, lo, other, dns, web, gate9, gate)
		h.stranger("-I INPUT " + web + "\n-A INPUT " + log + "\n-D INPUT " + dns + "\n")
		check("rules doubled and lost", note, log, lo, other, dns, web, gate9, gate)
		h.stranger("-D INPUT " + note + "\n")
		check("an anchor gone", log, lo, other, dns, web, gate9, gate)
		if st, err := rt.Status(ctx); err != nil || len(st[0].MissingAnchors) != 1 || st[0].MissingAnchors[0].Owner != "b" {
			t.Errorf("status: %v, %v", err, st[0].MissingAnchors)
		}
		h.stranger("-F INPUT\n-A INPUT " + lo + "\n-A INPUT " + note + "\n-A INPUT " + gate + "\n")
		check("flushed and made anew", lo, note, log, dns, web, gate)
		if st, err := rt.Status(ctx); err != nil || len(st[0].MissingAnchors) != 0 {
			t.Errorf("status: %v, %v", err, st[0].MissingAnchors)
		}
		if answer, err := b.InsertRuleAfter(ctx, id, "INPUT", rule(dns), transaction.JumpTo("GATE")); err != nil || answer.Err != nil {
			t.Fatal(err, answer.Err)
		}
		if answer, err := a.RemoveRule(ctx, id, "INPUT", rule(web), false); err != nil || answer.Err != nil {
			t.Fatal(err, answer.Err)
		}
		check("moved and withdrawn", lo, note, log, gate, dns)
	})
}

// Whatever owners and strangers do to a kernel chain, the kernel holds what the simulator does.
func TestKernelAnchorsAsSimulated(t *testing.T) {
	const steps = 40
	opts := actors.Options{Refresh: -1}
	eachHost(t, opts, func(t *testing.T, h *host) {
		id, v, k := h.id, h.id.IPVersion, h.k
		rnd := rand.New(rand.NewPCG(7, uint64(v)))
		sim := dataplane.NewSim(h.backend)
		h.stranger(gates)
		if err := sim.Load(v, []byte("*filter\n"+gates+"COMMIT\n")); err != nil {
			t.Fatal(err)
		}
		kernel, model := h.rt, newRuntime(t, sim, opts)
		ctx := context.Background()
		for step := range steps {
			var what string
			if step%2 == 0 {
				msgs := randomPlaces(rnd, step)
				for _, rt := range []*actors.Runtime{kernel, model} {
					answers, err := rt.Send(ctx, id, msgs...)
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range answers {
						if a.Err != nil {
							t.Fatal(a.Err)
						}
					}
				}
				what = fmt.Sprint(msgs)
			} else {
				what = "-F INPUT\n"
				for _, r := range shuffled(rnd, tableOf(t, sim, id)["INPUT"]) {
					what += "-A INPUT " + r + "\n"
				}
				h.stranger(what)
				if err := sim.Load(v, []byte("*filter\n"+what+"COMMIT\n")); err != nil {
					t.Fatal(err)
				}
			}
			for _, rt := range []*actors.Runtime{kernel, model} {
				if a, err := rt.Owner("a", 0).Refresh(ctx, id); err != nil || a.Err != nil {
					t.Fatal(err, a.Err)
				}
			}
			if diff := cmp.Diff(tableOf(t, sim, id)["INPUT"], tableOf(t, k, id)["INPUT"]); diff != "" {
				t.Fatalf("step %d: the simulator (-) and the kernel (+) differ:\n%s\nafter %s", step, diff, what)
			}
		}
		if n := len(tableOf(t, k, id)["INPUT"]); n < 8 {
			t.Errorf("INPUT has %d rules in the end, which proves little", n)
		}
	})
}

// randomPlaces are a few messages about rules of INPUT.
func randomPlaces(rnd *rand.Rand, step int) []transaction.Message {
	anchors := []transaction.Anchor{transaction.JumpTo("GATE"), transaction.JumpTo("OTHER"), transaction.Commented("the gate"), transaction.JumpTo("NOBODY")}
	var out []transaction.Message
	for i := range 1 + rnd.IntN(4) {
		owner := rnd.IntN(2)
		e := transaction.Edit{
			Op:   transaction.Op(int(transaction.InsertTop) + rnd.IntN(int(transaction.Remove))),
			Rule: rule(fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+rnd.IntN(8))),
		}
		if e.Op == transaction.InsertBefore || e.Op == transaction.InsertAfter {
			e.Anchor = anchors[rnd.IntN(len(anchors))]
		}
		out = append(out, transaction.Message{
			ID: fmt.Sprint(step, ".", i), Owner: string("ab"[owner]), Priority: 1 - owner,
			Body: transaction.EditRules{Chain: "INPUT", Edits: []transaction.Edit{e}},
		})
	}
	return append(out, transaction.Message{ID: fmt.Sprint(step), Owner: "c", Body: transaction.SetPolicy{Chain: "INPUT", Policy: []string{"ACCEPT", "DROP"}[rnd.IntN(2)]}})
}

// shuffled is what strangers make of a chain: rules are moved, ours are doubled and lost too.
func shuffled(rnd *rand.Rand, rows []string) []string {
	rows = slices.Clone(rows)
	for range 1 + rnd.IntN(3) {
		from := rnd.IntN(len(rows))
		r := rows[from]
		switch ours := strings.Contains(r, "--dport"); {
		case ours && rnd.IntN(3) == 0: // doubled
		default:
			rows = slices.Delete(rows, from, from+1)
			if ours && rnd.IntN(3) == 0 {
				continue // lost
			}
		}
		rows = slices.Insert(rows, rnd.IntN(len(rows)+1), r)
	}
	return rows
}
