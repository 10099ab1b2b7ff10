// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// gated is a chain of strangers: a gate (GATE, with a comment), and a jump to Docker's chain.
const gated = `*filter
:GATE - [0:0]
:DOCKER-USER - [0:0]
-A INPUT -s 192.0.2.1/32 -j ACCEPT
-A INPUT -m comment --comment "the gate" -j GATE
-A INPUT -j DOCKER-USER
-A INPUT -s 192.0.2.2/32 -j ACCEPT
-A INPUT -p tcp -j DOCKER-USER
COMMIT
`

func before(id, owner, text string, a transaction.Anchor) transaction.Message {
	return message(id, owner, transaction.InsertRuleBefore("INPUT", rule(text), a))
}

func after(id, owner, text string, a transaction.Anchor) transaction.Message {
	return message(id, owner, transaction.InsertRuleAfter("INPUT", rule(text), a))
}

func insert(id, owner, text string, at transaction.Op) transaction.Message {
	return message(id, owner, transaction.InsertRule("INPUT", rule(text), at))
}

func withdraw(id, owner, text string) transaction.Message {
	return message(id, owner, transaction.RemoveRule("INPUT", rule(text), false))
}

func prio(n int, m transaction.Message) transaction.Message {
	m.Priority = n
	return m
}

// short writes a chain's rules as what each is known by in these tests.
func short(save, chain string) string {
	var out []string
	for _, r := range rulesOf(save, chain) {
		r = strings.NewReplacer("-s 10.0.0.", "", "/32 -j RETURN", "", "-s 192.0.2.", "f", "/32 -j ACCEPT", "", `-m comment --comment "the gate" -j GATE`, "gate",
			"-p tcp -j DOCKER-USER", "docker2", "-j DOCKER-USER", "docker").Replace(r)
		out = append(out, r)
	}
	return strings.Join(out, " ")
}

// r is our n-th rule, which short writes as n.
func r(n string) string { return "-s 10.0.0." + n + "/32 -j RETURN" }

var (
	docker = transaction.JumpTo("DOCKER-USER")
	gate   = transaction.Commented("the gate")
	nobody = transaction.JumpTo("NOBODY")
)

// Where rules stand by their anchors, in any cut into batches: each step is a message, or what
// a stranger does, after which the table is refreshed.
func TestAnchorPlaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []any
		want  string
	}{
		{"before a jump", []any{before("1", "a", r("1"), docker)}, "f1 gate 1 docker f2 docker2"},
		{"after a jump", []any{after("1", "a", r("1"), docker)}, "f1 gate docker 1 f2 docker2"},
		{"before a comment", []any{before("1", "a", r("1"), gate)}, "f1 1 gate docker f2 docker2"},
		{"after a comment", []any{after("1", "a", r("1"), gate)}, "f1 gate 1 docker f2 docker2"},
		{"the comment is the text and not a part of it", []any{before("1", "a", r("1"), transaction.Commented("gate"))}, "1 f1 gate docker f2 docker2"},
		{"a goto is a jump", []any{"-I INPUT -g DOCKER-USER", after("1", "a", r("1"), docker)}, "-g DOCKER-USER 1 f1 gate docker f2 docker2"},
		{"order of one owner", []any{before("1", "a", r("1"), docker), before("2", "a", r("2"), docker), after("3", "a", r("3"), docker), after("4", "a", r("4"), docker)},
			"f1 gate 1 2 docker 3 4 f2 docker2"},
		{"given again a rule keeps its place", []any{before("1", "a", r("1"), docker), before("2", "a", r("2"), docker), before("3", "a", r("1"), docker)},
			"f1 gate 1 2 docker f2 docker2"},
		{"given another place it moves", []any{before("1", "a", r("1"), docker), after("2", "a", r("1"), docker)}, "f1 gate docker 1 f2 docker2"},
		{"from the top to an anchor and back", []any{insert("1", "a", r("1"), transaction.InsertTop), before("2", "a", r("1"), docker), insert("3", "a", r("1"), transaction.InsertTop)},
			"1 f1 gate docker f2 docker2"},
		{"from an anchor to the bottom", []any{before("1", "a", r("1"), docker), insert("2", "a", r("1"), transaction.InsertBottom)}, "f1 gate docker f2 docker2 1"},
		{"two owners by name", []any{before("1", "b", r("1"), docker), before("2", "a", r("2"), docker)}, "f1 gate 2 1 docker f2 docker2"},
		{"two owners by priority", []any{prio(2, after("1", "a", r("1"), docker)), prio(1, after("2", "b", r("2"), docker))}, "f1 gate docker 2 1 f2 docker2"},
		{"one row by two names", []any{after("1", "b", r("1"), gate), after("2", "a", r("2"), transaction.JumpTo("GATE"))}, "f1 gate 2 1 docker f2 docker2"},
		{"two owners list one rule: the first has it", []any{before("1", "b", r("1"), gate), before("2", "a", r("1"), docker)}, "f1 gate 1 docker f2 docker2"},
		{"the other one has it then", []any{before("1", "b", r("1"), gate), before("2", "a", r("1"), docker), withdraw("3", "a", r("1"))}, "f1 1 gate docker f2 docker2"},
		{"the top counts more", []any{before("1", "a", r("1"), docker), insert("2", "b", r("1"), transaction.InsertTop)}, "1 f1 gate docker f2 docker2"},
		{"another owner's rule is the anchor", []any{insert("1", "b", "-j tw-b", transaction.InsertTop), after("2", "a", r("1"), transaction.JumpTo("tw-b"))}, "-j tw-b 1 f1 gate docker f2 docker2"},
		{"whichever comes first", []any{after("2", "a", r("1"), transaction.JumpTo("tw-b")), insert("1", "b", "-j tw-b", transaction.InsertTop)}, "-j tw-b 1 f1 gate docker f2 docker2"},
		{"a rule at an anchor is one too", []any{after("2", "a", r("1"), transaction.JumpTo("tw-b")), before("1", "b", "-j tw-b", docker)}, "f1 gate -j tw-b 1 docker f2 docker2"},
		{"but only where no other is", []any{before("1", "a", r("1"), transaction.JumpTo("tw-b")), before("2", "a", "-j tw-b", gate), "-A INPUT -i lo -j tw-b"},
			"f1 -j tw-b gate docker f2 docker2 1 -i lo -j tw-b"},
		{"circle", []any{before("1", "a", "-j tw-a", transaction.JumpTo("tw-b")), after("2", "a", "-j tw-b", transaction.JumpTo("tw-a"))}, "-j tw-a f1 gate docker f2 docker2 -j tw-b"},
		{"withdrawn", []any{before("1", "a", r("1"), docker), withdraw("2", "a", r("1"))}, "f1 gate docker f2 docker2"},
		{"banned", []any{before("1", "a", r("1"), docker), message("2", "a", transaction.RemoveRule("INPUT", rule(r("1")), true)), "-A INPUT " + r("1")}, "f1 gate docker f2 docker2"},

		{"missing: before is at the top", []any{before("1", "a", r("1"), nobody)}, "1 f1 gate docker f2 docker2"},
		{"missing: after is at the bottom", []any{after("1", "a", r("1"), nobody)}, "f1 gate docker f2 docker2 1"},
		{"missing: below top lists and above bottom lists", []any{before("1", "a", r("1"), nobody), after("2", "a", r("2"), nobody),
			insert("3", "b", r("3"), transaction.InsertTop), insert("4", "b", r("4"), transaction.InsertBottom), insert("5", "b", r("5"), transaction.InsertNear)},
			"3 5 1 f1 gate docker f2 docker2 2 4"},
		{"missing: two owners", []any{before("1", "b", r("1"), nobody), before("2", "a", r("2"), nobody), after("3", "b", r("3"), nobody), after("4", "a", r("4"), nobody)},
			"2 1 f1 gate docker f2 docker2 4 3"},
		{"the anchor arrives", []any{before("1", "a", r("1"), nobody), after("2", "a", r("2"), nobody), ":NOBODY - [0:0]", "-I INPUT 3 -j NOBODY"},
			"f1 1 -j NOBODY 2 gate docker f2 docker2"},
		{"the anchor goes: nothing moves", []any{before("1", "a", r("1"), docker), after("2", "a", r("2"), docker), "-D INPUT -j DOCKER-USER\n-D INPUT -p tcp -j DOCKER-USER"},
			"f1 gate 1 2 f2"},
		{"the first of its kind goes: the next is the anchor", []any{before("1", "a", r("1"), docker), "-D INPUT -j DOCKER-USER"}, "f1 gate f2 1 docker2"},
		{"the anchor goes and comes back", []any{before("1", "a", r("1"), gate), after("2", "a", r("2"), gate), `-D INPUT -m comment --comment "the gate" -j GATE`, `-I INPUT -m comment --comment "the gate" -j GATE`},
			"1 gate 2 f1 docker f2 docker2"},
		{"the anchor is doubled above", []any{before("1", "a", r("1"), docker), "-I INPUT -j DOCKER-USER"}, "1 docker f1 gate docker f2 docker2"},
		{"our rule is doubled below", []any{before("1", "a", r("1"), docker), "-A INPUT " + r("1")}, "f1 gate 1 docker f2 docker2"},
		{"and above", []any{before("1", "a", r("1"), docker), "-I INPUT " + r("1")}, "f1 gate 1 docker f2 docker2"},
		{"our rule is deleted", []any{before("1", "a", r("1"), docker), "-D INPUT " + r("1")}, "f1 gate 1 docker f2 docker2"},
		{"something is put between", []any{before("1", "a", r("1"), docker), "-I INPUT 4 -s 192.0.2.3/32 -j ACCEPT"}, "f1 gate f3 1 docker f2 docker2"},
		{"all is flushed", []any{before("1", "a", r("1"), docker), after("2", "a", r("2"), docker), "-F INPUT"}, "1 2"},
		{"a stranger's copy is taken over", []any{"-A INPUT " + r("1"), before("1", "a", r("1"), docker)}, "f1 gate 1 docker f2 docker2"},

		{"near: at the top", []any{insert("1", "a", r("1"), transaction.InsertNear)}, "1 f1 gate docker f2 docker2"},
		{"near: second is fine", []any{insert("1", "a", r("1"), transaction.InsertNear), "-I INPUT -s 192.0.2.3/32 -j ACCEPT"}, "f3 1 f1 gate docker f2 docker2"},
		{"near: below all that is on top", []any{insert("1", "a", r("1"), transaction.InsertNear), insert("2", "b", r("2"), transaction.InsertTop), insert("3", "a", r("3"), transaction.InsertNear)},
			"2 1 3 f1 gate docker f2 docker2"},
		{"near: what is added keeps the order and moves nothing", []any{insert("1", "a", r("1"), transaction.InsertNear), insert("2", "a", r("2"), transaction.InsertNear),
			"-I INPUT 2 -s 192.0.2.3/32 -j ACCEPT", insert("3", "b", r("3"), transaction.InsertNear), prio(-1, insert("4", "c", r("4"), transaction.InsertNear))}, "4 1 f3 2 3 f1 gate docker f2 docker2"},
		{"near: lost, and back at the top", []any{insert("1", "a", r("1"), transaction.InsertNear), "-I INPUT -s 192.0.2.3/32 -j ACCEPT", "-D INPUT " + r("1")}, "1 f3 f1 gate docker f2 docker2"},
		{"near: doubled", []any{insert("1", "a", r("1"), transaction.InsertNear), "-A INPUT " + r("1")}, "1 f1 gate docker f2 docker2"},
		{"near: a change of priorities there and back is one", []any{prio(1, insert("1", "a", r("1"), transaction.InsertNear)), prio(2, insert("2", "b", r("2"), transaction.InsertNear)),
			"-I INPUT -s 192.0.2.3/32 -j ACCEPT", prio(3, withdraw("3", "a", r("9"))), prio(1, withdraw("4", "a", r("9")))}, "1 2 f3 f1 gate docker f2 docker2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, together := range []bool{false, true} {
				h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
				takeSteps(h, c.steps, together)
				if got := short(h.save(), "INPUT"); got != c.want {
					t.Errorf("together: %v\n got %s\nwant %s\n%s", together, got, c.want, strings.Join(h.sent, ""))
				}
				sent := len(h.sent)
				h.read()
				h.batch(message("again", "", transaction.Refresh{}))
				if len(h.sent) > sent {
					t.Errorf("a refresh sent\n%s", h.sent[sent])
				}
			}
		})
	}
}

// takeSteps sends messages one by one or together, and refreshes after what a stranger does.
func takeSteps(h *host, steps []any, together bool) {
	h.t.Helper()
	var open []transaction.Message
	flush := func() {
		if len(open) > 0 {
			for i, o := range h.batch(open...) {
				if o.Err != nil {
					h.t.Fatalf("%s: %v", open[i].ID, o.Err)
				}
			}
		}
		open = nil
	}
	for _, s := range steps {
		switch s := s.(type) {
		case transaction.Message:
			if open = append(open, s); !together {
				h.read()
				flush()
			}
		case string:
			flush()
			h.stranger("*filter\n" + s + "\nCOMMIT\n")
			h.read()
			h.batch(message("refresh", "", transaction.Refresh{}))
		}
	}
	flush()
}

// What is sent names the place that the rule has when the block is done, and touches nothing
// that stands where it belongs.
func TestAnchorBlocks(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
	takeSteps(h, []any{
		before("1", "a", r("1"), docker), after("2", "a", r("2"), docker), insert("3", "b", r("3"), transaction.InsertTop), insert("4", "b", r("4"), transaction.InsertBottom),
		message("5", "b", transaction.SetPolicy{Chain: "INPUT", Policy: "DROP"}),
	}, true)
	takeSteps(h, []any{
		before("6", "a", r("6"), docker), "-D INPUT -j DOCKER-USER\n-I INPUT -j DOCKER-USER", withdraw("7", "a", r("2")),
	}, true)
	want := []string{
		"*filter\n:INPUT DROP [0:0]\n-I INPUT 4 " + r("2") + "\n-I INPUT 3 " + r("1") + "\n-I INPUT " + r("3") + "\n-A INPUT " + r("4") + "\nCOMMIT\n",
		"*filter\n-I INPUT 5 " + r("6") + "\nCOMMIT\n",
		// Docker's jump is first now: our top rule goes above it, and all that is placed by it follows.
		"*filter\n-D INPUT " + r("3") + "\n-D INPUT " + r("1") + "\n-D INPUT " + r("6") + "\n-D INPUT " + r("2") + "\n" +
			"-I INPUT 2 " + r("2") + "\n-I INPUT " + r("6") + "\n-I INPUT " + r("1") + "\n-I INPUT " + r("3") + "\nCOMMIT\n",
		"*filter\n-D INPUT " + r("2") + "\nCOMMIT\n",
	}
	if diff := cmp.Diff(want, h.sent); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

// Whose anchor is not there is told, and told no more when it has come.
func TestMissingAnchors(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
	takeSteps(h, []any{before("1", "a", r("1"), nobody), after("2", "b", r("2"), transaction.Commented("gone")), before("3", "a", r("3"), docker)}, true)
	var got []string
	for _, m := range h.state.MissingAnchors() {
		got = append(got, m.String())
	}
	want := []string{
		`chain INPUT: rule "-s 10.0.0.1/32 -j RETURN" of owner "a" is to stand before the first rule that jumps to chain NOBODY, and there is none`,
		`chain INPUT: rule "-s 10.0.0.2/32 -j RETURN" of owner "b" is to stand after the first rule with the comment "gone", and there is none`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	takeSteps(h, []any{`-A INPUT -m comment --comment gone -j DROP`, ":NOBODY - [0:0]\n-A INPUT -j NOBODY"}, false)
	if m := h.state.MissingAnchors(); len(m) > 0 {
		t.Errorf("still missing: %v", m)
	}
}

// A rule that reads back as several stands by its anchor with all of them, in order.
func TestAnchorOfSeveralLines(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
	two := "-s 10.0.0.1/32,10.0.0.2/32 -j RETURN"
	h.state.Learn(two, rules.Canon{r("1"), r("2")})
	takeSteps(h, []any{before("1", "a", two, docker), "-D INPUT " + r("1")}, false)
	if got := short(h.save(), "INPUT"); got != "f1 gate 1 2 docker f2 docker2" {
		t.Error(got)
	}
}

// What no anchor can be is refused, with what to do.
func TestAnchorRefusals(t *testing.T) {
	edit := func(op transaction.Op, text string, a transaction.Anchor) transaction.Body {
		return transaction.EditRules{Chain: "INPUT", Edits: []transaction.Edit{{Op: op, Rule: rule(text), Anchor: a}}}
	}
	for _, c := range []struct {
		name   string
		body   transaction.Body
		reason string
	}{
		{"no anchor", transaction.InsertRule("INPUT", rule("-j DROP"), transaction.InsertBefore), "no anchor is given"},
		{"unknown kind", edit(transaction.InsertAfter, "-j DROP", transaction.Anchor{Kind: 9, Name: "x"}), "unknown kind of anchor 9"},
		{"no name", edit(transaction.InsertAfter, "-j DROP", transaction.JumpTo("")), "empty name"},
		{"no comment", edit(transaction.InsertAfter, "-j DROP", transaction.Commented("")), "empty name"},
		{"anchor at the top", edit(transaction.InsertTop, "-j DROP", docker), "not inserted before or after"},
		{"anchor of a withdrawal", edit(transaction.Remove, "-j DROP", docker), "not inserted before or after"},
		{"a verdict", edit(transaction.InsertBefore, "-j DROP", transaction.JumpTo("ACCEPT")), "ACCEPT is a target of iptables and no chain"},
		{"an extension", edit(transaction.InsertBefore, "-j DROP", transaction.JumpTo("LOG")), "LOG is a target of iptables and no chain"},
		{"a built-in chain", edit(transaction.InsertBefore, "-j DROP", transaction.JumpTo("OUTPUT")), "built in"},
		{"no chain's name", edit(transaction.InsertBefore, "-j DROP", transaction.JumpTo(strings.Repeat("x", 29))), "29"},
		{"no rule's comment", edit(transaction.InsertBefore, "-j DROP", transaction.Commented("a\nb")), "comment"},
		{"a comment too long", edit(transaction.InsertBefore, "-j DROP", transaction.Commented(strings.Repeat("x", 256))), "comment"},
		{"itself by its jump", edit(transaction.InsertBefore, "-i lo -j tw-a", transaction.JumpTo("tw-a")), "its own anchor: it is itself a rule that jumps to chain tw-a"},
		{"itself by its comment", edit(transaction.InsertAfter, "-m comment --comment=me -j DROP", transaction.Commented("me")), `its own anchor: it is itself a rule with the comment "me"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
			o := h.batch(message("1", "a", c.body))[0]
			if !errors.Is(o.Err, transaction.ErrAnchor) || !strings.Contains(o.Err.Error(), c.reason) || o.Err.Chain != "INPUT" || o.Err.Rule == "" {
				t.Errorf("got %v, want ErrAnchor with %q", o.Err, c.reason)
			}
			if len(h.sent) > 0 {
				t.Errorf("sent %q", h.sent)
			}
		})
	}
}

// Who lists a rule at an anchor keeps others from banning it, and the other way round.
func TestAnchorsAndBans(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, gated)
	ban := func(id, owner string) transaction.Message {
		return message(id, owner, transaction.RemoveRule("INPUT", rule(r("1")), true))
	}
	out := h.batch(before("1", "a", r("1"), docker), ban("2", "b"), withdraw("3", "a", r("1")), ban("4", "b"), after("5", "a", r("1"), docker))
	if got := results(out); got != "23113" || !errors.Is(out[1].Err, transaction.ErrBanned) || !errors.Is(out[4].Err, transaction.ErrBanned) {
		t.Errorf("results %s: %v, %v", got, out[1].Err, out[4].Err)
	}
}
