// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file are of reports about floods, versions of the tools, and size.

// blocks are what was sent to the live table since it was last asked.
func (h *host) blocks() []string {
	var out []string
	for {
		select {
		case e := <-h.events:
			if e.Kind == actors.EventRestore {
				out = append(out, string(e.Input))
			}
		default:
			return out
		}
	}
}

// R37: every copy of a jump goes before its chain.
func TestR37EveryCopyGoesBeforeTheChain(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		hook := rule("-j tw-lock")
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-lock", "-p tcp -j DROP")}})
		h.ask(transaction.InsertRule("INPUT", hook, transaction.InsertTop))
		h.quiet()
		h.iptables("-A INPUT -j tw-lock", "-A INPUT -j tw-lock")
		h.ask(transaction.RemoveRule("INPUT", hook, false))
		h.ask(transaction.DeleteChains{Chains: []string{"tw-lock"}})
		got := ""
		h.until("all is gone", func() bool {
			got = h.save()
			return !strings.Contains(got, "tw-lock")
		}, &got)
	})
}

// R38: a native rule that the tools cannot show makes the table unreadable to them. Writes go
// on, what needs the table's rules says why it cannot be had, one warning is given however often
// it is tried again, and when the rule is gone what was kept is done by itself.
func TestR38TableThatToolsCannotShow(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		t.Run(fmt.Sprintf("nft%d", v), func(t *testing.T) {
			var log syncBuffer
			h := newHost(t, dataplane.NFT, v, actors.Options{Refresh: 20 * time.Millisecond, NoJitter: true, Logger: zerolog.New(&log)})
			family := map[rules.IPVersion]string{rules.IPv4: "ip", rules.IPv6: "ip6"}[v]
			h.iptables("-N ts-input", "-A INPUT -j ts-input")
			if err := inNamespace(h.ns, "nft", "add", "rule", family, "filter", "ts-input", "meta", "mark", "&", "0xff0000", "==", "0x40000", "counter", "drop"); err != nil {
				t.Fatal(err)
			}
			if err := inNamespace(h.ns, "nft", "add", "rule", family, "filter", "ts-input", "ct", "count", "over", "5", "counter", "drop"); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("nsenter", "--net="+h.ns, map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[v]+"-nft-save", "-t", "filter").CombinedOutput(); !strings.Contains(string(out), "incompatible") {
				t.Fatalf("the tool shows the table: %v\n%s", err, out)
			}
			for n := range 3 { // restarts of the feature
				h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(n+1)...)}})
			}
			for _, body := range []transaction.Body{transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop), transaction.Refresh{}} {
				if a, err := h.rt.Ask(context.Background(), h.id, body); err != nil || a.Result != actors.Unavailable {
					t.Errorf("%T meanwhile: %v %v", body, a, err)
				}
			}
			h.until("the hook is parked between two tries", func() bool { return h.status().Parked == 1 })
			tries := h.status().Reads
			h.until("more refreshes", func() bool { return h.status().Reads >= tries+5 })
			if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `"level":"warn"`) || !strings.Contains(said, "only nft can show") {
				t.Errorf("not one warning:\n%s", said)
			}
			if err := inNamespace(h.ns, "nft", "flush", "chain", family, "filter", "ts-input"); err != nil {
				t.Fatal(err)
			}
			got := ""
			h.until("the jump is there", func() bool {
				got = h.save()
				return strings.Contains(got, "-A INPUT -j tw-a\n-A INPUT -j ts-input\n")
			}, &got)
			h.ask(transaction.Refresh{})
			if !strings.Contains(got, "-A tw-a -p tcp -m tcp --dport 3 ") {
				t.Error(got)
			}
			h.until("nothing is parked", func() bool { return h.status().Parked == 0 })
		})
	}
}

// R43: chains of ours are emptied by their declaration, never rule by rule: a tool that cannot
// delete a rule by the text that it prints itself is asked to delete none.
func TestR43DeletedWithoutRules(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		h.id.Name = "raw"
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-raw", "-p tcp -j NOTRACK", "-p udp -j CT --notrack", "-j RETURN")}})
		h.quiet()
		h.blocks()
		h.ask(transaction.DeleteChains{Chains: []string{"tw-raw"}})
		got := ""
		h.until("the chain is gone", func() bool {
			got = h.save()
			return !strings.Contains(got, "tw-raw")
		}, &got)
		for _, block := range h.blocks() {
			if strings.Contains(block, "\n-D") {
				t.Errorf("a rule was deleted by its text:\n%s", block)
			}
		}
	})
}

// R46: to take away what is not there is no error, whatever the tools call it: a rule, one whose
// chain is not there, one whose set is not there, and a chain.
func TestR46WhatIsNotThere(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		h.iptables("-A INPUT -p udp -j DROP")
		want := h.save()
		for range 2 {
			for _, text := range []string{
				"-p tcp -m tcp --dport 80 -j ACCEPT", "-j tw-none", "-j none", "-m set --match-set tw-none src -j DROP",
			} {
				h.ask(transaction.RemoveRule("INPUT", rule(text), false))
			}
			h.ask(transaction.DeleteChains{Chains: []string{"tw-none"}})
		}
		if got := h.save(); got != want {
			t.Errorf("got:\n%swant:\n%s", got, want)
		}
	})
}

// R103, R104: what a change costs does not grow with the table, and a table that nobody changes
// costs nothing, however often it is looked at. The first load of a large table comes in slices
// on nft.
func TestR103R104CostOfAChange(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		sizes := map[int]int{} // of the block, by chains in the table
		all := 0
		for _, n := range []int{20, 400} {
			var chains []transaction.Message
			for ; all < n; all++ {
				chains = append(chains, rewriteOf(chainOf(fmt.Sprintf("tw-%03d", all), ports(1, 2, 3)...)))
			}
			h.blocks()
			if as, err := h.rt.Send(context.Background(), h.id, chains...); err != nil || as[len(as)-1].Err != nil {
				t.Fatal(err, as)
			}
			if blocks := h.blocks(); len(chains) > 300 && (len(blocks) > 2) != (h.backend == dataplane.NFT) {
				t.Errorf("%d blocks for the first load of %d chains", len(blocks), len(chains))
			}
			h.quiet()
			h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-007", ports(1, n, 3)...)}})
			for _, block := range h.blocks() {
				sizes[n] += len(block)
			}
			h.quiet()
		}
		if d := sizes[400] - sizes[20]; d < 0 || d > len("100") {
			t.Errorf("bytes of the block for one chain: %v", sizes)
		}
		before, runs := h.status(), h.k.Stats().Runs
		for range 50 {
			h.ask(transaction.Refresh{})
		}
		if after := h.status(); after.Restores != before.Restores || after.Reads != before.Reads || h.k.Stats().Runs != runs {
			t.Errorf("R104: %d restores, %d reads, %d runs", after.Restores-before.Restores, after.Reads-before.Reads, h.k.Stats().Runs-runs)
		}
	})
}
