// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// D8: of a message with one bad chain nothing is kept: not its good chain, not that chain's
// owner, and the next batch is planned as if it had never come.
func TestD08AllOfAMessageOrNothing(t *testing.T) {
	const foreign = "*filter\n:DOCKER - [0:0]\nCOMMIT\n"
	for name, bad := range map[string]rules.Chain{
		"built in": chainOf("INPUT"), "foreign": chainOf("DOCKER"), "no name": {}, "no rule": {Name: "tw-b", Rules: make([]rules.Rule, 1)},
		"misspelt": chainOf("tw-b", "-j ACCPET"), "loop": chainOf("tw-b", "-j tw-b"),
	} {
		h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, foreign)
		before := h.save()
		out := h.batch(rewrite("1", "a", chainOf("tw-a", "-j ACCEPT"), bad))
		if out[0].Result != transaction.Rejected || len(h.sent) != 0 || h.save() != before {
			t.Errorf("%s: %+v, sent %q", name, out[0], h.sent)
		}
		if out = h.batch(rewrite("2", "b", chainOf("tw-a", "-j DROP"))); out[0].Result != transaction.Applied {
			t.Errorf("%s: the chain has an owner from the refused message: %v", name, out[0].Err)
		}
	}
}

// D9: an override holds whatever else its batch had, and however the messages were cut into
// batches; it may come before and after the stub, and can be taken away.
func TestD09OverrideInAnyCut(t *testing.T) {
	override := func(texts ...string) transaction.Message {
		return message("o", "a", transaction.OverrideStub{Chain: "tw-x", Rules: chainOf("", texts...).Rules})
	}
	jump := rewrite("j", "a", chainOf("tw-y", "-j tw-x"))
	garbage := rewrite("g", "g", chainOf("tw-g", "-j NOPE"))
	saves := map[string]string{}
	for name, batches := range map[string][][]transaction.Message{
		"together":        {{jump, override("-j RETURN")}},
		"with garbage":    {{jump, garbage, override("-j RETURN")}},
		"stub first":      {{jump}, {override("-j RETURN")}},
		"override first":  {{override("-j RETURN")}, {garbage}, {jump}},
		"changed":         {{jump, override("-j ACCEPT")}, {override("-j RETURN")}},
		"taken and given": {{jump, override("-j RETURN")}, {message("r", "a", transaction.OverrideStub{Chain: "tw-x", Remove: true})}, {override("-j RETURN")}},
	} {
		h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
		for _, b := range batches {
			for i, o := range h.batch(b...) {
				if bad := b[i].ID == "g"; bad != (o.Result == transaction.Rejected) {
					t.Errorf("%s: %s: %+v", name, b[i].ID, o)
				}
			}
		}
		if h.state.ContentOf("tw-x") != transaction.Override {
			t.Errorf("%s: %v", name, h.state.ContentOf("tw-x"))
		}
		saves[name] = h.save()
	}
	for name, save := range saves {
		if diff := cmp.Diff(saves["together"], save); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// D15: a line that the tool names leads to the message whose line it is, and a number that is
// no line of the block to none; text that would shift the numbers never becomes a rule.
func TestD15LineNumbersAreChecked(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	txn, _ := h.state.Propose([]transaction.Message{rewrite("1", "a", chainOf("tw-a", "-j ACCEPT")), rewrite("2", "b", chainOf("tw-b", "-j DROP"))})
	plan := txn.Plan()
	got := map[int]int{}
	for _, n := range []int{math.MinInt, -1, 0, 1, 2, 3, 4, 5, 6, 7, 999, math.MaxInt} {
		if i, line, ok := plan.Origin(n); ok {
			got[n] = i
			if want := map[int]string{0: "tw-a", 1: "tw-b"}[i]; line.Chain != want {
				t.Errorf("line %d is of chain %s, want %s", n, line.Chain, want)
			}
		}
		if line, ok := plan.Repair(n); ok {
			t.Errorf("line %d is a repair: %+v", n, line)
		}
	}
	// *filter, two declarations, two rules, COMMIT.
	if diff := cmp.Diff(map[int]int{2: 0, 3: 1, 4: 0, 5: 1}, got); diff != "" {
		t.Errorf("messages of lines (-want +got):\n%s", diff)
	}
	_, err := rules.ParseRule("-m comment --comment \"x\ny\" -j ACCEPT")
	var syntax *rules.SyntaxError
	if !errors.As(err, &syntax) || syntax.Column != 24 {
		t.Errorf("a rule of two lines: %v", err)
	}
}
