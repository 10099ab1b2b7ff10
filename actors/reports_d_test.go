// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file are named by defects of an earlier updater of this kind, D1 to D3,
// which blamed by halves, asked too often, and took an environment that fails for messages
// that are bad.

// spread are n messages of a chain with three rules each; k of them, spread over the batch,
// have the rule in place of one.
func spread(n, k int, bad string) (msgs []transaction.Message, ids []string) {
	at := map[int]bool{}
	for i := range k {
		at[(2*i+1)*n/(2*k)] = true
	}
	for i := range n {
		id, texts := fmt.Sprint(i), []string{fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+i), "-p udp -j ACCEPT", "-j RETURN"}
		if at[i] {
			texts[1] = bad
			ids = append(ids, id)
		}
		msgs = append(msgs, writes(id, fmt.Sprintf("tw-%04d", i), texts...))
	}
	return msgs, ids
}

// planned is how often a message of the last batches was part of an operation: of a plan, a
// block or a trial.
func (d *docket) planned() (n int) {
	for _, r := range d.records {
		for _, s := range r.Steps {
			n += s.Messages
		}
	}
	return n
}

// D1: lines of errors lead to messages. Where something can be tried beside the live table
// that sees at most three blocks, whoever and however many are at fault, and whatever the
// tool says about it; exactly they fail, each with its rule.
func TestD01LinesFailTheirMessages(t *testing.T) {
	for _, m := range []manner{byParser, byLines, byFirst, byCommit} {
		for _, k := range []int{1, 2, 10, 32, 64} {
			b := newSearchBench(t, m)
			var bad []int
			for i := range k {
				bad = append(bad, (2*i+1)*64/(2*k))
			}
			want := b.fill(64, bad...)
			b.m.Settle()
			b.same(want)
			if b.k.live > 3 || len(b.k.trials) > 1 {
				t.Errorf("manner %d, %d bad: %d blocks on the live table, %d trials", m, k, b.k.live, len(b.k.trials))
			}
		}
	}
}

// D1: without anything to try in, each line of the parser costs one block, and one more has
// all the others.
func TestD01LinesWithoutScratch(t *testing.T) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, k := range []int{1, 3, 10} {
			d := newDocket(t, unaided{dataplane.NewSim(backend)}, filter4, "")
			msgs, bad := spread(64, k, "-p tcp --bogus -j DROP")
			d.batch(msgs...)
			d.results(msgs, actors.Rejected, bad...)
			d.atMost(k+1, 0)
			for _, id := range bad {
				if e := d.refusal(id); e.Rule != "-p tcp --bogus -j DROP" || e.Chain == "" {
					t.Errorf("%s: %v", id, e)
				}
			}
		}
	}
}

// D1, D2 on a kernel: what is wrong shows on the live table first, and that sees two or three
// blocks, whether a few of 64 messages fail or all. A legacy tool that names no line needs two
// probes for each that fails, and a few to see that they do.
func TestD01D02KernelNamesCulprits(t *testing.T) {
	n, most := 32, 32
	if os.Getenv("TABLEWARD_SOAK") != "" {
		n, most = 1000, 1000
	}
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for _, rule := range []string{"-p tcp --bogus 1 -j DROP", lackedMatch} {
			for _, culprits := range []int{3, most} {
				d := newDocket(t, unsuspecting{k}, rules.TableID{IPVersion: v, Name: "filter"}, k.Info().Backend)
				msgs, bad := spread(n, culprits, rule)
				d.batch(msgs...)
				d.results(msgs, actors.Rejected, bad...)
				// A search goes through groups of 32; what lands of a first load on nft comes in
				// slices of 100 chains.
				slices := 0
				if good := n - culprits; good > 100 && k.Info().Backend == "nft" {
					slices = (good + 99) / 100
				}
				d.atMost(min(3, 2+n-culprits)+slices, 2*culprits+16+n/32)
				if d.planned() > 8*n {
					t.Errorf("%s, %d bad: messages were looked at %d times", rule, culprits, d.planned())
				}
				for _, id := range bad {
					if e := d.refusal(id); e.Chain == "" || e.Rule != rule && e.Rule != "" {
						t.Errorf("%s: %v", id, e)
					}
				}
			}
		}
	})
}

// D2: when all of many messages fail the live table sees two blocks at most, and the work is
// in proportion to the messages.
func TestD02AllFail(t *testing.T) {
	for m, sizes := range map[manner][]int{byParser: {64}, byLines: {64}, byFirst: {64}, byCommit: {64, 1000}} {
		for _, n := range sizes {
			b := newSearchBench(t, m)
			all := make([]int, n)
			for i := range all {
				all[i] = i
			}
			want := b.fill(n, all...)
			b.m.Settle()
			b.same(want)
			work, probes := 0, 0
			for _, r := range b.records {
				probes += r.Probes
				for _, s := range r.Steps {
					work += s.Messages
				}
			}
			if b.k.live > 2 || probes > 2*n || work > 8*n {
				t.Errorf("manner %d, %d messages: %d blocks on the live table, %d probes, messages were looked at %d times", m, n, b.k.live, probes, work)
			}
		}
	}
}

// D2: where nothing can be tried, and the tool names no line, plain halves are all that is
// left: twice as many blocks as messages at most, with none tried again in other company.
func TestD02AllFailWithoutScratch(t *testing.T) {
	for _, n := range []int{64, 256} {
		d := newDocket(t, unaided{dataplane.NewSim(dataplane.Legacy)}, filter4, "")
		msgs, bad := spread(n, n, "-j MASQUERADE")
		d.batch(msgs...)
		d.results(msgs, actors.Rejected, bad...)
		d.atMost(2*n, 0)
		if logN := 9; d.planned() > (logN+2)*n {
			t.Errorf("%d messages were looked at %d times", n, d.planned())
		}
	}
}

// D3: an environment that fails is no message's fault. Whatever it is, a try is one block
// with all messages: what passes is tried again at growing intervals until it lands, what is
// absent answers at once, once, and lands with a refresh when it has come.
func TestD03EnvironmentBlamesNobody(t *testing.T) {
	const n = 64
	for name, c := range map[string]struct {
		err    func(input []byte) error
		passes bool
	}{
		"spawn ENOMEM": {func([]byte) error {
			return &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: -1, Reason: "the tool could not be started", Err: syscall.ENOMEM}
		}, true},
		"lock held": {func(in []byte) error { return dataplane.Classify(4, lockText, in) }, true},
		"out of memory": {func(in []byte) error {
			return dataplane.Classify(1, "iptables: calloc failed: Cannot allocate memory\n", in)
		}, true},
		"killed": {func(in []byte) error { return dataplane.Classify(137, "", in) }, true},
		"binary missing": {func([]byte) error {
			return &dataplane.RestoreError{Class: dataplane.Unavailable, ExitCode: -1, Reason: "iptables-nft-restore was not found", Err: os.ErrNotExist}
		}, false},
		"table missing, nft": {func(in []byte) error {
			return dataplane.Classify(2, "iptables-restore v1.8.9 (nf_tables): iptables-restore: line 1 table name 'filter' invalid\n\nError occurred at line: 1\n", in)
		}, false},
		"table missing, legacy": {func(in []byte) error {
			return dataplane.Classify(2, "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'filter'\n\nError occurred at line: 1\n", in)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sim := dataplane.NewSim(dataplane.NFT)
			failing := true
			sim.Hook = func(call dataplane.Call) error {
				if failing && call.Op == dataplane.OpRestore {
					return c.err(call.Input)
				}
				return nil
			}
			d := newDocket(t, unaided{sim}, filter4, "")
			msgs, _ := spread(n, 0, "")
			d.batch(msgs...)
			d.m.Advance(10 * time.Second)
			var at []time.Duration
			for _, e := range d.events {
				if e.Kind == actors.EventRestore {
					at = append(at, e.At)
					if got := strings.Count(string(e.Input), "\n:tw-"); got != n {
						t.Errorf("a block of %d messages", got)
					}
				}
			}
			want := []time.Duration{0}
			if c.passes {
				for rest := 100 * time.Millisecond; rest <= 3200*time.Millisecond; rest *= 2 {
					want = append(want, want[len(want)-1]+rest)
				}
			}
			if diff := cmp.Diff(want, at); diff != "" {
				t.Errorf("tries (-want +got):\n%s", diff)
			}
			for id, a := range d.answers {
				if c.passes || a.Result != actors.Unavailable {
					t.Errorf("%s: %v: %v", id, a.Result, a.Err)
				}
			}
			failing = false
			d.send(transaction.Message{ID: "refresh", Body: transaction.Refresh{}})
			d.m.Settle()
			d.m.Advance(time.Minute)
			if len(d.answers) != n+1 {
				t.Errorf("%d answers", len(d.answers))
			}
			late := slices.DeleteFunc(d.events, func(e actors.Event) bool {
				return (e.Kind != actors.EventLate && e.Kind != actors.EventAnswer) || e.Answer.Result != actors.Applied
			})
			if len(late) != n+1 || strings.Count(sim.Save(filter4), "\n:tw-") != n {
				t.Errorf("%d messages are applied in the end", len(late))
			}
		})
	}
}

// D6: the same where nothing can be tried, and halves land one by one: a delete waits until
// the others are in, so that nothing leads into the stub of its chain meanwhile.
func TestD06NoStubWithoutScratch(t *testing.T) {
	for at := range 3 {
		sim := dataplane.NewSim(dataplane.Legacy)
		d := newDocket(t, unaided{sim}, filter4, "")
		before := []transaction.Message{hooks("INPUT", "tw-y"), writes("y", "tw-y", "-p tcp -j tw-x"), writes("x", "tw-x", "-p tcp -j ACCEPT")}
		d.batch(before...)
		d.results(before, actors.Rejected)
		sim.Hook = func(dataplane.Call) error { // what the block before has left
			if save := sim.Save(filter4); strings.Contains(save, "-A tw-y -p tcp -j tw-x") && strings.Contains(save, "tableward: ") {
				t.Errorf("garbage at %d: tw-y leads to a stub:\n%s", at, save)
			}
			return nil
		}
		after := []transaction.Message{
			{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-x"}}}, writes("y", "tw-y", "-p tcp -j ACCEPT"),
		}
		msgs := slices.Insert(after, at, writes("garbage", "tw-z", "-j MASQUERADE"))
		d.batch(msgs...)
		d.results(msgs, actors.Rejected, "garbage")
		if save := sim.Save(filter4); strings.Contains(save, "tw-x") || !strings.Contains(save, "-A tw-y -p tcp -j ACCEPT") {
			t.Error(save)
		}
	}
}
