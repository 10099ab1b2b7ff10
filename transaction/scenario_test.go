// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The transactions of felix-updater 4.1: a jumps to b and to a stub; b and c are written.
func TestX1ToX6(t *testing.T) {
	for _, tt := range []struct {
		name      string
		msg       transaction.Message
		rewritten []string
		stubs     []string
		deleted   []string
	}{
		{"X1 a needs only b", rewrite("x", "o", chainOf("f-a", "-j f-b")), []string{"f-a"}, nil, []string{"f-stub"}},
		{"X2 a needs only the stub", rewrite("x", "o", chainOf("f-a", "-j f-stub")), []string{"f-a"}, nil, nil},
		{"X3 delete c, which nothing needs", remove("x", "o", "f-c"), nil, nil, []string{"f-c"}},
		{"X4 delete b, which a needs", remove("x", "o", "f-b"), nil, []string{"f-b"}, nil},
		{"X5 delete a", remove("x", "o", "f-a"), nil, nil, []string{"f-a", "f-stub"}},
		{"X6 a needs nothing", rewrite("x", "o", chainOf("f-a")), []string{"f-a"}, nil, []string{"f-stub"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, transaction.Config{Prefixes: []string{"f-"}}, "")
			h.batch(rewrite("1", "o", chainOf("f-a", "-j f-b", "-j f-stub"), chainOf("f-b"), chainOf("f-c")))
			idle, _ := h.state.Propose(nil)
			idle.Plan() // a plan that is read and dropped must change nothing (X5, X6)
			txn, _ := h.state.Propose([]transaction.Message{tt.msg})
			plan := txn.Plan()
			if diff := cmp.Diff(tt.rewritten, plan.Rewritten); diff != "" {
				t.Errorf("rewritten: %s", diff)
			}
			if diff := cmp.Diff(tt.stubs, plan.Stubs); diff != "" {
				t.Errorf("stubs: %s", diff)
			}
			if diff := cmp.Diff(tt.deleted, plan.Deletes()); diff != "" {
				t.Errorf("deleted: %s", diff)
			}
			h.batch(tt.msg)
		})
	}
}

// What is refused before the kernel sees it, and why.
func TestRefusals(t *testing.T) {
	const foreign = "*filter\n:DOCKER - [0:0]\n:tw-old - [0:0]\n-A DOCKER -j RETURN\n-A FORWARD -j DOCKER\nCOMMIT\n"
	deep := make([]rules.Chain, 0, 16)
	for i := range 16 {
		c := chainOf("tw-" + string(rune('a'+i)))
		if i < 15 {
			c.Rules = append(c.Rules, rule("-j tw-"+string(rune('b'+i))))
		}
		deep = append(deep, c)
	}
	edit := func(chain, text string, op transaction.Op) transaction.Body {
		return transaction.InsertRule(chain, rule(text), op)
	}
	for _, tt := range []struct {
		name   string
		msgs   []transaction.Message
		want   error
		reason string
	}{
		{"write a built-in chain", []transaction.Message{rewrite("1", "o", chainOf("INPUT"))}, transaction.ErrNotOurs, "built in"},
		{"write a foreign chain", []transaction.Message{rewrite("1", "o", chainOf("DOCKER"))}, transaction.ErrNotOurs, "chain DOCKER exists and is not ours"},
		{"delete a foreign chain", []transaction.Message{remove("1", "o", "DOCKER")}, transaction.ErrNotOurs, "exists and is not ours"},
		{"a name of 29 bytes", []transaction.Message{rewrite("1", "o", chainOf("tw-"+strings.Repeat("x", 26)))}, transaction.ErrBadName, "29"},
		{"the name of an extension", []transaction.Message{rewrite("1", "o", chainOf("LOG"))}, transaction.ErrBadName, "LOG"},
		{"the name of a verdict", []transaction.Message{rewrite("1", "o", chainOf("ACCEPT"))}, transaction.ErrBadName, "ACCEPT"},
		{"a chain twice", []transaction.Message{rewrite("1", "o", chainOf("tw-a"), chainOf("tw-a"))}, transaction.ErrInvalid, "twice"},
		{"another owner's chain", []transaction.Message{rewrite("0", "a", chainOf("tw-a")), rewrite("1", "b", chainOf("tw-a"))}, transaction.ErrOwned, `"a"`},
		{"D38: a late delete of an old owner", []transaction.Message{rewrite("0", "b", chainOf("tw-a")), remove("1", "a", "tw-a")}, transaction.ErrOwned, `"b"`},
		{"a jump to an absent chain that cannot be ours", []transaction.Message{rewrite("1", "o", chainOf("tw-a", "-j NOPE"))}, transaction.ErrUnknownTarget, "NOPE"},
		{"a verdict misspelt", []transaction.Message{rewrite("1", "o", chainOf("tw-a", "-j ACCPET"))}, transaction.ErrUnknownTarget, "did you mean ACCEPT?"},
		{"-g to a verdict", []transaction.Message{rewrite("1", "o", chainOf("tw-a", "-g RETURN"))}, transaction.ErrUnknownTarget, "-j RETURN"},
		{"a jump to a built-in chain", []transaction.Message{rewrite("1", "o", chainOf("tw-a", "-j OUTPUT"))}, transaction.ErrUnknownTarget, "OUTPUT"},
		{"D28: a chain that jumps to itself", []transaction.Message{rewrite("1", "o", chainOf("tw-a", "-j tw-a"))}, transaction.ErrLoop, "tw-a -> tw-a"},
		{"a circle that closes later", []transaction.Message{rewrite("0", "o", chainOf("tw-a", "-j tw-b")), rewrite("x", "o", chainOf("tw-b", "-j tw-a"))}, transaction.ErrLoop, "circle"},
		{"a nest of 16", []transaction.Message{message("0", "", edit("INPUT", "-j tw-a", transaction.InsertTop)), rewrite("1", "o", deep...)}, transaction.ErrDepth, "16 chains in a row"},
		{"insert into a chain of ours", []transaction.Message{message("1", "", edit("tw-a", "-j ACCEPT", transaction.InsertTop))}, transaction.ErrInvalid, "is ours"},
		{"ban what another lists", []transaction.Message{message("0", "a", edit("INPUT", "-j ACCEPT", transaction.InsertTop)), message("1", "b", transaction.RemoveRule("INPUT", rule("-j ACCEPT"), true))}, transaction.ErrBanned, `"a"`},
		{"list what another bans", []transaction.Message{message("0", "a", transaction.RemoveRule("INPUT", rule("-j ACCEPT"), true)), message("1", "b", edit("INPUT", "-j ACCEPT", transaction.InsertTop))}, transaction.ErrBanned, `"a"`},
		{"a policy of a user chain", []transaction.Message{message("1", "", transaction.SetPolicy{Chain: "tw-a", Policy: "DROP"})}, transaction.ErrInvalid, "built-in"},
		{"a policy that is none", []transaction.Message{message("1", "", transaction.SetPolicy{Chain: "INPUT", Policy: "REJECT"})}, transaction.ErrInvalid, "REJECT"},
		{"another owner's policy", []transaction.Message{message("0", "a", transaction.SetPolicy{Chain: "INPUT", Policy: "DROP"}), message("1", "b", transaction.SetPolicy{Chain: "INPUT", Policy: "ACCEPT"})}, transaction.ErrOwned, `"a"`},
		{"a kernel rule to a stub that was not asked for", []transaction.Message{message("1", "", transaction.EditRules{Chain: "INPUT", NoStub: true, Edits: []transaction.Edit{{Op: transaction.InsertTop, Rule: rule("-j tw-late")}}})}, transaction.ErrDependency, "its chain tw-late has no content"},
		{"no body", []transaction.Message{{ID: "1"}}, transaction.ErrInvalid, "body"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15}, foreign)
			for _, together := range []bool{false, true} {
				outcomes := refusedOutcomes(h, tt.msgs, together)
				i := slices.IndexFunc(outcomes, func(o transaction.Outcome) bool { return o.Err != nil })
				if i < 0 {
					t.Fatalf("nothing was refused (together: %v)", together)
				}
				err := outcomes[i].Err
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("got %v, want %v with %q", err, tt.want, tt.reason)
				}
				if err.ID == "" || err.Table != filter4 || err.Reason == "" {
					t.Errorf("error does not say which message: %+v", err)
				}
			}
		})
	}
}

// refusedOutcomes plans messages one by one or together on a fresh copy of the host.
func refusedOutcomes(h *host, msgs []transaction.Message, together bool) []transaction.Outcome {
	h.t.Helper()
	fresh := newHost(h.t, transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15}, "*filter\n:DOCKER - [0:0]\n:tw-old - [0:0]\n-A DOCKER -j RETURN\n-A FORWARD -j DOCKER\nCOMMIT\n")
	if together {
		return fresh.batch(msgs...)
	}
	var out []transaction.Outcome
	for _, m := range msgs {
		out = append(out, fresh.batch(m)...)
	}
	return out
}

// Two messages that fail only together are each told of the other, and the rest lands.
func TestConflictNamesTheMinimalSet(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	out := h.batch(
		rewrite("a", "o", chainOf("tw-a", "-j tw-b")),
		rewrite("good", "o", chainOf("tw-c", "-j ACCEPT")),
		rewrite("b", "o", chainOf("tw-b", "-j tw-a")),
	)
	if got := results(out); got != "414" {
		t.Fatalf("results %s, want conflict, applied, conflict", got)
	}
	if diff := cmp.Diff([][]string{{"b"}, {"a"}}, [][]string{out[0].Err.With, out[2].Err.With}); diff != "" {
		t.Error(diff)
	}
	if h.state.ContentOf("tw-c") != transaction.Ours || h.state.ContentOf("tw-a") != transaction.Absent {
		t.Errorf("kernel:\n%s", h.save())
	}
}

// The later message of a batch supersedes the earlier, unless it is refused.
func TestSuperseded(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	out := h.batch(
		rewrite("1", "o", chainOf("tw-a", "-j ACCEPT")),
		rewrite("2", "o", chainOf("tw-a", "-j DROP"), chainOf("tw-b")),
		rewrite("3", "o", chainOf("tw-b", "-j RETURN")),
		rewrite("4", "o", chainOf("tw-a", "-j NOPE")),
	)
	if got := results(out); got != "2113" {
		t.Errorf("results %s, want superseded, applied, applied, rejected", got)
	}
	if !strings.Contains(h.save(), "-A tw-a -j DROP\n") {
		t.Errorf("kernel:\n%s", h.save())
	}
}

// D25: a caller who changes a slice after sending it changes nothing here.
func TestCloneSharesNothing(t *testing.T) {
	chains := []rules.Chain{chainOf("tw-a", "-j ACCEPT")}
	names := []string{"tw-a"}
	edits := []transaction.Edit{{Op: transaction.InsertTop, Rule: rule("-j ACCEPT")}}
	stub := []rules.Rule{rule("-j RETURN")}
	for _, m := range []transaction.Message{
		{Body: transaction.RewriteChains{Chains: chains}}, {Body: transaction.DeleteChains{Chains: names}},
		{Body: transaction.EditRules{Chain: "INPUT", Edits: edits}}, {Body: transaction.OverrideStub{Chain: "tw-a", Rules: stub}},
	} {
		c := m.Clone()
		before := bodyText(c)
		chains[0].Rules[0], chains[0].Name = rule("-j DROP"), "tw-x"
		names[0], edits[0].Rule, stub[0] = "tw-x", rule("-j DROP"), rule("-j DROP")
		if after := bodyText(c); after != before {
			t.Errorf("%T: %s became %s", m.Body, before, after)
		}
		chains[0], names[0] = chainOf("tw-a", "-j ACCEPT"), "tw-a"
		edits[0].Rule, stub[0] = rule("-j ACCEPT"), rule("-j RETURN")
	}
}

func bodyText(m transaction.Message) string {
	var out []string
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		out = append(out, b.Chains[0].Name, b.Chains[0].Rules[0].String())
	case transaction.DeleteChains:
		out = b.Chains
	case transaction.EditRules:
		out = append(out, b.Edits[0].Rule.String())
	case transaction.OverrideStub:
		out = append(out, b.Rules[0].String())
	}
	return strings.Join(out, " ")
}

// The modify block's lines lead back to their messages.
func TestPlanOrigin(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	txn, _ := h.state.Propose([]transaction.Message{
		rewrite("1", "o", chainOf("tw-a", "-j tw-late")),
		message("2", "o", transaction.InsertRule("INPUT", rule("-j tw-b"), transaction.InsertTop)),
		rewrite("3", "o", chainOf("tw-b", "-j DROP")),
	})
	plan := txn.Plan()
	text := strings.Split(string(rules.AppendRestore(nil, plan.Modify)), "\n")
	got := map[string]string{}
	for n := 0; n <= len(text)+1; n++ {
		if i, _, ok := plan.Origin(n); ok {
			got[text[n-1]] = txn.Messages()[i].ID
		}
	}
	want := map[string]string{
		":tw-a - [0:0]": "1", ":tw-b - [0:0]": "3", ":tw-late - [0:0]": "1",
		`-A tw-late -m comment --comment "tableward: missing chain" -j DROP`: "1",
		"-A tw-a -j tw-late": "1", "-A tw-b -j DROP": "3", "-I INPUT -j tw-b": "2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Without a prefix whoever deletes a stranger's chain has it deleted, content and all.
func TestDeleteWithoutPrefix(t *testing.T) {
	h := newHost(t, transaction.Config{}, "*filter\n:old - [0:0]\n-A old -j RETURN\nCOMMIT\n")
	if got := results(h.batch(remove("1", "", "old"))); got != "1" {
		t.Errorf("results %s, want applied", got)
	}
	if strings.Contains(h.save(), "old") {
		t.Errorf("the chain is still there:\n%s", h.save())
	}
}

// A chain that owners insert rules into is nobody's to write or delete.
func TestListsAndWholeChains(t *testing.T) {
	h := newHost(t, transaction.Config{}, "*filter\n:DOCKER-USER - [0:0]\nCOMMIT\n")
	got := results(h.batch(
		message("1", "a", transaction.InsertRule("DOCKER-USER", rule("-j ACCEPT"), transaction.InsertTop)),
		rewrite("2", "b", chainOf("DOCKER-USER")),
		remove("3", "b", "DOCKER-USER"),
	))
	if got != "133" {
		t.Errorf("results %s, want applied, rejected, rejected", got)
	}
}

// A policy DROP is held when its owner has a message refused, by the plan or by the kernel
// before it.
func TestPolicyIsHeld(t *testing.T) {
	drop := message("p", "a", transaction.SetPolicy{Chain: "INPUT", Policy: "DROP"})
	bad := rewrite("bad", "a", chainOf("tw-a", "-j NOPE"))
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	if got := results(h.batch(drop, bad)); got != "33" {
		t.Errorf("results %s, want rejected, rejected", got)
	}
	if _, out := h.state.Propose([]transaction.Message{drop}, rewrite("bad", "b", chainOf("tw-a"))); out[0].Err != nil {
		t.Errorf("another owner's refusal holds the policy: %v", out[0].Err)
	}
	_, out := h.state.Propose([]transaction.Message{drop}, bad)
	if !errors.Is(out[0].Err, transaction.ErrDependency) {
		t.Errorf("the policy is set although the kernel refused another message of its owner: %v", out[0].Err)
	}
}

// What is withdrawn of a message that waits for its kernel chain does not come with the rest.
func TestWaitingMessageIsWithdrawnInPart(t *testing.T) {
	h := newHost(t, transaction.Config{}, "")
	two := message("1", "a", transaction.EditRules{Chain: "DOCKER-USER", Edits: []transaction.Edit{
		{Op: transaction.InsertTop, Rule: rule("-s 10.0.0.1/32 -j DROP")}, {Op: transaction.InsertTop, Rule: rule("-s 10.0.0.2/32 -j DROP")},
	}})
	out := h.batch(two, message("2", "a", transaction.RemoveRule("DOCKER-USER", rule("-s 10.0.0.1/32 -j DROP"), false)))
	if out[0].Result != transaction.Waiting || out[0].Remaining == nil || out[1].Result != transaction.Applied {
		t.Fatalf("outcomes %+v", out)
	}
	h.stranger("*filter\n:DOCKER-USER - [0:0]\nCOMMIT\n")
	h.read()
	h.batch(*out[0].Remaining)
	if save := h.save(); strings.Contains(save, "10.0.0.1") || !strings.Contains(save, "10.0.0.2") {
		t.Error(save)
	}
}

// A name that becomes ours later is ours from then on.
func TestOwn(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "*filter\n:foo - [0:0]\n-A foo -j RETURN\nCOMMIT\n")
	write := rewrite("1", "a", chainOf("foo", "-j ACCEPT"))
	if got := results(h.batch(write)); got != "3" {
		t.Errorf("results %s, want rejected", got)
	}
	h.state.Own("foo")
	if got := results(h.batch(write)); got != "1" {
		t.Errorf("results %s, want applied", got)
	}
}

// D38: a chain that was handed over is the new owner's; a late delete of the old one cannot
// hurt it.
func TestHandOver(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
	hand := message("2", "a", transaction.HandOver{Chains: []string{"tw-a"}, To: "b"})
	got := results(h.batch(
		rewrite("1", "a", chainOf("tw-a", "-j ACCEPT")), hand,
		remove("3", "a", "tw-a"), rewrite("4", "b", chainOf("tw-a", "-j DROP")), hand,
	))
	if got != "21313" {
		t.Errorf("results %s, want superseded, applied, rejected, applied, rejected", got)
	}
	if !strings.Contains(h.save(), "-A tw-a -j DROP") {
		t.Error(h.save())
	}
	if got := results(h.batch(message("5", "b", transaction.HandOver{Chains: []string{"tw-x"}, To: "c"}))); got != "3" {
		t.Errorf("a chain that nobody wrote was handed over: %s", got)
	}
}
