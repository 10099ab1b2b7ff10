// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

const isolationMessages = 1000

// BenchmarkIsolation: 1,000 messages of one chain with 10 rules each, in one batch, with 1, 3,
// and 10 bad ones among them, against the same batch without, in turns.
//
// N-bad-x is the ratio of the two times, the median over the iterations: -benchtime 5x makes
// it one of five. N-restores is how many blocks the live table saw, N-probes how many were
// tried elsewhere, and good-ms the time of the batch without bad ones.
func BenchmarkIsolation(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, f := range faults(rules.IPv4) {
			b.Run(fmt.Sprint(backend, "/", f.name), func(b *testing.B) { benchIsolation(b, backend, f) })
		}
	}
}

func benchIsolation(b *testing.B, backend dataplane.Backend, f fault) {
	bed := newIsolation(b, backend, rules.IPv4, isolationMessages)
	var goods []float64
	ratios, last := map[int][]float64{}, map[int]pairs{}
	for b.Loop() {
		for _, bad := range badCounts {
			p := bed.measure(f, bad, 1)
			goods, ratios[bad], last[bad] = append(goods, p.plain), append(ratios[bad], p.ratio), p
		}
	}
	for _, bad := range badCounts {
		b.ReportMetric(median(ratios[bad]), fmt.Sprint(bad, "-bad-x"))
		b.ReportMetric(float64(last[bad].restores), fmt.Sprint(bad, "-restores"))
		b.ReportMetric(float64(last[bad].probes), fmt.Sprint(bad, "-probes"))
	}
	b.ReportMetric(median(goods), "good-ms")
	b.ReportMetric(0, "ns/op") // of no meaning: an iteration is six batches
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
