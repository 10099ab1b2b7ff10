// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// verdicts are the outcomes as words: "1 applied", "2 conflict with 3".
func verdicts(msgs []transaction.Message, out []transaction.Outcome) []string {
	words := map[transaction.Result]string{
		transaction.Applied: "applied", transaction.Superseded: "superseded", transaction.Rejected: "rejected",
		transaction.Conflict: "conflict", transaction.Waiting: "waiting",
	}
	var got []string
	for i, o := range out {
		word := msgs[i].ID + " " + words[o.Result]
		if o.Err != nil && len(o.Err.With) > 0 {
			word += " with " + strings.Join(o.Err.With, " ")
		}
		got = append(got, word)
	}
	return got
}

// D4: messages that fail only together are told a part of the batch of which no part fails,
// the first in order if there are several, and nothing of it is applied.
func TestConflictsAreMinimal(t *testing.T) {
	jump := func(id, from string, to ...string) transaction.Message {
		var texts []string
		for _, name := range to {
			texts = append(texts, "-j "+name)
		}
		return rewrite(id, "o"+id, chainOf(from, texts...))
	}
	hook := func(id, kernel, to string) transaction.Message {
		return message(id, "o"+id, transaction.InsertRule(kernel, rule("-j "+to), transaction.InsertTop))
	}
	for _, c := range []struct {
		name  string
		cfg   transaction.Config
		first []transaction.Message
		msgs  []transaction.Message
		want  []string
	}{
		{
			name: "a loop of two, and one beside it",
			msgs: []transaction.Message{jump("1", "tw-a", "tw-b"), jump("2", "tw-c"), jump("3", "tw-b", "tw-a")},
			want: []string{"1 conflict with 3", "2 applied", "3 conflict with 1"},
		},
		{
			name: "of two loops with a jump in common the earlier one",
			msgs: []transaction.Message{
				jump("1", "tw-a", "tw-b"), jump("2", "tw-b", "tw-c", "tw-d"), jump("3", "tw-c", "tw-a"), jump("4", "tw-d", "tw-a"),
			},
			want: []string{"1 conflict with 2 3", "2 conflict with 1 3", "3 conflict with 1 2", "4 applied"},
		},
		{
			name: "the short way of two: no part of the answer fails",
			msgs: []transaction.Message{
				jump("1", "tw-x", "tw-b"), jump("2", "tw-a", "tw-x", "tw-b"), jump("3", "tw-b", "tw-a"),
			},
			want: []string{"1 applied", "2 conflict with 3", "3 conflict with 2"},
		},
		{
			name:  "what was there before is nobody's fault: one closes the circle alone",
			first: []transaction.Message{jump("0", "tw-a", "tw-b")},
			msgs:  []transaction.Message{jump("1", "tw-b", "tw-a"), jump("2", "tw-c", "tw-a")},
			want:  []string{"1 rejected", "2 applied"},
		},
		{
			name:  "depth: only who is on the longest way",
			cfg:   transaction.Config{MaxDepth: 3},
			first: []transaction.Message{jump("0", "tw-c", "tw-d")},
			msgs:  []transaction.Message{hook("1", "INPUT", "tw-a"), jump("2", "tw-a", "tw-b"), jump("3", "tw-b", "tw-c"), jump("4", "tw-e", "tw-c")},
			want:  []string{"1 conflict with 2 3", "2 conflict with 1 3", "3 conflict with 1 2", "4 applied"},
		},
		{
			name:  "a target that a new jump makes reachable from the wrong hook",
			cfg:   transaction.Config{Backend: "nft", Table: rules.TableID{IPVersion: rules.IPv4, Name: "nat"}},
			first: []transaction.Message{jump("0", "tw-a", "tw-b")},
			msgs: []transaction.Message{
				hook("1", "PREROUTING", "tw-a"), jump("2", "tw-c"),
				rewrite("3", "o3", chainOf("tw-b", "-j SNAT --to-source 192.0.2.1")), hook("4", "POSTROUTING", "tw-c"),
			},
			want: []string{"1 conflict with 3", "2 applied", "3 conflict with 1", "4 applied"},
		},
		{
			name: "and one whose chain is reached from there already",
			cfg:  transaction.Config{Backend: "legacy", Table: rules.TableID{IPVersion: rules.IPv4, Name: "nat"}},
			first: []transaction.Message{
				hook("h", "PREROUTING", "tw-a"), jump("0", "tw-a", "tw-b"),
			},
			msgs: []transaction.Message{rewrite("1", "o", chainOf("tw-b", "-j SNAT --to-source 192.0.2.1")), jump("2", "tw-c")},
			want: []string{"1 rejected", "2 applied"},
		},
		{
			name:  "the content is older: who makes it reachable is at fault",
			cfg:   transaction.Config{Backend: "nft"},
			first: []transaction.Message{rewrite("0", "o", chainOf("tw-b", "-m owner --uid-owner 0 -j DROP"))},
			msgs:  []transaction.Message{hook("1", "OUTPUT", "tw-b"), hook("2", "FORWARD", "tw-b")},
			want:  []string{"1 applied", "2 rejected"},
		},
		{
			name: "a target that the table does not have",
			cfg:  transaction.Config{Backend: "nft"},
			msgs: []transaction.Message{rewrite("1", "o", chainOf("tw-b", "-j MASQUERADE")), jump("2", "tw-c", "tw-b")},
			want: []string{"1 rejected", "2 applied"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.cfg
			cfg.Prefixes = []string{"tw-"}
			h := newHost(t, cfg, "")
			if len(c.first) > 0 {
				for i, o := range h.batch(c.first...) {
					if o.Result != transaction.Applied {
						t.Fatalf("%s: %v", c.first[i].ID, o.Err)
					}
				}
			}
			if diff := cmp.Diff(c.want, verdicts(c.msgs, h.batch(c.msgs...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The sentence names the place, the way there, and what to write instead.
func TestPlaceErrorsSayWhatToDo(t *testing.T) {
	h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}, Backend: "legacy"}, "*filter\n:tw-d - [0:0]\n-A FORWARD -j tw-d\nCOMMIT\n")
	h.batch(rewrite("0", "o", chainOf("tw-d", "-j tw-a")))
	out := h.batch(rewrite("1", "web", chainOf("tw-a", "-p tcp -j DROP", "-p tcp -m owner --uid-owner 0 -j DROP")))
	err := out[0].Err
	if err == nil || !errors.Is(err, transaction.ErrPlace) || err.Chain != "tw-a" || err.Rule != "-p tcp -m owner --uid-owner 0 -j DROP" ||
		err.Column != 11 || err.Advice == "" || !strings.Contains(err.Reason, "FORWARD -> tw-d -> tw-a") {
		t.Errorf("%#v", err)
	}
}

// What fails together is what a search through all parts of the batch finds.
func TestPropertyConflictsAreMinimal(t *testing.T) {
	names := []string{"tw-a", "tw-b", "tw-c", "tw-d", "tw-e"}
	rapid.Check(t, func(rt *rapid.T) {
		h := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, "")
		var msgs []transaction.Message
		for i, name := range names { // one writer for each chain, so that a part of a part is simple
			if !rapid.Bool().Draw(rt, "sent") {
				continue
			}
			var texts []string
			for _, to := range names {
				if to != name && rapid.IntRange(0, 2).Draw(rt, "jump") == 0 {
					texts = append(texts, "-j "+to)
				}
			}
			msgs = append(msgs, rewrite(fmt.Sprint(i), "o", chainOf(name, texts...)))
		}
		_, out := h.state.Propose(msgs)
		fails := func(part []transaction.Message) bool {
			_, out := h.state.Propose(part)
			return slices.ContainsFunc(out, func(o transaction.Outcome) bool { return o.Err != nil })
		}
		for i, o := range out {
			if o.Err == nil {
				continue
			}
			var part []transaction.Message
			for j, m := range msgs {
				if i == j || slices.Contains(o.Err.With, m.ID) {
					part = append(part, m)
				}
			}
			if !fails(part) {
				rt.Fatalf("%v does not fail by itself", o.Err)
			}
			for j := range part {
				if less := slices.Delete(slices.Clone(part), j, j+1); fails(less) {
					rt.Fatalf("%v with %v: a part of it fails too", o.Err, o.Err.With)
				}
			}
		}
		var good []transaction.Message
		for i, o := range out {
			if o.Err == nil {
				good = append(good, msgs[i])
			}
		}
		if fails(good) {
			rt.Fatal("what is left fails")
		}
	})
}
