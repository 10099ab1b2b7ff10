// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Ten minutes of a batch of 5,000 rules that fails write less than 1 MB into the log, the
// block itself once, and no error more than 20 lines of it.
func TestLogOfAFailingBatchIsSmall(t *testing.T) {
	for _, c := range []struct {
		name string
		err  func(input []byte, n int) error
	}{
		{"passing trouble", func([]byte, int) error {
			return &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: 4, Reason: "the xtables lock is held by pid 7 (flock)"}
		}},
		{"a reason with another number each time", func(_ []byte, n int) error {
			return &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: 4, Reason: fmt.Sprintf("the xtables lock is held by pid %d (flock)", n)}
		}},
		{"an absent table, tried at each refresh", func([]byte, int) error {
			return &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "table filter is not available"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				sim, n := dataplane.NewSim(dataplane.NFT), 0
				var cured atomic.Bool
				sim.Hook = func(call dataplane.Call) error {
					if call.Op != dataplane.OpRestore || cured.Load() {
						return nil
					}
					n++
					return c.err(call.Input, n)
				}
				rt := newRuntime(t, sim, actors.Options{
					Table:  transaction.Config{Prefixes: []string{"tw-"}},
					Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.DebugLevel), Refresh: 5 * time.Second,
				})
				var msgs []transaction.Message
				for i := range 500 {
					chain := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
					for port := range 10 {
						chain.Rules = append(chain.Rules, rule(fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1000+port)))
					}
					msgs = append(msgs, transaction.Message{Body: transaction.RewriteChains{Chains: []rules.Chain{chain}}})
				}
				if err := rt.Tell(filter4, msgs...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				cured.Store(true)
				time.Sleep(time.Minute)
				synctest.Wait()
				if log.Len() > 1<<20 || log.Len() == 0 {
					t.Errorf("%d bytes of log after %d blocks", log.Len(), n)
				}
				if got := strings.Count(log.String(), "the block that was not applied"); got != 1 {
					t.Errorf("the block is in the log %d times", got)
				}
				if got := strings.Count(log.String(), "a block was not applied"); got < 1 || got > 11 {
					t.Errorf("%d reports in ten minutes", got)
				}
				settleDeadLetters(t, rt)
			})
		})
	}
}

// A report shows the lines around the culprit, and no more.
func TestReportShowsTheCulprit(t *testing.T) {
	var log bytes.Buffer
	sim := dataplane.NewSim(dataplane.NFT)
	sim.NoScratch = true // so that the live table says it
	rt := newRuntime(t, sim, actors.Options{
		Table: transaction.Config{Prefixes: []string{"tw-"}}, Refresh: -1,
		Logger: zerolog.New(zerolog.SyncWriter(&log)).Level(zerolog.InfoLevel),
	})
	chain := rules.Chain{Name: "tw-a"}
	for i := range 100 {
		text := fmt.Sprintf("-s 10.0.0.%d/32 -j ACCEPT", i)
		if i == 50 {
			text = "-p tcp --bogus -j ACCEPT"
		}
		chain.Rules = append(chain.Rules, rule(text))
	}
	if _, err := rt.Send(t.Context(), filter4, transaction.Message{ID: "1", Body: transaction.RewriteChains{Chains: []rules.Chain{chain}}}); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	if !strings.Contains(got, `"> -A tw-a -p tcp --bogus -j ACCEPT"`) || strings.Count(got, "-A tw-a") != 20 || strings.Contains(got, "10.0.0.1/32") {
		t.Error(got)
	}
}
