// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_b_test.go.

// R13 without a prefix: who restores an old save brings a chain back that a message of ours had
// made and deleted, with its jump in a chain that we have nothing else in. Both go again.
func TestR13NameWithoutPrefix(t *testing.T) {
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("old", ports(1)...)}})
		h.ask(transaction.InsertRule("OUTPUT", rule("-j old"), transaction.InsertTop))
		saved := h.tool("", "-save", "-t", h.id.Name)
		h.ask(transaction.RemoveRule("OUTPUT", rule("-j old"), false))
		h.ask(transaction.DeleteChains{Chains: []string{"old"}})
		want := map[string][]string{"old": nil, "OUTPUT": {}}
		h.holds("the chain is gone", want)
		h.tool(saved, "-restore", "-w", "5")
		h.refresh()
		h.holds("it is gone again", want)
	})
}

// R25: a rival who comes every ten seconds, for hours, fills no log: of the same drift there is
// less and less to read. The rule that stands where ours should be is named.
func TestR25SlowRivalFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		dp := &rival{dataplane.NewSim(dataplane.NFT), make(chan struct{})}
		rt := newRuntime(t, dp, actors.Options{NoJitter: true, Logger: zerolog.New(&log)})
		if a, err := rt.Send(context.Background(), filter4, writes("chain", "tw-in", "-j RETURN"), transaction.Message{ID: "hook", Body: transaction.InsertRule("INPUT", rule(ours), transaction.InsertTop)}); err != nil || a[1].Err != nil {
			t.Fatal(err, a)
		}
		time.Sleep(time.Second)
		if moves := dp.fight(t, 10*time.Second, 3*time.Hour, true); moves != 1080 {
			t.Errorf("%d moves", moves)
		}
		settleDeadLetters(t, rt)
		said := log.String()
		if lines := strings.Count(said, "\n"); lines > 10 || !strings.Contains(said, "1 rule out of place, at the head is "+theirs) {
			t.Errorf("%d lines of log:\n%s", lines, said)
		}
	})
}

// R31: a jump that somebody has put in himself is his, though it leads to a chain of ours: it
// goes by no look at the table, not with the same rule of ours in another chain, and not with
// the chain's content.
func TestR31OthersJumpToOurs(t *testing.T) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b := newBench(t, backend, transaction.Config{})
		const his = "-A INPUT -p udp -j ACCEPT\n-A INPUT -j tw-in\n"
		if err := b.sim.Load(rules.IPv4, []byte("*filter\n:tw-in - [0:0]\n"+his+"COMMIT\n")); err != nil {
			t.Fatal(err)
		}
		step := 0
		after := func(what, content string, bodies ...transaction.Body) {
			t.Helper()
			for _, body := range append(bodies, transaction.Cleanup{}, transaction.Refresh{}, transaction.Cleanup{}) {
				step++
				b.send(fmt.Sprint(step), body)
				b.m.Settle()
			}
			if save := b.sim.Save(filter4); !strings.Contains(save, "\n"+his) || !strings.Contains(save, "\n-A tw-in "+content+"\n") || strings.Contains(save, "-A FORWARD") {
				t.Errorf("%s, %s:\n%s", backend, what, save)
			}
		}
		after("written", "-p tcp -j ACCEPT", body("tw-in", "-p tcp -j ACCEPT"))
		after("hooked and unhooked", "-p tcp -j ACCEPT",
			transaction.InsertRule("FORWARD", rule("-j tw-in"), transaction.InsertTop), transaction.RemoveRule("FORWARD", rule("-j tw-in"), false))
		after("deleted", `-m comment --comment "tableward: condemned chain" -j DROP`, transaction.DeleteChains{Chains: []string{"tw-in"}})
		after("written again", "-p tcp -j ACCEPT", body("tw-in", "-p tcp -j ACCEPT"))
	}
}

// R32: however many copies an insert makes one of, and a remove none, the rules between them
// keep their counters.
func TestR32OthersKeepTheirCounters(t *testing.T) {
	const between = "-p udp -j ACCEPT"
	const copies = "*filter\n-F INPUT\n-A INPUT -j tw-a\n[7:70] -A INPUT " + between + "\n-A INPUT -j tw-a\n-A INPUT -j tw-a\n[8:80] -A INPUT -p sctp -j DROP\nCOMMIT\n"
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		foreign := func() []string {
			return slices.DeleteFunc(strings.Split(h.counted("INPUT"), "\n"), func(line string) bool { return strings.Contains(line, "-j tw-a") })
		}
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", "-p tcp -j ACCEPT")}})
		for _, op := range []transaction.Op{transaction.InsertTop, transaction.InsertBottom} {
			h.tool(copies, "-restore", "--noflush", "--counters", "-w", "5")
			counted := foreign() // all 0 by ip6tables-nft-restore 1.8.9, which does not set them
			h.ask(transaction.InsertRule("INPUT", rule("-j tw-a"), op))
			want := map[string][]string{"INPUT": {"-j tw-a", between, "-p sctp -j DROP"}}
			if op == transaction.InsertBottom {
				want["INPUT"] = []string{between, "-p sctp -j DROP", "-j tw-a"}
			}
			h.holds("one copy", want)
			h.iptables("-A INPUT -j tw-a")
			h.ask(transaction.RemoveRule("INPUT", rule("-j tw-a"), false))
			h.holds("no copy", map[string][]string{"INPUT": {between, "-p sctp -j DROP"}})
			if diff := cmp.Diff(counted, foreign()); diff != "" {
				t.Errorf("op %d: counters (-want +got):\n%s", op, diff)
			}
		}
	})
}
