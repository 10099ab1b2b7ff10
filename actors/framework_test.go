// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The scenarios of an actor framework, A3 to A9, as this runtime has them.

// sendWhileBusy sends messages one by one while a block is under way. It returns their answers
// as they came, and the blocks that followed, but for those that only delete.
func sendWhileBusy(t *testing.T, before, msgs []transaction.Message) (answers []actors.Answer, blocks []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim := dataplane.NewSim(dataplane.NFT)
		held, release := false, make(chan struct{})
		sim.Hook = func(c dataplane.Call) error {
			switch {
			case c.Op != dataplane.OpRestore:
			case held:
				held = false
				<-release
			case !strings.Contains(string(c.Input), "\n-X "):
				blocks = append(blocks, string(c.Input))
			}
			return nil
		}
		told := make(chan actors.Answer, len(msgs)+1)
		rt := newRuntime(t, sim, actors.Options{
			Table: transaction.Config{Grace: true}, Refresh: -1, GraceTimeout: -1,
			OnAnswer: func(a actors.Answer) { told <- a },
		})
		got, err := rt.Send(context.Background(), filter4, before...)
		for _, a := range got {
			err = errors.Join(err, a.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
		held = true
		for _, m := range append([]transaction.Message{{Body: body("tw-busy", "-j RETURN")}}, msgs...) {
			if err := rt.Tell(filter4, m); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the first is under way
		}
		blocks = nil
		close(release)
		for range len(msgs) + 1 {
			answers = append(answers, <-told)
		}
		settleDeadLetters(t, rt)
	})
	return answers[1:], blocks
}

func rewrite(id, name, source string) transaction.Message {
	return transaction.Message{ID: id, Body: body(name, "-s "+source+"/32 -j ACCEPT")}
}

func outcomes(answers []actors.Answer) (list []string) {
	for _, a := range answers {
		list = append(list, a.ID+" "+a.Result.String())
	}
	return list
}

// A3: a a b a that come while the table is busy are one batch, answered in order.
func TestFrameworkA3OneBatch(t *testing.T) {
	answers, blocks := sendWhileBusy(t, nil, []transaction.Message{
		rewrite("1", "tw-a", "10.0.0.1"), rewrite("2", "tw-a", "10.0.0.2"), rewrite("3", "tw-b", "10.0.0.3"), rewrite("4", "tw-a", "10.0.0.4"),
	})
	if got, want := outcomes(answers), []string{"1 superseded", "2 superseded", "3 applied", "4 applied"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	want := "*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n-A tw-a -s 10.0.0.4/32 -j ACCEPT\n-A tw-b -s 10.0.0.3/32 -j ACCEPT\nCOMMIT\n"
	if len(blocks) != 1 || blocks[0] != want {
		t.Errorf("blocks %q, want one: %q", blocks, want)
	}
}

// A4: one message's error is its own: the others of the batch have their values, whether the
// error is found by us or by the kernel.
func TestFrameworkA4ErrorDoesNotStopTheBatch(t *testing.T) {
	for rule, why := range map[string]string{
		"-p tcp --dport 80 -j ACCPET":    "did you mean ACCEPT?",
		"-p tcp --dport 99999 -j ACCEPT": "the port 99999 is out of range",
	} {
		t.Run(why, func(t *testing.T) {
			answers, blocks := sendWhileBusy(t, nil, []transaction.Message{
				rewrite("a", "tw-a", "10.0.0.1"), {ID: "exc", Body: body("tw-exc", rule)}, rewrite("b", "tw-b", "10.0.0.2"),
			})
			got := outcomes(answers)
			slices.Sort(got)
			if want := []string{"a applied", "b applied", "exc rejected"}; !slices.Equal(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
			for _, a := range answers {
				var e *transaction.Error
				switch {
				case a.ID != "exc" && a.Err != nil:
					t.Errorf("%s: %v", a.ID, a.Err)
				case a.ID == "exc" && (!errors.As(a.Err, &e) || e.Chain != "tw-exc" || e.Rule != rule || !strings.Contains(e.Reason, why)):
					t.Errorf("exc: %v", a.Err)
				}
			}
			want := "*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n-A tw-a -s 10.0.0.1/32 -j ACCEPT\n-A tw-b -s 10.0.0.2/32 -j ACCEPT\nCOMMIT\n"
			if len(blocks) == 0 || blocks[len(blocks)-1] != want {
				t.Errorf("blocks %q, want the last to be %q", blocks, want)
			}
		})
	}
}

// A7, D46: no message needs a batch of its own. Whatever stands between them, a b and a b are
// one block.
func TestFrameworkA7NoBatchOfItsOwn(t *testing.T) {
	own := rule("-p udp -j tw-own")
	before := []transaction.Message{
		{Body: body("tw-own", "-j RETURN")}, {Body: body("tw-gone", "-j RETURN")}, {Body: transaction.InsertRule("INPUT", own, transaction.InsertTop)},
	}
	for _, b := range []transaction.Body{
		transaction.DeleteChains{Chains: []string{"tw-gone"}},
		transaction.HandOver{Chains: []string{"tw-own"}, To: "other"},
		transaction.InsertRule("FORWARD", own, transaction.InsertBottom),
		transaction.RemoveRule("INPUT", own, false),
		transaction.RemoveRule("INPUT", rule("-p tcp -j DROP"), true),
		transaction.SetPolicy{Chain: "FORWARD", Policy: "DROP"},
		transaction.OverrideStub{Chain: "tw-stub", Rules: []rules.Rule{rule("-j RETURN")}},
		transaction.Refresh{}, transaction.EndGrace{}, transaction.InSync{}, transaction.Cleanup{},
	} {
		t.Run(fmt.Sprintf("%T", b), func(t *testing.T) {
			answers, blocks := sendWhileBusy(t, before, []transaction.Message{
				rewrite("1", "tw-a", "10.0.0.1"), rewrite("2", "tw-b", "10.0.0.2"), {ID: "own", Body: b},
				rewrite("3", "tw-a", "10.0.0.3"), rewrite("4", "tw-b", "10.0.0.4"),
			})
			if got, want := outcomes(answers), []string{"1 superseded", "2 superseded", "own applied", "3 applied", "4 applied"}; !slices.Equal(got, want) {
				t.Errorf("answers %q, want %q", got, want)
			}
			if len(blocks) != 1 || !strings.Contains(blocks[0], "-A tw-a -s 10.0.0.3/32") || !strings.Contains(blocks[0], "-A tw-b -s 10.0.0.4/32") {
				t.Errorf("blocks %q, want one", blocks)
			}
		})
	}
}

// A8: a call that waits returns the answer, when the kernel holds the effect, or the error.
func TestFrameworkA8CallReturnsTheAnswer(t *testing.T) {
	sim := dataplane.NewSim(dataplane.NFT)
	rt := newRuntime(t, sim, actors.Options{})
	a, err := rt.RewriteChains(context.Background(), filter4, chainOf("tw-a", "-j ACCEPT"))
	if err != nil || a.Result != actors.Applied || a.Err != nil || !strings.Contains(sim.Save(filter4), "-A tw-a -j ACCEPT\n") {
		t.Errorf("%+v, %v; the kernel holds\n%s", a, err, sim.Save(filter4))
	}
	a, err = rt.RewriteChains(context.Background(), filter4, chainOf("tw-a", "-j RETURN"), chainOf("tw-exc", "-p tcp --dport 99999 -j DROP"))
	var e *transaction.Error
	if err != nil || a.Result != actors.Rejected || !errors.As(a.Err, &e) || e.Chain != "tw-exc" || !strings.Contains(sim.Save(filter4), "-A tw-a -j ACCEPT\n") {
		t.Errorf("%+v, %v; the kernel holds\n%s", a, err, sim.Save(filter4))
	}
}

// A9: what a feature actor sends itself is queued behind what it handles, and a table that it
// asks from inside, waiting or not, answers.
func TestFrameworkA9SelfCall(t *testing.T) {
	rt := newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{})
	var log []string
	done := make(chan struct{})
	a, err := rt.Owner("self", 0).Spawn(func(self *actors.FeatureActor, message any) {
		switch m := message.(type) {
		case string:
			log = append(log, m)
			switch m {
			case "c":
				self.Post("c1")
				self.Post("c2")
				a, err := self.RewriteChains(context.Background(), filter4, chainOf("tw-c", "-j ACCEPT"))
				log = append(log, fmt.Sprint(a.Kind, " ", a.Result, " ", err))
			case "c1":
				if err := self.Request(filter4, transaction.Message{ID: "r", Owner: "not me", Body: body("tw-c1")}); err != nil {
					t.Error(err)
				}
				self.Post("c3")
			case "c2":
				panic("in a feature") // costs nothing but the message at hand
			}
		case actors.Answer:
			log = append(log, m.ID+" of "+m.Owner+" "+m.Result.String())
		}
		if len(log) == 6 {
			close(done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Post("c")
	<-done
	a.End()
	// The answer comes when it comes.
	answer := slices.Index(log, "r of self applied")
	if answer < 3 {
		t.Fatalf("log %q", log)
	}
	if want := []string{"c", "rewrite applied <nil>", "c1", "c2", "c3"}; !slices.Equal(slices.Delete(slices.Clone(log), answer, answer+1), want) {
		t.Errorf("log %q, want %q and the answer", log, want)
	}
}

// A9: who tells a table something from within the table's own callback is queued like anybody.
// Who waits there waits for himself: that ends with his context, and the message stays.
func TestFrameworkA9CallFromTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 3)
		var rt *actors.Runtime
		rt = newRuntime(t, dataplane.NewSim(dataplane.NFT), actors.Options{OnAnswer: func(a actors.Answer) {
			told <- a.ID + " " + a.Result.String()
			if a.ID != "c" {
				return
			}
			if err := rt.Tell(filter4, transaction.Message{ID: "c1", Body: body("tw-c1")}); err != nil {
				t.Error(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := rt.RewriteChains(ctx, filter4, chainOf("tw-c2")); !errors.Is(err, actors.ErrPending) {
				t.Errorf("error %v, want ErrPending", err)
			}
		}})
		if err := rt.Tell(filter4, transaction.Message{ID: "c", Body: body("tw-c")}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"c applied", "c1 applied"} {
			if got := <-told; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		if a, err := rt.DeleteChains(context.Background(), filter4, "tw-c2"); err != nil || a.Result != actors.Applied {
			t.Errorf("%+v, %v", a, err)
		}
		settleDeadLetters(t, rt)
	})
}

// An actor is of a runtime that runs, and a request that is not taken says so.
func TestFeatureActorOfNoRuntime(t *testing.T) {
	rt, err := actors.New(dataplane.NewSim(dataplane.NFT), actors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	silent := func(*actors.FeatureActor, any) { t.Error("there was no message") }
	if _, err := rt.Owner("o", 0).Spawn(silent); !errors.Is(err, actors.ErrNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	rt.Start()
	a, err := rt.Owner("o", 0).Spawn(silent)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Request(filter4, transaction.Message{ID: "x"}); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a message without a body: %v", err)
	}
	if err := a.Request(rules.TableID{IPVersion: rules.IPv4, Name: "nosuch"}, transaction.Message{Body: body("tw-a")}); err == nil {
		t.Error("an unknown table was taken")
	}
	a.End()
	if err := rt.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if err := a.Request(filter4, transaction.Message{Body: body("tw-a")}); !errors.Is(err, actors.ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
	if _, err := rt.Owner("o", 0).Spawn(silent); !errors.Is(err, actors.ErrStopped) {
		t.Errorf("after the stop: %v", err)
	}
}
