// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file are named by the public bug reports about one bad item that blocks
// all others, and about errors of the restore tools that lead nowhere.

// R64: an address of the other IP version costs its own message, before the kernel is asked,
// and nothing else however often it comes; the others of the batch are one block.
func TestR64OneBadServiceOfMany(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		address, other := "2001:db8::7/128", "6/filter"
		if v == rules.IPv6 {
			address, other = "192.0.2.7/32", "4/filter"
		}
		l := kernelDocket(t, k, v, "filter")
		bad := writes("bad", "tw-bad", "-p tcp -m tcp --dport 80 -d "+address+" -j ACCEPT")
		msgs := among(20, bad)
		l.batch(msgs...)
		l.results(msgs, actors.Rejected, "bad")
		l.atMost(1, 10) // kinds are new
		e := l.refusal("bad")
		if !strings.Contains(e.Reason, strings.Split(address, "/")[0]) || !strings.Contains(e.Advice, other) || e.Column == 0 {
			t.Errorf("%v", e)
		}
		for range 30 { // as a controller does that syncs in a loop
			l.batch(bad)
			l.results([]transaction.Message{bad}, actors.Rejected, "bad")
			l.atMost(0, 0)
		}
		if got := held(t, k, l.id, "tw-bad"); got != nil {
			t.Errorf("tw-bad holds %q", got)
		}
	})
}

// R64: of a message that is bad, one word is said: it is not tried again, however long the
// runtime lives.
func TestR64RefusalIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		rt := newRuntime(t, sim, actors.Options{OnAnswer: d.answer, Observe: d.observe, Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel)})
		msgs := among(20, writes("kernel", "tw-bad", "-j MASQUERADE"), writes("plan", "tw-six", "-d 2001:db8::7 -j ACCEPT"))
		if err := rt.Tell(filter4, msgs...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		first := d.blocks(0)
		time.Sleep(time.Hour)
		results, _ := d.results(t)
		if len(results) != len(msgs) || results["kernel"].Result != actors.Rejected || results["plan"].Result != actors.Rejected {
			t.Errorf("%+v", results)
		}
		if n := d.blocks(time.Second); n != 0 {
			t.Errorf("%d blocks in an hour after the first %d", n, first)
		}
		settleDeadLetters(t, rt)
		if n := strings.Count(log.String(), "\n"); n > 1 {
			t.Errorf("%d lines of log:\n%s", n, log.String())
		}
	})
}

// R65: an empty variable costs its message, and the error shows the rule with a mark at the
// option that has no value. R71: ports without a protocol likewise, with the words to write;
// the tools take none of these rules either.
func TestR65R71RefusedBeforeTheKernel(t *testing.T) {
	cases := []struct{ table, rule, word, advice string }{
		{"filter", "-s  -j DROP", "-s", "write the value behind -s"},
		{"filter", `-m comment --comment "to external VIP" -s  -j DROP`, "-s", "write the value behind -s"},
		{"filter", "-p tcp --dport  -j DROP", "--dport", "write the value behind --dport"},
		{"filter", "--dport 80 -j DROP", "--dport", "write -p tcp before it"},
		{"filter", "-m tcp --sport 80 -j DROP", "--sport", "write -p tcp before it"},
		{"filter", "-m multiport --dports 80,81 -j DROP", "--dports", "write -p tcp before it"},
		{"filter", "-p icmp --dport 80 -j DROP", "--dport", "write -p tcp"},
		{"nat", "-j REDIRECT --to-ports 8080", "--to-ports", "write -p tcp before it"},
		{"nat", "-j MASQUERADE --to-ports 1024-2048", "--to-ports", "write -p tcp before it"},
	}
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		dockets := map[string]*docket{"filter": kernelDocket(t, k, v, "filter"), "nat": kernelDocket(t, k, v, "nat")}
		for _, c := range cases {
			l := dockets[c.table]
			bad := writes("bad", "tw-bad", "-p tcp -j ACCEPT", c.rule)
			msgs := among(4, bad)
			l.batch(msgs...)
			l.results(msgs, actors.Rejected, "bad")
			l.atMost(1, 10)
			e := l.refusal("bad")
			if e.Chain != "tw-bad" || e.Rule != rule(c.rule).String() || !strings.HasPrefix(e.Rule[max(e.Column-1, 0):], c.word) || !strings.Contains(e.Advice, c.advice) {
				t.Errorf("%s: %+v", c.rule, e)
			}
			if said := e.Detail(); !strings.Contains(said, e.Rule) || !strings.Contains(said, "^") {
				t.Errorf("%s: the error does not show the line:\n%s", c.rule, said)
			}
			block := fmt.Sprintf("*%s\n:tw-plain - [0:0]\n-A tw-plain %s\nCOMMIT\n", c.table, c.rule)
			if err := k.Restore(context.Background(), l.id, []byte(block)); err == nil {
				t.Errorf("%s: the tool takes it", c.rule)
			}
		}
	})
}

// R67: the report asks to cut comments that are too long. Here they are refused, since a
// message whose text is not what the kernel holds would be drift for ever, and the tools' own
// cut goes without a word; 255 bytes are kept whole, also where the last character has two.
func TestR67CommentIsNeverCut(t *testing.T) {
	long := map[string]string{"ascii": strings.Repeat("c", 256), "utf-8": strings.Repeat("é", 128), "a word": `"` + strings.Repeat("a b ", 64) + `"`}
	fits := []string{strings.Repeat("c", 255), "x" + strings.Repeat("é", 127), `"` + strings.Repeat("a b", 85) + `"`}
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		l := kernelDocket(t, k, v, "filter")
		for name, comment := range long {
			msgs := among(4, writes("bad", "tw-bad", "-m comment --comment "+comment+" -j ACCEPT"))
			l.batch(msgs...)
			l.results(msgs, actors.Rejected, "bad")
			l.atMost(1, 10)
			if e := l.refusal("bad"); !strings.Contains(e.Reason, "256 bytes") || !strings.Contains(e.Advice, "at most 255 bytes") {
				t.Errorf("%s: %v", name, e)
			}
		}
		for i, comment := range fits {
			m := writes("fits", "tw-fits", "-m comment --comment "+comment+" -j ACCEPT")
			l.batch(m)
			l.results([]transaction.Message{m}, actors.Rejected)
			if got := held(t, k, l.id, "tw-fits"); len(got) != 1 || got[0] != "-m comment --comment "+comment+" -j ACCEPT" {
				t.Errorf("%d: the kernel holds %q", i, got)
			}
			l.batch(m, transaction.Message{ID: "refresh", Body: transaction.Refresh{}})
			l.atMost(0, 0)
		}
	})
}
