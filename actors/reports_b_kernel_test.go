// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_b_test.go: what kernels hold when others
// write to the same tables. A refresh is asked for where the reports wait for one.

// refresh has the table looked at and repaired.
func (h *host) refresh() {
	h.t.Helper()
	h.ask(transaction.Refresh{})
}

// holds waits until these chains of the table hold these rules; one that is nil is not there.
func (h *host) holds(what string, want map[string][]string) {
	h.t.Helper()
	diff := ""
	h.until(what, func() bool {
		table := tableOf(h.t.(*testing.T), h.k, h.id)
		got := map[string][]string{}
		for name := range want {
			got[name] = table[name]
		}
		diff = cmp.Diff(want, got)
		return diff == ""
	}, &diff)
}

// drifts are what was told of drift since it was last asked, by chain.
func (h *host) drifts() map[string]string {
	out := map[string]string{}
	for {
		select {
		case e := <-h.events:
			if e.Kind == actors.EventDrift {
				out[e.Drift.Chain] += e.Drift.Drift.String()
			}
		default:
			return out
		}
	}
}

// told waits until a word was told about each chain, and holds that nothing was about others.
func (h *host) told(what string, want map[string]string) {
	h.t.Helper()
	got := map[string]string{}
	defer func() {
		for chain := range got {
			if _, ok := want[chain]; !ok {
				h.t.Errorf("%s: told as well: %s", what, got[chain])
			}
		}
	}()
	said := ""
	h.until(what+" is told", func() bool {
		for chain, s := range h.drifts() {
			got[chain] += s
		}
		said = strings.Join(slices.Sorted(maps.Values(got)), "\n")
		for chain, word := range want {
			if !strings.Contains(got[chain], word) {
				return false
			}
		}
		return true
	}, &said)
}

// R13: somebody saves the table, edits it and restores it later. What was written in between
// comes back, what was deleted in between goes again, what was changed is as it was changed,
// and his edit stays.
func TestR13SaveEditRestore(t *testing.T) {
	const edit = "-p udp -m udp --dport 9 -j DROP"
	eachHost(t, actors.Options{Refresh: -1}, func(t *testing.T, h *host) {
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-old", ports(1, 2)...), chainOf("tw-a", ports(1, 2, 3)...)}})
		for _, hook := range []string{"FORWARD", "OUTPUT"} {
			h.ask(transaction.InsertRule(hook, rule("-j tw-old"), transaction.InsertTop))
		}
		saved := h.tool("", "-save", "-t", h.id.Name)
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-new", ports(3, 4)...), chainOf("tw-a", ports(1, 3, 2)...)}})
		h.ask(transaction.InsertRule("FORWARD", rule("-j tw-new"), transaction.InsertTop))
		for _, hook := range []string{"FORWARD", "OUTPUT"} {
			h.ask(transaction.RemoveRule(hook, rule("-j tw-old"), false))
		}
		h.ask(transaction.DeleteChains{Chains: []string{"tw-old"}})
		want := map[string][]string{"tw-old": nil, "tw-new": ports(3, 4), "tw-a": ports(1, 3, 2), "FORWARD": {"-j tw-new"}, "INPUT": {}, "OUTPUT": {}}
		h.holds("the table before", want)
		h.refresh()
		h.drifts()

		h.tool(strings.Replace(saved, "COMMIT", "-A INPUT "+edit+"\nCOMMIT", 1), "-restore", "-w", "5")
		h.refresh()
		want["INPUT"] = []string{edit}
		h.holds("the table repaired", want)
		h.told("what the restore undid", map[string]string{"tw-old": "it was deleted and is back", "tw-new": "it is gone", "tw-a": "out of place", "FORWARD": "1 rule missing"})
	})
}

// R17: a table that alone was flushed is noticed, whatever the others hold, and repaired by
// itself; the log names the table and what was missing.
func TestR17FlushOfOneTable(t *testing.T) {
	var log syncBuffer
	eachHost(t, actors.Options{Refresh: -1, Logger: zerolog.New(&log)}, func(t *testing.T, h *host) {
		ctx, begin := context.Background(), len(log.String())
		hooks := map[string]string{"filter": "FORWARD", "mangle": "FORWARD", "nat": "POSTROUTING"}
		of := func(table string) rules.TableID { return rules.TableID{IPVersion: h.id.IPVersion, Name: table} }
		restores := func() map[string]uint64 {
			st, err := h.rt.Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]uint64{}
			for _, s := range st {
				out[s.Table.Name] = s.Restores
			}
			return out
		}
		for table, hook := range hooks {
			if a, err := h.rt.Send(ctx, of(table), writes("chain", "tw-"+table, "-j RETURN"), transaction.Message{ID: "hook", Body: transaction.InsertRule(hook, rule("-j tw-"+table), transaction.InsertTop)}); err != nil || a[1].Err != nil {
				t.Fatal(err, a)
			}
		}
		before := restores()
		h.id = of("nat")
		h.stranger("-F\n-X\n")
		for table := range hooks { // as the clock does
			if a, err := h.rt.Refresh(ctx, of(table)); err != nil || a.Err != nil {
				t.Fatal(err, a.Err)
			}
		}
		for table, hook := range hooks {
			h.id = of(table)
			h.holds(table, map[string][]string{hook: {"-j tw-" + table}, "tw-" + table: {"-j RETURN"}})
		}
		h.told("the flush", map[string]string{"POSTROUTING": "1 rule missing", "tw-nat": "it is gone"})
		after := restores()
		if after["filter"] != before["filter"] || after["mangle"] != before["mangle"] || after["nat"] > before["nat"]+2 {
			t.Errorf("restores: %v, before the flush %v", after, before)
		}
		h.until("the log names the table and the chain", func() bool {
			said := log.String()[begin:]
			return strings.Contains(said, `"table":"`+of("nat").String()) && strings.Contains(said, "chain POSTROUTING: 1 rule missing")
		})
	})
}

// R19: what somebody has taken away already can be withdrawn: no error, and nothing of ours is
// left. The Machine has nobody who tells it of the flush, so that it does not repair first.
func TestR19WithdrawnAfterAFlush(t *testing.T) {
	flushes := map[string][]string{
		"all":         {"-F", "-X"},
		"the chain":   {"-F POSTROUTING", "-F tw-c1", "-X tw-c1"},
		"the hook":    {"-F POSTROUTING"},
		"the content": {"-F tw-c1"},
		"nothing":     nil,
	}
	withdraw := map[string]transaction.Message{
		"delete": {ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-c1"}}},
		"remove": {ID: "remove", Body: transaction.RemoveRule("POSTROUTING", rule("-j tw-c1"), false)},
	}
	eachHost(t, actors.Options{}, func(t *testing.T, h *host) {
		h.id.Name = "nat"
		l := newDocket(t, h.k, h.id, string(h.backend))
		for what, flush := range flushes {
			for _, order := range [][]string{{"delete", "remove"}, {"remove", "delete"}} {
				for _, together := range []bool{true, false} {
					l.batch(writes("chain", "tw-c1", "-j RETURN"), transaction.Message{ID: "hook", Body: transaction.InsertRule("POSTROUTING", rule("-j tw-c1"), transaction.InsertTop)})
					if len(flush) > 0 {
						h.stranger(strings.Join(flush, "\n") + "\n")
					}
					msgs := []transaction.Message{withdraw[order[0]], withdraw[order[1]]}
					if together {
						l.batch(msgs...)
						l.results(msgs, actors.Rejected)
					} else {
						l.batch(msgs[0])
						l.results(msgs[:1], actors.Rejected)
						l.batch(msgs[1])
						l.results(msgs[1:], actors.Rejected)
					}
					table := tableOf(t, h.k, h.id)
					if diff := cmp.Diff([]string{}, table["POSTROUTING"]); diff != "" || table["tw-c1"] != nil {
						t.Errorf("%s flushed, %v together %t: tw-c1 holds %q, POSTROUTING (-want +got):\n%s", what, order, together, table["tw-c1"], diff)
					}
				}
			}
		}
	})
}
