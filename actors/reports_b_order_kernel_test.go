// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_b_kernel_test.go: order, and one copy.

// masq is a chain whose order is its meaning, with comments of several words, as read back.
func masq(v rules.IPVersion) []string {
	comment := ` -m comment --comment "flanneld masq" `
	texts := []string{
		"-m mark --mark 0x4000/0x4000" + comment + "-j RETURN",
		"-s 10.244.2.0/24 -d 10.244.0.0/16" + comment + "-j RETURN",
		"-s 10.244.0.0/16 -d 10.244.2.0/24" + comment + "-j RETURN",
		"! -s 10.244.0.0/16 -d 10.244.2.0/24" + comment + "-j RETURN",
		"-s 10.244.0.0/16 ! -d 224.0.0.0/4" + comment + "-j MASQUERADE --random-fully",
		"! -s 10.244.0.0/16 -d 10.244.0.0/16" + comment + "-j MASQUERADE --random-fully",
	}
	if v == rules.IPv6 {
		six := strings.NewReplacer("10.244.2.0/24", "2001:db8:0:2::/64", "10.244.0.0/16", "2001:db8::/48", "224.0.0.0/4", "ff00::/8")
		for i := range texts {
			texts[i] = six.Replace(texts[i])
		}
	}
	return texts
}

// R22: rules that change places, and a rule that is there twice, are drift though each rule
// exists. The report asks to write the chain as a whole; here only what differs is changed, so
// that counters stay, and the whole chain is compared.
func TestR22OrderAndDoublesAreDrift(t *testing.T) {
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		h.id.Name = "nat"
		want := masq(h.id.IPVersion)
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-POSTRTG", want...)}})
		h.ask(transaction.InsertRule("POSTROUTING", rule(`-m comment --comment "flanneld masq" -j tw-POSTRTG`), transaction.InsertTop))
		h.refresh()
		h.drifts()
		for _, act := range []struct{ name, lines, says string }{
			{"MASQUERADE moved to the top", "-D tw-POSTRTG 5\n-I tw-POSTRTG " + want[4] + "\n", "1 rule out of place"},
			{"two swapped", "-D tw-POSTRTG 2\n-I tw-POSTRTG 3 " + want[1] + "\n", "1 rule out of place"},
			{"one doubled", "-A tw-POSTRTG " + want[1] + "\n", "1 rule doubled"},
		} {
			h.stranger(act.lines)
			h.refresh()
			h.holds(act.name, map[string][]string{"tw-POSTRTG": want})
			h.told(act.name, map[string]string{"tw-POSTRTG": act.says})
		}
	})
}

// R23: nobody has changed anything, so nothing is written, however often the table is looked
// at, by a program that starts anew as well; comments of several words do not confuse it, nor
// do rules that are not read back as they were written.
// What is not there can be deleted and removed without a write.
func TestR23UnchangedTableIsNotWritten(t *testing.T) {
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		h.id.Name = "nat"
		const hook = `-p udp --dport 53 -m comment --comment "flanneld masq" -j tw-POSTRTG`
		wishes := []transaction.Message{
			writes("chain", "tw-POSTRTG", append(masq(h.id.IPVersion), "-p tcp --dport 80 -j RETURN")...),
			{ID: "hook", Body: transaction.InsertRule("POSTROUTING", rule(hook), transaction.InsertTop)},
			{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-never"}}},
			{ID: "remove", Body: transaction.RemoveRule("POSTROUTING", rule(`-m comment --comment "never there" -j MASQUERADE`), false)},
		}
		ctx := context.Background()
		for i, rt := range []*actors.Runtime{h.rt, newRuntime(t, h.k, actors.Options{Refresh: -1}.For(string(h.backend)))} {
			var first uint64
			for range 5 {
				for _, again := range [][]transaction.Message{wishes, {{ID: "refresh", Body: transaction.Refresh{}}}, {{ID: "cleanup", Body: transaction.Cleanup{}}}} {
					answers, err := rt.Send(ctx, h.id, again...)
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range answers {
						if a.Err != nil {
							t.Error(a.Err)
						}
					}
				}
				st, err := rt.Status(ctx)
				if err != nil || len(st) != 1 {
					t.Fatal(err, st)
				}
				if first == 0 && i == 0 {
					first = st[0].Restores
				}
				if st[0].Restores != first || st[0].Drifts > 0 {
					t.Errorf("start %d: %d blocks for what is there, %d drifts", i+1, st[0].Restores-first, st[0].Drifts)
				}
			}
		}
	})
}

// R26: who came later and put himself on top is below us after the next refresh, and his rule
// is left alone. R28: that a chain exists says nothing about its jump, be it ours or a
// stranger's chain with the administrator's rules. R32: where the same jump stands twice, one is
// left, at the place asked for.
func TestR26R28R32OneJumpAtItsPlace(t *testing.T) {
	const admin = "-s 192.0.2.9/32 -j DROP"
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		deny := admin
		if h.id.IPVersion == rules.IPv6 {
			deny = "-s 2001:db8::9/128 -j DROP"
		}
		h.stranger(":ADMIN-USER - [0:0]\n:DOCKER-USER - [0:0]\n:tw-in - [0:0]\n:tw-twice - [0:0]\n-A ADMIN-USER " + deny + "\n-A tw-in -j RETURN\n" +
			"-A OUTPUT -j tw-twice\n-A OUTPUT -o lo -j ACCEPT\n-A OUTPUT -j tw-twice\n-A OUTPUT -j tw-twice\n")
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-in", "-j RETURN"), chainOf("tw-twice", "-j RETURN")}})
		h.ask(transaction.InsertRule("FORWARD", rule("-j ADMIN-USER"), transaction.InsertTop))
		h.ask(transaction.InsertRule("INPUT", rule("-j tw-in"), transaction.InsertTop))
		h.ask(transaction.InsertRule("OUTPUT", rule("-j tw-twice"), transaction.InsertBottom))
		want := map[string][]string{
			"FORWARD": {"-j ADMIN-USER"}, "ADMIN-USER": {deny}, "INPUT": {"-j tw-in"}, "tw-in": {"-j RETURN"},
			"OUTPUT": {"-o lo -j ACCEPT", "-j tw-twice"},
		}
		h.holds("R28, R32: one jump each", want)

		h.stranger("-I FORWARD -j DOCKER-USER\n-D INPUT -j tw-in\n-I OUTPUT -j tw-twice\n")
		h.refresh()
		want["FORWARD"] = []string{"-j ADMIN-USER", "-j DOCKER-USER"}
		h.holds("R26: first again", want)
		h.ask(transaction.InsertRule("OUTPUT", rule("-j tw-twice"), transaction.InsertTop))
		want["OUTPUT"] = []string{"-j tw-twice", "-o lo -j ACCEPT"}
		h.holds("R32: moved, and still one", want)
	})
}
