// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// table returns the State of a table in which a dispatch chain jumps to n-1 chains.
func table(tb testing.TB, n int) *transaction.State {
	tb.Helper()
	s, err := transaction.NewState(transaction.Config{Table: filter4, Prefixes: []string{"tw-"}, MaxDepth: 15})
	if err != nil {
		tb.Fatal(err)
	}
	dispatch := rules.Chain{Name: "tw-dispatch"}
	chains := make([]rules.Chain, 0, n)
	for i := range n - 1 {
		name := fmt.Sprintf("tw-%d", i)
		dispatch.Rules = append(dispatch.Rules, rule("-j "+name))
		chains = append(chains, chainOf(name, "-s 10.0.0.1/32 -j ACCEPT"))
	}
	txn, out := s.Propose([]transaction.Message{
		rewrite("seed", "o", append(chains, dispatch)...),
		message("hook", "o", transaction.InsertRule("FORWARD", rule("-j tw-dispatch"), transaction.InsertTop)),
	})
	for _, o := range out {
		if o.Err != nil {
			tb.Fatal(o.Err)
		}
	}
	s.Commit(txn)
	return s
}

// oneChain is a batch of one rewrite, from Begin to Commit.
func oneChain(tb testing.TB, s *transaction.State, msgs [2]transaction.Message, i int) {
	txn := s.Begin()
	if err := txn.Apply(msgs[i%2]); err != nil {
		tb.Fatal(err)
	}
	if len(txn.Plan().Modify.Lines) != 2 {
		tb.Fatalf("the plan has %d lines", len(txn.Plan().Modify.Lines))
	}
	s.Commit(txn)
}

var twoContents = [2]transaction.Message{
	rewrite("1", "o", chainOf("tw-1", "-s 10.0.0.2/32 -j ACCEPT")),
	rewrite("2", "o", chainOf("tw-1", "-s 10.0.0.3/32 -j ACCEPT")),
}

// D26: what a batch costs does not grow with the table. Allocations are counted exactly,
// so this needs no clock; the time is BenchmarkOneChainBatch's.
func TestBatchAllocatesTheSameInALargeTable(t *testing.T) {
	allocs := func(n int) float64 {
		s, i := table(t, n), 0
		return testing.AllocsPerRun(500, func() { oneChain(t, s, twoContents, i); i++ })
	}
	small, large := allocs(10), allocs(10_000)
	if large > 1.2*small {
		t.Errorf("%v allocations with 10,000 chains, %v with 10", large, small)
	}
}

// BenchmarkOneChainBatch compares a batch of one chain in tables of 10 and 10,000 chains,
// run by run in turn; "ratio" is the large table's time by the small one's.
func BenchmarkOneChainBatch(b *testing.B) {
	small, large := table(b, 10), table(b, 10_000)
	const run = 64
	var spent [2]time.Duration
	for b.Loop() {
		for k, s := range []*transaction.State{small, large} {
			start := time.Now()
			for i := range run {
				oneChain(b, s, twoContents, i)
			}
			spent[k] += time.Since(start)
		}
	}
	b.ReportMetric(float64(spent[1])/float64(spent[0]), "ratio")
	for k, name := range []string{"ns/batch-of-10", "ns/batch-of-10000"} {
		b.ReportMetric(float64(spent[k].Nanoseconds())/float64(b.N*run), name)
	}
}
