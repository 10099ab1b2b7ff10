// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// A first load is cut so that each part jumps only to what is there or comes in it, whatever
// reaches it is in the rest, and the parts one after the other make the same table.
func TestPropertySlices(t *testing.T) {
	names := []string{"tw-a", "tw-b", "tw-c", "tw-d", "tw-e", "tw-f", "tw-g", "tw-old"}
	rapid.Check(t, func(rt *rapid.T) {
		cfg := transaction.Config{Prefixes: []string{"tw-"}}
		h := newHost(t, cfg, "*filter\n:tw-old - [0:0]\n-A INPUT -j tw-old\nCOMMIT\n")
		var msgs []transaction.Message
		for i := range rapid.IntRange(1, 10).Draw(rt, "messages") {
			var chains []rules.Chain
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 2, rapid.ID).Draw(rt, "chains") {
				var texts []string
				for _, to := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 2).Draw(rt, "jumps") {
					texts = append(texts, "-j "+to)
				}
				chains = append(chains, chainOf(name, texts...))
			}
			id := fmt.Sprint(i)
			if rapid.IntRange(0, 5).Draw(rt, "hook") == 0 {
				to := rapid.SampledFrom(names).Draw(rt, "to")
				msgs = append(msgs, message(id, "", transaction.InsertRule("INPUT", rule("-j "+to), transaction.InsertTop)))
			} else {
				msgs = append(msgs, rewrite(id, "", chains...))
			}
		}
		txn, outcomes := h.state.Propose(msgs)
		most := rapid.IntRange(1, 4).Draw(rt, "most")
		parts := txn.Slices(most)
		if parts == nil {
			return
		}
		cut := map[int]bool{}
		for _, part := range parts {
			var some []transaction.Message
			for _, i := range part {
				if cut[i] {
					rt.Fatalf("message %d is in two parts", i)
				}
				cut[i] = true
				some = append(some, txn.Messages()[i])
			}
			for _, o := range h.batch(some...) {
				if o.Result != transaction.Applied {
					rt.Fatalf("a part has %v: %v", o.Result, o.Err)
				}
			}
			for _, m := range some {
				for _, c := range m.Body.(transaction.RewriteChains).Chains {
					for _, r := range c.Rules {
						if h.state.ContentOf(r.Jump()) == transaction.Absent {
							rt.Fatalf("chain %s jumps to %s, which is not there", c.Name, r.Jump())
						}
					}
				}
			}
		}
		var rest []transaction.Message
		for i, m := range txn.Messages() {
			if !cut[i] {
				rest = append(rest, m)
			}
		}
		h.batch(rest...)
		whole := newHost(t, cfg, "*filter\n:tw-old - [0:0]\n-A INPUT -j tw-old\nCOMMIT\n")
		var good []transaction.Message
		for i, o := range outcomes {
			if o.Err == nil {
				good = append(good, msgs[i])
			}
		}
		whole.batch(good...)
		if h.save() != whole.save() {
			rt.Fatalf("in parts\n%s\nas a whole\n%s", h.save(), whole.save())
		}
	})
}

// The order of a first load is that of its jumps, and a small one is not cut.
func TestSlicesOrder(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	var msgs []transaction.Message
	msgs = append(msgs, message("hook", "", transaction.InsertRule("INPUT", rule("-j tw-dispatch"), transaction.InsertTop)))
	dispatch := rules.Chain{Name: "tw-dispatch"}
	for i := range 10 {
		dispatch.Rules = append(dispatch.Rules, rule(fmt.Sprintf("-g tw-%d", i)))
	}
	msgs = append(msgs, rewrite("dispatch", "", dispatch))
	for i := range 10 {
		msgs = append(msgs, rewrite(fmt.Sprint(i), "", chainOf(fmt.Sprintf("tw-%d", i), "-j ACCEPT")))
	}
	txn, _ := h.state.Propose(msgs)
	if parts := txn.Slices(11); parts != nil {
		t.Errorf("a small load is cut: %v", parts)
	}
	parts := txn.Slices(4)
	var sizes []int
	for _, part := range parts {
		sizes = append(sizes, len(part))
	}
	if !slices.Equal(sizes, []int{4, 4, 3}) || parts[2][2] != 1 {
		t.Errorf("%v", parts)
	}
}
