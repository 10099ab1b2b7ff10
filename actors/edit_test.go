// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// newScanBench is a bench whose table is looked at by scans, so that chains are changed rule by
// rule. It holds a chain tw-a that has been verified.
func newScanBench(t *testing.T, texts ...string) *bench {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: b.sim, Scan: true, Observe: b.observe,
		Table: func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
	})
	b.rewrite("first", texts...)
	return b
}

func (b *bench) rewrite(id string, texts ...string) {
	b.t.Helper()
	b.send(id, transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", texts...)}})
	b.m.Settle()
	if b.answers[id] != "applied" {
		b.t.Errorf("%s: %s %v", id, b.answers[id], b.errs[id])
	}
}

func (b *bench) chain() string {
	var out []string
	for line := range strings.Lines(b.sim.Save(filter4)) {
		if text, found := strings.CutPrefix(line, "-A tw-a "); found {
			out = append(out, strings.TrimSpace(text))
		}
	}
	return strings.Join(out, "\n")
}

// A stranger who writes between the look and the block does not have an index mean another
// rule: the chain is looked at again. It is written as a whole if it was his to change, or when
// he goes on.
func TestEditIsOvertaken(t *testing.T) {
	p := ports(1, 2, 3, 4, 5)
	for _, c := range []struct {
		act   string
		times int
		whole bool
	}{
		{"-I tw-a 1 -p udp -j DROP", 1, true},
		{"-I tw-a 1 -p udp -j DROP", 100, true},
		{"-A INPUT -p udp -j DROP", 1, false},
		{"-A INPUT -p udp -j DROP", 2, false},
		{"-A INPUT -p udp -j DROP", 100, true},
	} {
		b := newScanBench(t, p...)
		left := c.times
		var sent []string
		b.sim.Hook = func(call dataplane.Call) error {
			switch {
			case call.Op == dataplane.OpRestore:
				sent = append(sent, string(call.Input))
			case call.Op == dataplane.OpPulse && left > 0:
				left--
				return b.sim.Load(rules.IPv4, []byte("*filter\n"+c.act+"\nCOMMIT\n"))
			}
			return nil
		}
		b.rewrite("second", p[0], p[1], "-p tcp -j DROP", p[3], p[4])
		left = 0
		b.send("refresh", transaction.Refresh{})
		b.m.Settle()
		want := strings.Join([]string{p[0], p[1], "-p tcp -j DROP", p[3], p[4]}, "\n")
		if got := b.chain(); got != want {
			t.Errorf("%s, %d times:\n%s\nwant:\n%s", c.act, c.times, got, want)
		}
		if len(sent) == 0 || c.whole != strings.Contains(sent[0], ":tw-a") {
			t.Errorf("%s, %d times: sent %q", c.act, c.times, sent)
		}
	}
}

// A rule that the kernel has as two moves the places of those behind it.
func TestRuleOfSeveralIsNotEdited(t *testing.T) {
	const two = "-s 10.0.0.1,10.0.0.2 -j ACCEPT"
	b := newScanBench(t, two, "-p tcp -j ACCEPT", "-p udp -j ACCEPT")
	b.rewrite("second", two, "-p tcp -j ACCEPT", "-p icmp -j ACCEPT")
	want := "-s 10.0.0.1/32 -j ACCEPT\n-s 10.0.0.2/32 -j ACCEPT\n-p tcp -j ACCEPT\n-p icmp -j ACCEPT"
	if got := b.chain(); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// Nobody is blamed for a chain of ours that a stranger takes away between the look and the block,
// however often he does: the message is tried until it lands.
func TestTakenAwayBeforeTheBlock(t *testing.T) {
	const n = 8
	for _, when := range []dataplane.Op{dataplane.OpRestore, dataplane.OpPulse} {
		b := newScanBench(t, "-j ACCEPT")
		var jumps []string
		for i := range n {
			name := fmt.Sprintf("tw-b%d", i)
			b.write(name, name, "-p tcp -j ACCEPT")
			jumps = append(jumps, "-j "+name)
		}
		b.m.Settle()
		taken, blocks := 0, 0
		b.sim.Hook = func(call dataplane.Call) error {
			if call.Op == dataplane.OpRestore {
				blocks++
			}
			if call.Op != when || taken == n || when == dataplane.OpPulse && taken > blocks {
				return nil
			}
			name := fmt.Sprintf("tw-b%d", taken)
			taken++
			return b.sim.Load(rules.IPv4, []byte("*filter\n-F "+name+"\n-X "+name+"\nCOMMIT\n"))
		}
		b.send("jumps", transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", jumps...)}})
		b.m.Settle()
		b.m.Advance(time.Minute)
		b.sim.Hook = nil
		b.send("look", transaction.Refresh{})
		b.m.Settle()
		if taken == 0 || when == dataplane.OpRestore && taken != n || b.answers["jumps"] != "applied" || b.chain() != strings.Join(jumps, "\n") {
			t.Errorf("%v: %d taken, %s %v, tw-a holds\n%s", when, taken, b.answers["jumps"], b.errs["jumps"], b.chain())
		}
		for i := range n {
			if !strings.Contains(b.sim.Save(filter4), fmt.Sprintf("-A tw-b%d -p tcp -j ACCEPT\n", i)) {
				t.Errorf("%v: tw-b%d is not as it was", when, i)
			}
		}
	}
}
