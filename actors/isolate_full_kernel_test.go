// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	mostHook     = time.Second            // for 300 messages, one of them not allowed at its hook
	mostStranger = 250 * time.Millisecond // that somebody else's write waits meanwhile
	mostAnswer   = time.Second            // to a good message while bad ones are looked for
	manyProbes   = 16                     // besides two for each bad message
)

// isolatedRuntime is a Runtime on the table of an isolation.
type isolatedRuntime struct {
	*isolation
	rt      *actors.Runtime
	ns      string
	batches chan actors.BatchRecord // of the table

	mu   sync.Mutex // guards busy
	busy chan struct{}
}

// newIsolatedRuntime fills the table. Without the hook table nobody but the kernel knows
// which match is allowed where.
func newIsolatedRuntime(t testing.TB, backend dataplane.Backend, v rules.IPVersion, chains int, hookTable bool) *isolatedRuntime {
	b, ns := isolationIn(t, backend, v, chains)
	r := &isolatedRuntime{isolation: b, ns: ns, batches: make(chan actors.BatchRecord, 2*chains)}
	opts := actors.Options{Refresh: -1, OnBatch: r.took}.For(b.k.Info().Backend)
	if !hookTable {
		opts.Table.Backend = ""
	}
	r.rt = newRuntime(t, signalling{b.k, r}, opts)
	r.send(b.everything())
	b.mustBeApplied()
	return r
}

func (r *isolatedRuntime) took(b actors.BatchRecord) {
	if b.Table == r.id {
		r.batches <- b
	}
}

// send sends messages as one piece, and returns when all have their answer and the batches
// that they were in are over. It returns how long the answers took.
func (r *isolatedRuntime) send(msgs []transaction.Message) time.Duration {
	begin := time.Now()
	answers, err := r.rt.Send(context.Background(), r.id, msgs...)
	took := time.Since(begin)
	if err != nil {
		r.t.Error(err)
	}
	r.answers = map[string]actors.Answer{}
	for _, a := range answers {
		r.answers[a.ID] = a
	}
	r.collect(len(msgs))
	return took
}

// collect gathers the records of the batches that decided so many messages.
func (r *isolatedRuntime) collect(decided int) {
	r.records = nil
	for decided > 0 {
		b := <-r.batches
		r.records = append(r.records, b)
		decided -= len(b.Outcomes)
	}
}

// signalling is a Kernel that tells when its next operation begins.
type signalling struct {
	*dataplane.Kernel
	r *isolatedRuntime
}

func (k signalling) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	k.r.begins(id)
	return k.Kernel.Try(ctx, id, b)
}

func (k signalling) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	k.r.begins(id)
	return k.Kernel.Restore(ctx, id, input)
}

func (r *isolatedRuntime) begins(id rules.TableID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == r.id && r.busy != nil {
		close(r.busy)
		r.busy = nil
	}
}

// atWork returns a channel that is closed when the table's next operation begins.
func (r *isolatedRuntime) atWork() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = make(chan struct{})
	return r.busy
}

// stranger is somebody who writes to the table with a tool of nft, without a pause.
type stranger struct {
	r       *isolatedRuntime
	written int
}

// write returns how long one write took.
func (s *stranger) write() time.Duration {
	tool := map[rules.IPVersion]string{rules.IPv4: "iptables-nft", rules.IPv6: "ip6tables-nft"}[s.r.id.IPVersion]
	s.written++
	begin := time.Now()
	err := inNamespace(s.r.ns, tool, "-A", "STRANGER", "-p", "tcp", "--dport", fmt.Sprint(s.written), "-j", "RETURN")
	if err != nil {
		s.r.t.Error(err)
	}
	return time.Since(begin)
}

// during returns how long the writes took that were begun while f ran, and the one before.
func (s *stranger) during(f func()) []time.Duration {
	took := []time.Duration{s.write()}
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			default:
				took = append(took, s.write())
			}
		}
	}()
	f()
	close(over)
	<-done
	return took
}

// Messages that the kernel refuses only where their rules are reached hold up nobody in a
// large table: neither their own batch nor somebody else's write. What plan time knows is not
// even tried; what only the kernel knows is tried elsewhere, in a small table.
func TestKernelNotAllowedAtHook(t *testing.T) {
	chains, sent, rounds, judged := 500, 100, 1, os.Getenv("TABLEWARD_SOAK") != ""
	if judged {
		chains, sent, rounds = 5000, 300, 5
	}
	f := fault{name: "match not at hook", rule: "-m owner --uid-owner @ -j DROP", restores: 1, want: actors.Rejected}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		for _, hookTable := range []bool{true, false} {
			t.Run(fmt.Sprintf("IPv%d, hook table %v", v, hookTable), func(t *testing.T) {
				r := newIsolatedRuntime(t, dataplane.NFT, v, chains, hookTable)
				s := &stranger{r: r}
				var totals, waits, alone []time.Duration
				for range rounds {
					alone = append(alone, s.write(), s.write())
					msgs, bad := r.batch(sent, f, 1)
					var total time.Duration
					waits = append(waits, slices.Max(s.during(func() { total = r.send(msgs) })))
					totals = append(totals, total)
					r.check(msgs, bad, f)
				}
				total, wait := quantile(totals, 0.5), quantile(waits, 0.5)-quantile(alone, 0.5)
				t.Logf("%d chains, %d messages, one bad: %.0f ms, at most %.0f; a stranger's longest write %.0f ms, at most %.0f; %.0f ms when nobody else writes, at most %.0f",
					chains, sent, ms(total), ms(slices.Max(totals)), ms(quantile(waits, 0.5)), ms(slices.Max(waits)),
					ms(quantile(alone, 0.5)), ms(slices.Max(alone)))
				if judged && total > mostHook {
					t.Errorf("%v, more than %v", total, mostHook)
				}
				if judged && wait > mostStranger {
					t.Errorf("a stranger waits %v, more than %v", wait, mostStranger)
				}
			})
		}
	}
}

// Where all of many messages are bad, the live table sees two blocks at most, each message
// costs few probes, and nobody else waits: neither for the same table nor for another one.
func TestKernelAllBad(t *testing.T) {
	judged := os.Getenv("TABLEWARD_SOAK") != ""
	testns.Each(t, func(t *testing.T, backend dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		n := 150
		switch {
		case judged:
			n = 1000
		case v == rules.IPv6:
			n = 50 // the tools are the same
		}
		r := newIsolatedRuntime(t, backend, v, n, false)
		var report strings.Builder
		w := tabwriter.NewWriter(&report, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "all have\trestores\tprobes\tms\tbatches\tgood answer ms\tbatches before it\tother table ms")
		for i, f := range []fault{
			{name: "unknown option", rule: "-p tcp --bogus @ -j DROP"},
			{name: "missing set, known kind", rule: fmt.Sprintf(matchSet, "tw-no@")},
			// Not by a user: who has few of them cannot try that.
			{name: "match not at hook", rule: "-m owner --socket-exists -m comment --comment @ -j DROP"},
			{name: "each of a kind of its own", rule: "-m owner --socket-exists -m limit --limit 1@/hour -j DROP"},
		} {
			// A legacy tool does not say which rule the kernel refuses. To find that out costs more
			// than two probes for each message where all are refused.
			f.want, f.restores, f.unnamed = actors.Rejected, 2, backend == dataplane.Legacy
			b := r.allBad(n, i, f)
			if judged && (b.good > mostAnswer || b.other > mostAnswer) {
				t.Errorf("%s: a good message has its answer after %v, one to another table after %v", f.name, b.good, b.other)
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%d\t%.0f\t%d\t%.0f\n", f.name, b.restores, b.probes, ms(b.all), b.batches,
				ms(b.good), b.before, ms(b.other))
		}
		w.Flush()
		t.Logf("%d messages of one chain with 10 rules, all bad, %s:\n%s", n, backend, report.String())
	})
}

// badTimes are how long the answers took to bad messages, to a good one that was sent
// meanwhile, and to one for another table.
type badTimes struct {
	isolated
	all, good, other time.Duration
	batches, before  int
}

// allBad sends bad messages, and good ones while the first of them are looked for.
func (r *isolatedRuntime) allBad(n, version int, f fault) (out badTimes) {
	msgs, bad := r.batch(n, f, n)
	started := r.atWork()
	var wg sync.WaitGroup
	wg.Go(func() {
		begin := time.Now()
		answers, err := r.rt.Send(context.Background(), r.id, msgs...)
		out.all = time.Since(begin)
		if err != nil {
			r.t.Error(err)
		}
		r.answers = map[string]actors.Answer{}
		for _, a := range answers {
			r.answers[a.ID] = a
		}
	})
	<-started
	nat := rules.TableID{IPVersion: r.id.IPVersion, Name: "nat"}
	good := func(id rules.TableID, took *time.Duration) {
		text := fmt.Sprintf("-p tcp -m tcp --dport %d -j RETURN", 1+version)
		m := transaction.Message{ID: "good", Body: transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-good", text)}}}
		begin := time.Now()
		a, err := r.rt.Send(context.Background(), id, m)
		*took = time.Since(begin)
		if err != nil || a[0].Result != actors.Applied {
			r.t.Errorf("%s: a good message for %s: %v, %v", f.name, id, a, err)
		}
	}
	wg.Go(func() { good(r.id, &out.good) })
	wg.Go(func() { good(nat, &out.other) })
	wg.Wait()
	r.collect(n + 1)
	r.withoutGood(&out)
	out.isolated = r.check(msgs, bad, f)
	all := 0
	for _, b := range r.records {
		all += b.Restores
	}
	if all > f.restores {
		r.t.Errorf("%s: %d blocks on the live table for %d bad messages", f.name, all, n)
	}
	if out.probes > 2*n+manyProbes {
		r.t.Errorf("%s: %d probes for %d bad messages", f.name, out.probes, n)
	}
	if out.before > 1 {
		r.t.Errorf("%s: %d batches of bad messages came before a good one that was sent during the first", f.name, out.before)
	}
	return out
}

// withoutGood takes the good message's batch out of the records.
func (r *isolatedRuntime) withoutGood(out *badTimes) {
	for i, b := range r.records {
		if slices.Contains(b.Messages, "good") {
			out.before = i
			if len(b.Messages) == 1 {
				r.records = slices.Delete(r.records, i, i+1)
			}
			break
		}
	}
	out.batches = len(r.records)
}

// A rule that names an object of the live namespace can be tried nowhere else, and a legacy
// tool does not say which rule the kernel refuses. All that has no such rule lands in one
// block; of those that have one each is then asked for by itself.
func TestKernelUntriable(t *testing.T) {
	const n = 100
	testns.Each(t, func(t *testing.T, backend dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for bad, restores := range map[int]int{1: 3, 3: 6} {
			answers, records := untriable(t, k, rules.TableID{IPVersion: v, Name: "raw"}, n, bad)
			for i := range n {
				a, want := answers[fmt.Sprint(i)], actors.Applied
				if i < bad {
					want = actors.Rejected
				}
				if a.Result != want {
					t.Errorf("%d bad: message %d: %v: %v", bad, i, a.Result, a.Err)
				}
			}
			if len(records) != 1 || records[0].Restores > restores {
				t.Errorf("%d bad: %d batches, the first with %d blocks on the live table, at most %d", bad, len(records), records[0].Restores, restores)
			}
		}
	})
}

// untriable sends messages of one rule, the first of which name a helper that does not exist.
func untriable(t *testing.T, k *dataplane.Kernel, id rules.TableID, n, bad int) (map[string]actors.Answer, []actors.BatchRecord) {
	answers, records := map[string]actors.Answer{}, []actors.BatchRecord(nil)
	m := actors.NewMachine(actors.MachineConfig{
		Dataplane: k,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, Backend: k.Info().Backend, Kinds: true}
		},
		Observe: func(e actors.Event) {
			if e.Kind == actors.EventAnswer {
				answers[e.Answer.ID] = *e.Answer
			}
		},
		OnBatch: func(r actors.BatchRecord) { records = append(records, r) },
	})
	for i := range n {
		text := fmt.Sprintf("-p tcp -m tcp --dport %d -j NOTRACK", 1+i)
		if i < bad {
			text = "-p tcp -m tcp --dport 21 -j CT --helper nosuch"
		}
		c := chainOf(fmt.Sprintf("tw-%d-%d", bad, i), text)
		if err := m.Send(id, transaction.Message{ID: fmt.Sprint(i), Body: transaction.RewriteChains{Chains: []rules.Chain{c}}}); err != nil {
			t.Fatal(err)
		}
	}
	m.Settle()
	return answers, records
}
