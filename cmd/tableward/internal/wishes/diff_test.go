// SPDX-License-Identifier: Apache-2.0

package wishes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// files are versions of rules files, by name, without "*filter" and "COMMIT".
type files map[string]string

func (f files) messages(t *testing.T) []Message {
	t.Helper()
	var out []Message
	for _, name := range slices.Sorted(maps.Keys(f)) {
		file, err := rulefile.Parse(name, []byte("*filter\n"+f[name]+"COMMIT\n"), rulefile.Options{Policies: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range file.Messages {
			out = append(out, Message{m.Table, m.Message})
		}
	}
	return out
}

// show writes a message on one line.
func show(m Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s ", m.Owner)
	switch body := m.Body.(type) {
	case transaction.RewriteChains:
		fmt.Fprintf(&b, "rewrite %s", body.Chains[0].Name)
	case transaction.DeleteChains:
		fmt.Fprintf(&b, "delete %s", body.Chains[0])
	case transaction.SetPolicy:
		fmt.Fprintf(&b, "policy %s %s", body.Chain, body.Policy)
	case transaction.EditRules:
		fmt.Fprintf(&b, "%s", body.Chain)
		for _, e := range body.Edits {
			fmt.Fprintf(&b, " %s[%s]", map[transaction.Op]string{
				transaction.InsertFirst: "first", transaction.InsertBottom: "bottom", transaction.Remove: "remove", transaction.Ban: "ban",
				transaction.InsertNear: "near", transaction.InsertBefore: "before " + e.Anchor.Name, transaction.InsertAfter: "after " + e.Anchor.Name,
			}[e.Op], e.Rule)
		}
	}
	return b.String()
}

const web = ":web-in - [0:0]\n-A web-in -j ACCEPT\n-A INPUT -j web-in\n"

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after files
		want          []string
	}{
		{"first version", nil, files{"web.rules": web}, []string{"web rewrite web-in", "web INPUT bottom[-j web-in]"}},
		{"nothing changed", files{"web.rules": web}, files{"web.rules": web}, nil},
		{"comments and order of chains", files{"web.rules": web + ":web-b - [0:0]\n"}, files{"web.rules": "# new\n:web-b - [0:0]\n" + web}, nil},
		{"chain changed", files{"web.rules": web}, files{"web.rules": strings.Replace(web, "-j ACCEPT", "-j DROP", 1)}, []string{"web rewrite web-in"}},
		{"chain removed", files{"web.rules": web + ":web-b - [0:0]\n"}, files{"web.rules": web}, []string{"web delete web-b"}},
		{"chain and its hook removed", files{"web.rules": web}, files{"web.rules": ""}, []string{"web INPUT remove[-j web-in]", "web delete web-in"}},
		{"chain deleted by -X instead", files{"web.rules": ":web-b - [0:0]\n"}, files{"web.rules": "-X web-b\n"}, []string{"web delete web-b"}},
		{"chain renamed", files{"web.rules": web}, files{"web.rules": strings.ReplaceAll(web, "web-in", "web-new")},
			[]string{"web INPUT remove[-j web-in]", "web delete web-in", "web rewrite web-new", "web INPUT bottom[-j web-new]"}},
		{"rule removed", files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 2.2.2.2 -j DROP\n-A INPUT -s 3.3.3.3 -j DROP\n"},
			files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 3.3.3.3 -j DROP\n"},
			[]string{"web INPUT remove[-s 2.2.2.2 -j DROP]"}},
		{"rule added at the end", files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n"},
			files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 2.2.2.2 -j DROP\n"},
			[]string{"web INPUT bottom[-s 1.1.1.1 -j DROP] bottom[-s 2.2.2.2 -j DROP]"}},
		{"rule added in front of another", files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 2.2.2.2 -j DROP\n"},
			files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 3.3.3.3 -j DROP\n-A INPUT -s 2.2.2.2 -j DROP\n"},
			[]string{"web INPUT remove[-s 2.2.2.2 -j DROP]", "web INPUT bottom[-s 1.1.1.1 -j DROP] bottom[-s 3.3.3.3 -j DROP] bottom[-s 2.2.2.2 -j DROP]"}},
		{"rule moved", files{"web.rules": "-A INPUT -s 1.1.1.1 -j DROP\n-A INPUT -s 2.2.2.2 -j DROP\n"},
			files{"web.rules": "-A INPUT -s 2.2.2.2 -j DROP\n-A INPUT -s 1.1.1.1 -j DROP\n"},
			[]string{"web INPUT remove[-s 1.1.1.1 -j DROP]", "web INPUT bottom[-s 2.2.2.2 -j DROP] bottom[-s 1.1.1.1 -j DROP]"}},
		{"rule moved at the top", files{"web.rules": "-I INPUT -s 1.1.1.1 -j DROP\n-I INPUT -s 2.2.2.2 -j DROP\n"},
			files{"web.rules": "-I INPUT -s 2.2.2.2 -j DROP\n-I INPUT -s 1.1.1.1 -j DROP\n"},
			[]string{"web INPUT remove[-s 1.1.1.1 -j DROP]", "web INPUT first[-s 2.2.2.2 -j DROP] first[-s 1.1.1.1 -j DROP]"}},
		{"rule moved to the top", files{"web.rules": "-A INPUT -j DROP\n"}, files{"web.rules": "-I INPUT -j DROP\n"},
			[]string{"web INPUT remove[-j DROP]", "web INPUT first[-j DROP]"}},
		{"rule moved to another chain", files{"web.rules": "-A INPUT -j DROP\n"}, files{"web.rules": "-A FORWARD -j DROP\n"},
			[]string{"web INPUT remove[-j DROP]", "web FORWARD bottom[-j DROP]"}},
		{"rule given a place", files{"web.rules": "-A INPUT -j DROP\n"}, files{"web.rules": "# place: before chain X\n-A INPUT -j DROP\n"},
			[]string{"web INPUT remove[-j DROP]", "web INPUT before X[-j DROP]"}},
		{"place changed", files{"web.rules": "# place: before chain X\n-A INPUT -j DROP\n# place: near\n-A INPUT -j LOG\n"},
			files{"web.rules": "# place: after comment X\n-A INPUT -j DROP\n# place: near\n-A INPUT -j LOG\n"},
			[]string{"web INPUT remove[-j DROP] remove[-j LOG]", "web INPUT after X[-j DROP] near[-j LOG]"}},
		{"place kept", files{"web.rules": "# place: before chain X\n-A INPUT -j DROP\n"}, files{"web.rules": "# place: before chain X\n-A INPUT -j DROP\n"}, nil},
		{"policy dropped", files{"web.rules": ":INPUT DROP [0:0]\n"}, files{"web.rules": ":INPUT - [0:0]\n"}, []string{"web policy INPUT -"}},
		{"policy changed", files{"web.rules": ":INPUT DROP [0:0]\n"}, files{"web.rules": ":INPUT ACCEPT [0:0]\n"}, []string{"web policy INPUT ACCEPT"}},
		{"ban kept", files{"web.rules": "-D INPUT -j DROP\n"}, files{"web.rules": "-D INPUT -j DROP\n"}, nil},
		{"ban lifted", files{"web.rules": "-D INPUT -j DROP\n"}, files{"web.rules": ""}, []string{"web INPUT remove[-j DROP]"}},
		{"rule banned", files{"web.rules": "-A INPUT -j DROP\n"}, files{"web.rules": "-D INPUT -j DROP\n"},
			[]string{"web INPUT remove[-j DROP]", "web INPUT ban[-j DROP]"}},
		{"rule banned all along", files{"web.rules": "-A INPUT -j DROP\n-D INPUT -j DROP\n"}, files{"web.rules": "-A INPUT -j DROP\n-D INPUT -j DROP\n"}, nil},
		{"file gone", files{"web.rules": web, "dns.rules": ":dns - [0:0]\n"}, files{"dns.rules": ":dns - [0:0]\n"},
			[]string{"web INPUT remove[-j web-in]", "web delete web-in"}},
		{"owner renamed", files{"web.rules": web + ":INPUT DROP [0:0]\n-D INPUT -j LOG\n"}, files{"www.rules": web + ":INPUT DROP [0:0]\n-D INPUT -j LOG\n"},
			[]string{"web policy INPUT -", "web INPUT remove[-j web-in] remove[-j LOG]", "web delete web-in",
				"www rewrite web-in", "www INPUT bottom[-j web-in]", "www policy INPUT DROP", "www INPUT ban[-j LOG]"}},
		{"file split between files of one owner", files{"web.rules": web + ":web-b - [0:0]\n"},
			files{"web.a.rules": web, "web.b.rules": ":web-b - [0:0]\n"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			held := &Held{}
			for _, m := range c.before.messages(t) {
				held.Apply(m)
			}
			want := c.after.messages(t)
			withdraw, send := held.Diff(want)
			var got []string
			for _, m := range withdraw {
				got = append(got, show(m))
			}
			for _, i := range send {
				got = append(got, show(want[i]))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDiffLeads holds that the messages lead to exactly what the new version says, whatever
// was held, and that nothing is left to send then.
func TestDiffLeads(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	held := &Held{}
	for range 20_000 {
		want := randomVersion(rnd)
		goal := &Held{}
		for _, m := range want {
			goal.Apply(m)
		}
		withdraw, send := held.Diff(want)
		for _, m := range withdraw {
			held.Apply(m)
		}
		for _, i := range send {
			held.Apply(want[i])
		}
		if diff := cmp.Diff(goal.dump(), held.dump()); diff != "" {
			t.Fatalf("held (-want +got):\n%s", diff)
		}
		withdraw, send = held.Diff(want)
		if len(withdraw) > 0 {
			t.Fatalf("withdrawn without need: %v", withdraw)
		}
		deletes := slices.ContainsFunc(want, func(m Message) bool { return m.Body.Kind() == "delete" })
		for _, i := range send {
			if !deletes { // which are always sent, and then what they took is needed
				t.Fatalf("sent without need: %s", show(want[i]))
			}
		}
	}
}

// randomVersion is a few messages of few owners about few things.
func randomVersion(rnd *rand.Rand) []Message {
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	var out []Message
	for range rnd.IntN(8) {
		owner, chain := pick(rnd, "a", "b"), pick(rnd, "x", "y", "z")
		var body transaction.Body
		switch rnd.IntN(8) {
		case 0:
			body = transaction.DeleteChains{Chains: []string{chain}}
		case 1:
			body = transaction.SetPolicy{Chain: pick(rnd, "INPUT", "OUTPUT"), Policy: pick(rnd, "DROP", "ACCEPT")}
		case 2, 3:
			body = transaction.RewriteChains{Chains: []rules.Chain{{Name: chain, Rules: randomRules(rnd)}}}
		default:
			edits := []transaction.Edit{}
			for _, r := range append(randomRules(rnd), rules.MustParseRule("-j DROP")) {
				e := transaction.Edit{Op: []transaction.Op{
					transaction.InsertFirst, transaction.InsertBottom, transaction.Ban,
					transaction.InsertNear, transaction.InsertBefore, transaction.InsertAfter,
				}[rnd.IntN(6)], Rule: r}
				if e.Op == transaction.InsertBefore || e.Op == transaction.InsertAfter {
					e.Anchor = transaction.JumpTo(pick(rnd, "X", "Y"))
				}
				edits = append(edits, e)
			}
			body = transaction.EditRules{Chain: pick(rnd, "INPUT", "OUTPUT"), Edits: edits}
		}
		out = append(out, Message{id, transaction.Message{Owner: owner, Body: body}})
	}
	return out
}

func randomRules(rnd *rand.Rand) []rules.Rule {
	var out []rules.Rule
	for range rnd.IntN(4) {
		out = append(out, rules.MustParseRule(fmt.Sprintf("-s 192.0.2.%d -j DROP", rnd.IntN(5))))
	}
	return out
}

func pick(rnd *rand.Rand, words ...string) string { return words[rnd.IntN(len(words))] }

// dump writes down what is held; the order of bans says nothing.
func (h *Held) dump() []string {
	var out []string
	for k, c := range h.chains {
		out = append(out, fmt.Sprint(k, c))
	}
	for k, l := range h.lists {
		slices.SortFunc(l.bans, func(a, b rules.Rule) int { return strings.Compare(a.String(), b.String()) })
		out = append(out, fmt.Sprint(k, l))
	}
	for k, p := range h.policies {
		out = append(out, fmt.Sprint(k, p))
	}
	slices.Sort(out)
	return out
}

// TestLedger holds that a refused message leaves no trace, whenever its answer comes.
func TestLedger(t *testing.T) {
	version := func(text string) Message { return files{"web.rules": text}.messages(t)[0] }
	var l Ledger
	first := l.Send(version(":web-in - [0:0]\n-A web-in -j ACCEPT\n"))
	second := l.Send(version(":web-in - [0:0]\n-A web-in -j DROP\n"))
	third := l.Send(version(":web-b - [0:0]\n"))
	l.Settle(third, true)
	l.Settle(second, false)
	if !l.View(nil).HasChain(first.Table, "web-in") || !l.View(nil).HasChain(first.Table, "web-b") {
		t.Error("a message without an answer, or one answered early, is not seen")
	}
	if l.View(func(e *Entry) bool { return e == first }).HasChain(first.Table, "web-in") {
		t.Error("what is excepted is seen")
	}
	l.Settle(first, true)
	if _, send := l.View(nil).Diff([]Message{first.Message, third.Message}); len(send) > 0 || len(l.sent) > 0 {
		t.Errorf("%d to send, %d without an answer", len(send), len(l.sent))
	}
}
