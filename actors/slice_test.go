// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// A first load on nft comes in parts of 100 chains, what is jumped to first and hooks last. On
// legacy, which is slower in parts, it comes as one block.
func TestFirstLoadInSlices(t *testing.T) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b := newBench(t, backend, transaction.Config{Backend: string(backend)})
		b.send("hook", transaction.InsertRule("FORWARD", rule("-j tw-dispatch"), transaction.InsertTop))
		dispatch := rules.Chain{Name: "tw-dispatch"}
		for i := range 350 {
			dispatch.Rules = append(dispatch.Rules, rule(fmt.Sprintf("-g tw-%03d", i)))
		}
		b.send("dispatch", transaction.RewriteChains{Chains: []rules.Chain{dispatch}})
		for i := range 350 {
			text := "-j ACCEPT"
			if i%100 == 17 {
				text = "-p tcp --bogus -j ACCEPT"
			}
			b.write(fmt.Sprint(i), fmt.Sprintf("tw-%03d", i), text)
		}
		b.m.Settle()
		for i := range 350 {
			want := "applied"
			if i%100 == 17 {
				want = "rejected"
			}
			if got := b.answers[fmt.Sprint(i)]; got != want {
				t.Errorf("%s: message %d: %s, want %s", backend, i, got, want)
			}
		}
		if b.answers["hook"] != "applied" || b.answers["dispatch"] != "applied" {
			t.Errorf("%s: hook %s, dispatch %s: %v", backend, b.answers["hook"], b.answers["dispatch"], b.errs["dispatch"])
		}
		var taken []string
		for _, line := range b.log {
			if strings.HasPrefix(line, "restore ") && !strings.Contains(line, "rejected") {
				taken = append(taken, line)
			}
		}
		blocks := map[dataplane.Backend]int{dataplane.NFT: 5, dataplane.Legacy: 1}[backend]
		if len(taken) != blocks || !strings.Contains(taken[len(taken)-1], "-IFORWARD") {
			t.Errorf("%s: %d blocks, want %d, the last with the hook:\n%.2000s", backend, len(taken), blocks, strings.Join(b.log, "\n"))
		}
		if err := b.m.State(filter4).Check(); err != nil {
			t.Error(err)
		}
		save := b.sim.Save(filter4)
		if !strings.Contains(save, "-A FORWARD -j tw-dispatch\n") || !strings.Contains(save, "-A tw-349 -j ACCEPT\n") ||
			!strings.Contains(save, `-A tw-017 -m comment --comment "tableward: missing chain" -j DROP`) {
			t.Errorf("%s: %.500s", backend, save)
		}
	}
}

// A long chain of a first load comes in pieces while nothing reaches it. What somebody does to it
// in between is seen, though none of the pieces fails.
func TestLongChainInPieces(t *testing.T) {
	for _, meddled := range []bool{false, true} {
		target := "tw-%03d"
		if meddled {
			target = "RETURN" // then it comes with the first part
		}
		b := newBench(t, dataplane.NFT, transaction.Config{Backend: "nft"})
		b.m = actors.NewMachine(actors.MachineConfig{
			Dataplane: b.sim, Scan: true, Observe: b.observe,
			Table: func(rules.TableID) transaction.Config {
				return transaction.Config{Prefixes: []string{"tw-"}, Backend: "nft"}
			},
		})
		dispatch := rules.Chain{Name: "tw-dispatch"}
		for i := range 1200 {
			dispatch.Rules = append(dispatch.Rules, rule(fmt.Sprintf("-p tcp -m tcp --dport %d -j ", i+1)+strings.ReplaceAll(target, "%03d", fmt.Sprintf("%03d", i%120))))
		}
		pieces, hooked := 0, false
		b.sim.Hook = func(c dataplane.Call) error {
			input := string(c.Input)
			if c.Op != dataplane.OpRestore {
				return nil
			}
			hooked = hooked || strings.Contains(input, "-I FORWARD")
			if strings.Contains(input, "-A tw-dispatch") {
				pieces++
				if hooked && !meddled {
					t.Error("a piece comes when the chain is reached")
				}
				if pieces == 2 && meddled {
					return b.sim.Load(rules.IPv4, []byte("*filter\n-F tw-dispatch\nCOMMIT\n"))
				}
			}
			return nil
		}
		b.send("hook", transaction.InsertRule("FORWARD", rule("-j tw-dispatch"), transaction.InsertTop))
		b.send("dispatch", transaction.RewriteChains{Chains: []rules.Chain{dispatch}})
		for i := range 120 {
			b.write(fmt.Sprint(i), fmt.Sprintf("tw-%03d", i), "-j ACCEPT")
		}
		b.m.Settle()
		if pieces < 3 {
			t.Errorf("%d pieces", pieces)
		}
		save := b.sim.Save(filter4)
		if n := strings.Count(save, "-A tw-dispatch "); n != 1200 || !strings.Contains(save, "-A FORWARD -j tw-dispatch\n") {
			t.Errorf("meddled with: %v: %d rules", meddled, n)
		}
		if b.answers["dispatch"] != "applied" || b.answers["hook"] != "applied" {
			t.Errorf("dispatch %s, hook %s", b.answers["dispatch"], b.answers["hook"])
		}
	}
}
