// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	benchSenders = 8
	benchChains  = 1000
	benchTotal   = 400_000
)

// benchBodies are two rewrites of each chain, made before the clock runs: a feature has its
// rules before it sends them.
func benchBodies() [][2]transaction.Body {
	out := make([][2]transaction.Body, benchChains)
	for i := range out {
		for k := range 2 {
			r := rules.MustParseRule(fmt.Sprintf("-s 10.0.%d.%d/32 -j ACCEPT", k, i%250))
			out[i][k] = transaction.RewriteChains{Chains: []rules.Chain{{Name: fmt.Sprintf("tw-%d", i), Rules: []rules.Rule{r}}}}
		}
	}
	return out
}

// BenchmarkTell: 8 senders without waiting, 400,000 rewrites of one rule over 1,000 chains
// on the simulator, from the first send to the last answer.
func BenchmarkTell(b *testing.B) {
	bodies := benchBodies()
	for b.Loop() {
		var answered sync.WaitGroup
		answered.Add(benchTotal)
		rt := newRuntime(b, dataplane.NewSim(dataplane.NFT), actors.Options{OnAnswer: func(a actors.Answer) {
			if a.Err != nil {
				b.Error(a.Err)
			}
			answered.Done()
		}})
		start := time.Now()
		eachSender(func(sender, i int) {
			chain := (i*benchSenders + sender) % benchChains
			if err := rt.Owner(fmt.Sprint(chain%benchSenders), 0).Tell(filter4, bodies[chain][i/(benchChains/benchSenders)%2]); err != nil {
				b.Error(err)
			}
		})
		answered.Wait()
		b.ReportMetric(benchTotal/time.Since(start).Seconds(), "msg/s")
	}
}

// BenchmarkAsk: the same, each sender waiting for each answer.
func BenchmarkAsk(b *testing.B) {
	bodies := benchBodies()
	ctx := context.Background()
	for b.Loop() {
		rt := newRuntime(b, dataplane.NewSim(dataplane.NFT), actors.Options{})
		start := time.Now()
		eachSender(func(sender, i int) {
			chain := (i*benchSenders + sender) % benchChains
			a, err := rt.Owner(fmt.Sprint(chain%benchSenders), 0).Ask(ctx, filter4, bodies[chain][i/(benchChains/benchSenders)%2])
			if err != nil || a.Err != nil {
				b.Error(err, a.Err)
			}
		})
		b.ReportMetric(benchTotal/time.Since(start).Seconds(), "msg/s")
	}
}

// eachSender runs the senders side by side, each with its share of the messages.
func eachSender(send func(sender, i int)) {
	var wg sync.WaitGroup
	for sender := range benchSenders {
		wg.Go(func() {
			for i := range benchTotal / benchSenders {
				send(sender, i)
			}
		})
	}
	wg.Wait()
}
