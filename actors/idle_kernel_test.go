// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// While nobody writes, the periodic refresh of a table costs next to nothing: no tool is run. The
// full form has a table of 10,000 chains with 10 rules each, refreshed ten times more often than by
// default, and measures for 30 seconds what this process uses of a core.
func TestIdleCostsNothing(t *testing.T) {
	chains, refresh := 200, 20*time.Millisecond
	full := os.Getenv("TABLEWARD_SOAK") != ""
	if full {
		chains, refresh = 10_000, 6*time.Second
	}
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b)+"4", func(t *testing.T) {
			h := newHost(t, b, rules.IPv4, actors.Options{Refresh: refresh})
			var jumps []string
			var msgs []transaction.Message
			for n := range chains {
				c := chainOf(fmt.Sprintf("tw-%d", n))
				for i := range 10 {
					c.Rules = append(c.Rules, rule(fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -j ACCEPT", i, n/250, n%250, i+1)))
				}
				msgs = append(msgs, rewriteOf(c))
				jumps = append(jumps, "-j "+c.Name)
			}
			msgs = append(msgs, rewriteOf(chainOf("tw-all", jumps...)))
			answers, err := h.rt.Send(context.Background(), h.id, msgs...)
			if err != nil || answers[len(answers)-1].Err != nil {
				t.Fatal(err, answers[len(answers)-1].Err)
			}
			h.ask(transaction.InsertRule("FORWARD", rule("-j tw-all"), transaction.InsertTop))
			ended := make(chan struct{})
			defer close(ended)
			go func() { // nobody else takes the events
				for {
					select {
					case <-h.events:
					case <-ended:
						return
					}
				}
			}()
			h.ask(transaction.Refresh{}) // what was written is verified by it
			if full {
				// It is idle once what comes after a write is over: further looks, and the end of
				// tools, whose time counts as used only then.
				<-time.After(2 * refresh)
			}
			before, runs := h.status(), h.k.Stats().Runs
			begin, used := time.Now(), processTime(t)
			if full {
				<-time.After(30 * time.Second)
			} else {
				h.until("ten refreshes", func() bool { return h.status().Looks >= before.Looks+10 })
			}
			after := h.status()
			if full && after.Looks < before.Looks+4 {
				t.Errorf("%d looks", after.Looks-before.Looks)
			}
			if after.Restores != before.Restores || after.Reads != before.Reads || h.k.Stats().Runs != runs {
				t.Errorf("%d restores, %d reads, %d runs of tools", after.Restores-before.Restores, after.Reads-before.Reads, h.k.Stats().Runs-runs)
			}
			if full {
				share := float64(processTime(t)-used) / float64(time.Since(begin))
				t.Logf("%s: %.2f %% of a core, %d looks", b, 100*share, after.Looks-before.Looks)
				if share > 0.01 {
					t.Errorf("%.2f %% of a core", 100*share)
				}
			}
		})
	}
}

// processTime is what this process and its children have used.
func processTime(t *testing.T) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
