// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_d_test.go, on real kernels: D4 to D6,
// messages that fail or succeed only together, and what others see meanwhile.

// loops are batches with a loop in them; the messages named, and no others, make it.
var loops = []struct {
	name    string
	seed    string // what a stranger has put into filter
	before  []transaction.Message
	batch   []transaction.Message
	members []string
	ways    []string // by one of which the loop is described
	stub    string   // what an innocent message needs of them
}{
	{"reached from INPUT", "",
		[]transaction.Message{writes("a0", "tw-a", "-p tcp -j RETURN"), writes("b0", "tw-b", "-p tcp -j RETURN"), hooks("INPUT", "tw-a")},
		[]transaction.Message{writes("a", "tw-a", "-p tcp -j tw-b"), writes("b", "tw-b", "-p udp -j RETURN", "-p tcp -j tw-a")},
		[]string{"a", "b"}, []string{"tw-a -> tw-b -> tw-a", "tw-b -> tw-a -> tw-b"}, ""},
	{"reached from nowhere", "", nil,
		[]transaction.Message{writes("a", "tw-a", "-g tw-b"), writes("b", "tw-b", "-j tw-a")},
		[]string{"a", "b"}, []string{"tw-a -> tw-b -> tw-a", "tw-b -> tw-a -> tw-b"}, ""},
	{"hooked up by the batch itself", "", nil,
		[]transaction.Message{hooks("FORWARD", "tw-c"), writes("c", "tw-c", "-j tw-a"), writes("a", "tw-a", "-j tw-b"), writes("b", "tw-b", "-j tw-a")},
		[]string{"a", "b"}, []string{"tw-a -> tw-b -> tw-a", "tw-b -> tw-a -> tw-b"}, "tw-a"},
	{"through what a stranger has put into his chain", ":STRANGER - [0:0]\n:tw-b - [0:0]\n-A STRANGER -j tw-b\n-A INPUT -j STRANGER\n", nil,
		[]transaction.Message{writes("a", "tw-a", "-j STRANGER"), writes("b", "tw-b", "-j tw-a")},
		[]string{"a", "b"}, []string{"STRANGER -> tw-b -> tw-a", "tw-a -> STRANGER -> tw-b", "tw-b -> tw-a -> STRANGER"}, ""},
	{"through what a message puts into a stranger's chain", ":STRANGER - [0:0]\n-A INPUT -j STRANGER\n", nil,
		[]transaction.Message{writes("a", "tw-a", "-j STRANGER"), hooks("STRANGER", "tw-a")},
		[]string{"a", "hook STRANGER"}, []string{"STRANGER -> tw-a -> STRANGER", "tw-a -> STRANGER -> tw-a"}, ""},
	{"of three messages", "", nil,
		[]transaction.Message{writes("c", "tw-c", "-j tw-a"), writes("a", "tw-a", "-j tw-b"), writes("b", "tw-b", "-j tw-c")},
		[]string{"a", "b", "c"}, []string{"tw-a -> tw-b -> tw-c"}, ""},
}

func hooks(chain, to string) transaction.Message {
	return transaction.Message{ID: "hook " + chain, Owner: "hooks", Body: transaction.InsertRule(chain, rule("-j "+to), transaction.InsertTop)}
}

// D4: messages that fail only together are all told, each of all the others; none of them is
// in the kernel, which holds what it held; and who is not needed for the loop is applied, in
// the one block that is sent.
func TestD04LoopIsAConflict(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for _, c := range loops {
			t.Run(c.name, func(t *testing.T) {
				d := kernelDocket(t, k, v, "filter")
				defer empty(t, k, d.id)
				putIn(t, k, d.id, c.seed)
				if len(c.before) > 0 {
					d.batch(c.before...)
					d.results(c.before, actors.Rejected)
				}
				was := tableOf(t, k, d.id)
				msgs := slices.Insert(good(4), 2, c.batch...)
				d.batch(msgs...)
				d.results(msgs, actors.Conflict, c.members...)
				d.atMost(1, 10)
				for _, id := range c.members {
					e := d.refusal(id)
					others := slices.DeleteFunc(slices.Clone(c.members), func(other string) bool { return other == id })
					slices.Sort(e.With)
					if !errors.Is(e, transaction.ErrLoop) || cmp.Diff(others, e.With) != "" ||
						!slices.ContainsFunc(c.ways, func(way string) bool { return strings.Contains(e.Reason, way) }) {
						t.Errorf("%s: %v, with %v", id, e, e.With)
					}
				}
				is := tableOf(t, k, d.id)
				for _, m := range c.batch {
					if slices.Contains(c.members, m.ID) {
						m.EachChain(func(chain string) {
							want := was[chain]
							if chain == c.stub {
								want = []string{`-m comment --comment "tableward: missing chain" -j DROP`}
							}
							if diff := cmp.Diff(want, is[chain]); diff != "" {
								t.Errorf("chain %s (-want +got):\n%s", chain, diff)
							}
						})
					}
				}
			})
		}
	})
}

// empty leaves nothing but the built-in chains of a table.
func empty(t *testing.T, k *dataplane.Kernel, id rules.TableID) {
	t.Helper()
	var flush, remove string
	for name := range tableOf(t, k, id) {
		flush += "-F " + name + "\n"
		if !rules.IsBuiltin(id.Name, name) {
			remove += "-X " + name + "\n"
		}
	}
	putIn(t, k, id, flush+remove)
}

// D4: who closes a loop of what is in the kernel already is at fault alone.
func TestD04WhoClosesALoop(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		d := kernelDocket(t, k, v, "filter")
		putIn(t, k, d.id, ":STRANGER - [0:0]\n:tw-old - [0:0]\n-A INPUT -j STRANGER\n-A STRANGER -j tw-old\n")
		first := writes("first", "tw-a", "-j STRANGER")
		d.batch(first)
		d.results([]transaction.Message{first}, actors.Rejected)
		msgs := among(4, writes("closes", "tw-old", "-j tw-a"))
		d.batch(msgs...)
		d.results(msgs, actors.Rejected, "closes")
		d.atMost(1, 10)
		if e := d.refusal("closes"); !errors.Is(e, transaction.ErrLoop) || len(e.With) != 0 {
			t.Errorf("%v, with %v", e, e.With)
		}
	})
}

// D5: messages of which one fails without the other are both applied in one block, whatever
// garbage is beside them and wherever it shows; in two, where legacy names no line and nothing
// can be tried beside the live table, so that halves land one by one. Their chains have no
// prefix of ours, so that no stub could stand in for one of them.
func TestD05OnlyTogetherSucceed(t *testing.T) {
	garbage := []string{"-m set --match-set tw-nosuch src -j DROP", lackedMatch}
	testns.Each(t, func(t *testing.T, backend dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for i, bad := range garbage {
			for name, dp := range map[string]actors.Dataplane{"live first": unsuspecting{k}, "no scratch": unaided{k}} {
				d := newDocket(t, dp, id, k.Info().Backend)
				needs, needed := fmt.Sprint("needs-", i, name[:1]), fmt.Sprint("needed-", i, name[:1])
				msgs := []transaction.Message{
					writes("needs", needs, "-p tcp -j "+needed), writes("garbage", "tw-garbage", bad), writes("other", "tw-other", "-j RETURN"),
					writes("needed", needed, "-p tcp -j RETURN"),
				}
				d.batch(msgs...)
				d.results(msgs, actors.Rejected, "garbage")
				d.atMost(6, 10)
				last := ""
				for _, e := range d.events {
					if e.Kind == actors.EventRestore && e.Err == nil {
						last = string(e.Input)
						halves := name == "no scratch" && bad == lackedMatch && backend == dataplane.Legacy
						if !halves && strings.Contains(last, ":"+needs+" ") != strings.Contains(last, ":"+needed+" ") {
							t.Errorf("%s, %s: not in one block:\n%s", name, bad, last)
						}
					}
				}
				if last == "" {
					t.Errorf("%s, %s: nothing was applied\n%s", name, bad, d.story())
				}
			}
		}
	})
}

// seen looks at the table after each block, taken or not.
type seen struct {
	unsuspecting
	look func()
}

func (s seen) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	defer s.look()
	return s.unsuspecting.Restore(ctx, id, input)
}

// D6: "delete x, rewrite y without x, garbage" beside y -> x: whoever reads the table, however
// often, sees y with x's old content or y without x; a stub that y, or anything, leads to is
// never there.
func TestD06NoStubIsSeen(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		var mu sync.Mutex
		states := map[string]int{}
		look := func() {
			table := tableOf(t, k, id)
			mu.Lock()
			defer mu.Unlock()
			states[stateOf(table)]++
		}
		d := newDocket(t, seen{unsuspecting{k}, look}, id, k.Info().Backend)
		before := []transaction.Message{hooks("INPUT", "tw-y"), writes("y", "tw-y", "-p tcp -j tw-x"), writes("x", "tw-x", "-p tcp -j ACCEPT")}
		after := []transaction.Message{
			{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-x"}}}, writes("y", "tw-y", "-p tcp -j ACCEPT"),
		}
		d.batch(before...)
		d.results(before, actors.Rejected)
		clear(states)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					look()
				}
			}
		}()
		for at, bad := range []string{"-p tcp --bogus 1 -j DROP", lackedMatch} {
			msgs := slices.Insert(slices.Clone(after), 1+at, writes("garbage", "tw-z", bad))
			d.batch(msgs...)
			d.results(msgs, actors.Rejected, "garbage")
			d.batch(before...)
			d.results(before, actors.Rejected)
		}
		close(stop)
		<-stopped
		if states["through x"] == 0 || states["without x"] == 0 || len(states) != 2 {
			t.Errorf("%v", states)
		}
	})
}

// stateOf says what leads where in a table of TestD06NoStubIsSeen.
func stateOf(table map[string][]string) string {
	for name, rs := range table {
		for _, text := range rs {
			if to := rule(text).Jump(); to != "" && strings.Contains(strings.Join(table[to], ""), "tableward: ") {
				return name + " leads to the stub " + to
			}
		}
	}
	switch y, x := strings.Join(table["tw-y"], ";"), strings.Join(table["tw-x"], ";"); {
	case y == "-p tcp -j tw-x" && x == "-p tcp -j ACCEPT":
		return "through x"
	case y == "-p tcp -j ACCEPT" && (x == "" || strings.Contains(x, "condemned chain")):
		return "without x"
	default:
		return "y: " + y + ", x: " + x
	}
}
