// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// watched is a touchy kernel that keeps what the table looked like after each commit.
type watched struct {
	*touchy
	seen []string
}

func (d *watched) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	err := d.touchy.Restore(ctx, id, input)
	if err == nil {
		d.seen = append(d.seen, withoutCondemned(d.Save(id)))
	}
	return err
}

// withoutCondemned leaves out the chains that only wait for their deletion: nothing reaches
// them.
func withoutCondemned(save string) string {
	condemned := map[string]bool{}
	lines := strings.SplitAfter(save, "\n")
	for _, line := range lines {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "-A" && strings.Contains(line, "condemned chain") {
			condemned[f[1]] = true
		}
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		f := strings.Fields(strings.TrimPrefix(line, ":"))
		return len(f) > 1 && (condemned[f[0]] || f[0] == "-A" && condemned[f[1]])
	}), "")
}

// newWatched is a Machine on a table that good messages have filled.
func newWatched(k *touchy, f *finals, base []transaction.Message) (*watched, *actors.Machine) {
	w := &watched{touchy: k}
	m := actors.NewMachine(actors.MachineConfig{
		Dataplane: w, Observe: f.observe,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: 15, Kinds: true}
		},
	})
	for _, msg := range base {
		if err := m.Send(filter4, msg); err != nil {
			panic(err)
		}
	}
	m.Settle()
	w.seen = nil
	return w, m
}

func goodBase() []transaction.Message {
	var out []transaction.Message
	for i, text := range []string{note("one"), "-j tw-a", "-j tw-b"} {
		out = append(out, transaction.Message{ID: fmt.Sprint("base", i), Body: transaction.RewriteChains{
			Chains: []rules.Chain{chainOf(fmt.Sprintf("tw-%c", 'a'+i), text)},
		}})
	}
	return append(out, transaction.Message{ID: "hook", Body: transaction.InsertRule("INPUT", rule("-j tw-c"), transaction.InsertTop)})
}

// D6: no state is ever visible that a sequence of the good messages would not show. The whole
// table after every commit is one of those that some of them show, sent in order to a table
// without trouble.
func TestNoOtherStateIsVisible(t *testing.T) {
	runs, seed := 400, uint64(3)
	if os.Getenv("TABLEWARD_SOAK") != "" {
		runs, seed = 20_000, uint64(time.Now().UnixNano())
	}
	commits, searched := 0, 0
	for i := range runs {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		k, f := newTroubled(rnd).touchy, newFinals()
		w, m := newWatched(k, f, goodBase())
		var sent []transaction.Message
		for n := range 2 + rnd.IntN(5) {
			msg := randomWish(rnd, fmt.Sprint(n))
			sent = append(sent, msg)
			if err := m.Send(filter4, msg); err != nil {
				t.Fatal(err)
			}
		}
		m.Settle()
		var good []transaction.Message
		for _, msg := range sent {
			if r := f.last[msg.ID]; r == actors.Applied || r == actors.Superseded {
				good = append(good, msg)
			}
		}
		commits += len(w.seen)
		allowed := statesOf(good)
		for n, state := range w.seen {
			if allowed[state] {
				continue
			}
			// Rarely needed, since nearly always all that is good lands in one block.
			searched++
			found := false
			for part := range 1 << len(good) {
				var some []transaction.Message
				for j, msg := range good {
					if part&(1<<j) != 0 {
						some = append(some, msg)
					}
				}
				if found = statesOf(some)[state]; found {
					break
				}
			}
			if !found {
				t.Fatalf("seed %d, run %d: no sequence of the good messages shows what commit %d of %d left:\n%s\nsent %v\ngood %v",
					seed, i, n+1, len(w.seen), state, sent, good)
			}
		}
	}
	t.Logf("%d commits of %d batches, %d of them in the middle of a batch", commits, runs, searched)
}

// statesOf are the tables that good messages show when they come as one batch.
func statesOf(good []transaction.Message) map[string]bool {
	w, m := newWatched(&touchy{Sim: dataplane.NewSim(dataplane.NFT)}, newFinals(), goodBase())
	out := map[string]bool{withoutCondemned(w.Save(filter4)): true}
	for _, msg := range good {
		if err := m.Send(filter4, msg); err != nil {
			panic(err)
		}
	}
	m.Settle()
	for _, state := range w.seen {
		out[state] = true
	}
	return out
}
