// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_g_test.go: what the restore tools say.

// unsuspecting is a Kernel that lets rules of every kind pass before they are sent: what is
// wrong with them shows on the live table, and is searched for as ever.
type unsuspecting struct{ *dataplane.Kernel }

func (k unsuspecting) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	if b.Unit == nil && !b.Whole {
		return dataplane.Trial{}, nil
	}
	return k.Kernel.Try(ctx, id, b)
}

// unaided is a dataplane that nothing can be tried in: it has no Try.
type unaided struct{ actors.Dataplane }

// lackedMatch is a rule that the tools take and the kernel refuses, wherever it stands: legacy
// names its COMMIT line then, and gives no reason.
const lackedMatch = "-m ipvs --ipvs -j DROP"

// R68: "line 75 failed", and line 75 is COMMIT. The message that the kernel does not take is
// found in few blocks, and the answer names its chain and the rule, not a line of a block that
// nobody sees. The report asks to try again a few times first; here the search comes first,
// and tells a race, of which the same block is sent once more, from a refusal.
func TestR68CommitLineLeadsToTheRule(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for name, dp := range map[string]actors.Dataplane{"kinds first": k, "live first": unsuspecting{k}} {
			l := newDocket(t, dp, rules.TableID{IPVersion: v, Name: "filter"}, k.Info().Backend)
			msgs := among(64, transaction.Message{ID: "bad", Body: transaction.RewriteChains{Chains: []rules.Chain{
				chainOf("tw-bad", "-p tcp -j ACCEPT", "-j RETURN"), chainOf("tw-worse", "-p udp -j ACCEPT", lackedMatch, "-p tcp -j DROP"),
			}}})
			l.batch(msgs...)
			l.results(msgs, actors.Rejected, "bad")
			l.atMost(2, 20)
			e := l.refusal("bad")
			if e.Chain != "tw-worse" || e.Rule != lackedMatch || strings.Contains(e.Error(), "line ") || e.Advice == "" || e.Command == "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	})
}

// R68: where nothing can be tried beside the live table, legacy leaves only the message. Its
// answer says how many rules it may be, and of which chains.
func TestR68CommitLineWithoutScratch(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	b.send("bad", transaction.RewriteChains{Chains: []rules.Chain{
		chainOf("tw-a", "-p tcp -j ACCEPT", "-j RETURN"), chainOf("tw-b", "-p udp -j ACCEPT", "-j MASQUERADE"),
	}})
	b.write("good", "tw-c", "-j ACCEPT")
	b.m.Settle()
	if b.answers["bad"] != "rejected" || b.answers["good"] != "applied" || count(b.log, "restore") > 4 {
		t.Errorf("%v\n%s", b.answers, strings.Join(b.log, "\n"))
	}
	for _, word := range []string{"one of the message's 4 rules", "chains tw-a, tw-b", "try its rules one by one"} {
		if !strings.Contains(b.errs["bad"].Error(), word) {
			t.Errorf("the answer does not say %q: %v", word, b.errs["bad"])
		}
	}
}

// R70: whatever number of a line a tool names, in whatever form, nothing falls over: each
// message has its answer, and a number that is no line of the block blames nobody for it. The
// line of one form and of the other lead to the message.
func TestR70AnyLineNumber(t *testing.T) {
	forms := map[string]struct {
		exit int
		text string
	}{
		"legacy": {1, "iptables-restore: line %s failed\n"},
		"parser": {2, "iptables-restore v1.8.9 (legacy): bad word\nError occurred at line: %s\n"},
		"nft":    {4, "iptables-nft-restore v1.8.9 (nf_tables): \nline %s: RULE_APPEND failed (Invalid argument): rule in chain tw-b\n"},
	}
	for name, form := range forms {
		for _, n := range []string{"-1", "0", "1", "4", "7", "8", "999", "99999999999999999999"} {
			for _, times := range []int{1, 1000} {
				b := newBench(t, dataplane.NFT, transaction.Config{})
				left := times
				b.sim.Hook = func(c dataplane.Call) error {
					if c.Op != dataplane.OpRestore || left == 0 {
						return nil
					}
					left--
					return dataplane.Classify(form.exit, fmt.Sprintf(form.text, n), c.Input)
				}
				want := map[string]string{"a": "applied", "b": "applied", "c": "applied"}
				switch {
				case times > 1: // what fails each time is refused in the end
					want = map[string]string{"a": "rejected", "b": "rejected", "c": "rejected"}
				case name == "parser" && (n == "4" || n == "7"): // the parser's word is taken; else there is a second look
					want["c"] = "rejected"
				}
				for _, chain := range []string{"a", "b", "c"} { // lines 2 to 4 declare, 5 to 7 are the rules
					b.write(chain, "tw-"+chain, "-j ACCEPT")
				}
				b.m.Settle()
				if diff := cmp.Diff(want, b.answers); diff != "" || times-left > 7 {
					t.Errorf("%s names line %s %d times: %d blocks, answers (-want +got):\n%s", name, n, times, times-left, diff)
				}
			}
		}
	}
}

// R73: whatever the order in which chains and what jumps to them come, in a block all chains
// are declared before the first rule, and the tools take it.
func TestR73DeclarationsFirst(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		l := newDocket(t, k, rules.TableID{IPVersion: v, Name: "mangle"}, k.Info().Backend)
		msgs := []transaction.Message{
			{ID: "hook", Body: transaction.InsertRule("PREROUTING", rule("-j tw-PRE"), transaction.InsertTop)},
			writes("allow", "tw-PRE-public-allow", "-s 192.0.2.9/32 -j MARK --set-xmark 0x2/0xffffffff"),
			writes("public", "tw-PRE-public", "-j tw-PRE-public-allow", "-j tw-z"),
			writes("pre", "tw-PRE", "-j tw-PRE-public", "-g tw-missing"),
			{ID: "policy", Body: transaction.SetPolicy{Chain: "PREROUTING", Policy: "ACCEPT"}},
			writes("z", "tw-z", "-j RETURN"),
		}
		if v == rules.IPv6 {
			msgs[1] = writes("allow", "tw-PRE-public-allow", "-s 2001:db8::9/128 -j MARK --set-xmark 0x2/0xffffffff")
		}
		for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {2, 0, 5, 3, 1, 4}} {
			var shuffled, gone []transaction.Message
			for _, i := range order {
				shuffled = append(shuffled, msgs[i])
			}
			l.batch(shuffled...)
			l.results(shuffled, actors.Rejected)
			l.atMost(1, 10)
			for _, e := range l.events {
				if e.Kind == actors.EventRestore {
					checkDeclaredFirst(t, string(e.Input))
				}
			}
			gone = append(gone, transaction.Message{ID: "unhook", Body: transaction.RemoveRule("PREROUTING", rule("-j tw-PRE"), false)},
				transaction.Message{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-PRE", "tw-PRE-public", "tw-PRE-public-allow", "tw-z"}}})
			l.batch(gone...)
			l.results(gone, actors.Rejected)
		}
	})
}

func checkDeclaredFirst(t *testing.T, input string) {
	t.Helper()
	var declared []string
	began := false
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		switch {
		case f[0][0] == ':' && began:
			t.Errorf("%s is declared behind a rule:\n%s", f[0][1:], input)
		case f[0][0] == ':':
			declared = append(declared, f[0][1:])
		case f[0][0] == '-':
			began = true
			if to := f[len(f)-1]; strings.HasPrefix(to, "tw-") && !slices.Contains(declared, to) {
				t.Errorf("%s is not declared:\n%s", to, input)
			}
		}
	}
}

// R74: a block is of one table, so that what fails in one leaves nothing half done in another.
func TestR74OneTableEach(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		l := newDocket(t, k, rules.TableID{IPVersion: v, Name: "filter"}, k.Info().Backend)
		tables := []string{"filter", "mangle", "nat"}
		for _, table := range tables {
			for _, m := range []transaction.Message{writes(table+" good", "tw-good", "-j RETURN"), writes(table+" bad", "tw-bad", lackedMatch)} {
				if err := l.m.Send(rules.TableID{IPVersion: v, Name: table}, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.m.Settle()
		for id, a := range l.answers {
			if good := strings.HasSuffix(id, "good"); good != (a.Result == actors.Applied) {
				t.Errorf("%s: %v: %v", id, a.Result, a.Err)
			}
		}
		blocks := map[string]int{}
		for _, e := range l.events {
			if e.Kind != actors.EventRestore {
				continue
			}
			blocks[e.Table.Name]++
			if in := string(e.Input); !strings.HasPrefix(in, "*"+e.Table.Name+"\n") || strings.Count(in, "\n*") > 0 || strings.Count(in, "COMMIT\n") != 1 {
				t.Errorf("a block of %s:\n%s", e.Table, in)
			}
		}
		if len(l.answers) != 2*len(tables) || len(blocks) != len(tables) {
			t.Errorf("%d answers, blocks %v", len(l.answers), blocks)
		}
	})
}

// R94, R95: names are judged when the message comes, by the bytes that the kernel has room
// for; whoever has longer names shortens them, and can tell what a chain stands for.
func TestR94R95NamesAtTheLimit(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		l := kernelDocket(t, k, v, "filter")
		var names rules.Names
		for i, c := range []struct {
			name string
			fits bool
		}{
			{"tw-" + strings.Repeat("c", 24), true}, {"tw-" + strings.Repeat("c", 25), true}, {"tw-" + strings.Repeat("c", 26), false},
			{"tw-" + strings.Repeat("c", 27), false}, {"tw-" + strings.Repeat("c", 28), false},
			{strings.Repeat("é", 14), true}, {strings.Repeat("é", 14) + "x", false}, {strings.Repeat("é", 15), false},
		} {
			msgs := among(4, writes("long", c.name, "-j RETURN"))
			l.batch(msgs...)
			if c.fits {
				l.results(msgs, actors.Rejected)
				if got := held(t, k, l.id, c.name); len(got) != 1 {
					t.Errorf("%q holds %q", c.name, got)
				}
				continue
			}
			l.results(msgs, actors.Rejected, "long")
			l.atMost(1, 10)
			if e := l.refusal("long"); !errors.Is(e, transaction.ErrBadName) || !strings.Contains(e.Reason, fmt.Sprintf("has %d bytes: at most 28", len(c.name))) {
				t.Errorf("%q: %v", c.name, e)
			}
			if _, err := rules.ParseRule("-j " + c.name); err == nil || !strings.Contains(err.Error(), "at most 28") {
				t.Errorf("a jump to %q: %v", c.name, err)
			}
			short := names.Of("tw-", c.name)
			m := writes(fmt.Sprint("short", i), short, "-j RETURN")
			l.batch(m)
			l.results([]transaction.Message{m}, actors.Rejected)
			if id, ok := names.ID(short); !ok || id != c.name {
				t.Errorf("%s stands for %q, want %q", short, id, c.name)
			}
		}
	})
}
