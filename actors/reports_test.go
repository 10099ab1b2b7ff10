// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file are named by the public bug reports about programs of this kind
// whose mistakes they keep out.

var (
	raw4    = rules.TableID{IPVersion: rules.IPv4, Name: "raw"}
	filter6 = rules.TableID{IPVersion: rules.IPv6, Name: "filter"}
)

// lockText is what a legacy tool says that waited for the lock in vain. It names no line.
const lockText = "Another app is currently holding the xtables lock. Stopped waiting after 1s.\n"

// diary is what a runtime on a simulator did and answered, by the bubble's time.
type diary struct {
	start time.Time

	mu       sync.Mutex // guards what follows
	restores []attempt
	answers  []actors.Answer
	at       []time.Duration // of the answers
}

type attempt struct {
	at     time.Duration
	table  rules.TableID
	chains string
	err    error
}

func newDiary() *diary { return &diary{start: time.Now()} }

func (d *diary) observe(e actors.Event) {
	if e.Kind != actors.EventRestore {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restores = append(d.restores, attempt{time.Since(d.start), e.Table, chainsOf(e.Input), e.Err})
}

func (d *diary) answer(a actors.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers = append(d.answers, a)
	d.at = append(d.at, time.Since(d.start))
}

// results returns each message's answer, and the time of the last one.
func (d *diary) results(t *testing.T) (results map[string]actors.Answer, last time.Duration) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	results = map[string]actors.Answer{}
	for i, a := range d.answers {
		if _, again := results[a.ID]; again {
			t.Errorf("message %s is answered twice", a.ID)
		}
		results[a.ID] = a
		last = d.at[i]
	}
	return results, last
}

// blocks counts the restores that began at from or later.
func (d *diary) blocks(from time.Duration) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.restores {
		if a.at >= from {
			n++
		}
	}
	return n
}

// lockedUntil is a dataplane whose restores each wait for the lock in vain, as long as it is
// held.
func lockedUntil(sim *dataplane.Sim, start time.Time, held, wait time.Duration) {
	sim.Hook = func(c dataplane.Call) error {
		if c.Op != dataplane.OpRestore || time.Since(start) >= held {
			return nil
		}
		time.Sleep(wait)
		return dataplane.Classify(4, lockText, c.Input)
	}
}

// R01: what comes while somebody has the lock is not lost, is not reported as failed, and is
// in the kernel with the first try after the lock is free.
func TestR01LockHeldAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held = 5 * time.Second
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		lockedUntil(sim, d.start, held, time.Second)
		rt := newRuntime(t, sim, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true})
		if err := rt.Tell(filter4,
			transaction.Message{ID: "hook", Body: transaction.InsertRule("INPUT", rule("-j tw-in"), transaction.InsertTop)},
			transaction.Message{ID: "chain", Body: body("tw-in", "-j ACCEPT")},
		); err != nil {
			t.Fatal(err)
		}
		time.Sleep(held - time.Millisecond)
		if results, _ := d.results(t); len(results) != 0 {
			t.Errorf("answers while the lock is held: %v", results)
		}
		st, err := rt.Status(context.Background())
		if err != nil || len(st) != 1 || !st[0].Resting || st[0].Pending != 2 {
			t.Errorf("the status does not say that the table is waited for: %+v, %v", st, err)
		}
		time.Sleep(time.Minute)
		results, last := d.results(t)
		if results["hook"].Result != actors.Applied || results["chain"].Result != actors.Applied || last > held+time.Second {
			t.Errorf("after %v: %+v", last, results)
		}
		if n := d.blocks(held); n != 1 {
			t.Errorf("%d tries after the lock was free", n)
		}
		if save := sim.Save(filter4); !strings.Contains(save, "-A INPUT -j tw-in\n") || !strings.Contains(save, "-A tw-in -j ACCEPT\n") {
			t.Error(save)
		}
		settleDeadLetters(t, rt)
	})
}

// R02: while another writer keeps the lock busy, a steady stream of small updates is one
// batch that grows; the tries get rarer, and all of it lands in the first gap.
func TestR02BusyLockCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held, updates = time.Minute, 600
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		lockedUntil(sim, d.start, held, 0)
		rt := newRuntime(t, sim, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Refresh: -1})
		for i := range updates {
			text := fmt.Sprintf("-s 10.0.%d.%d/32 -j ACCEPT", i/200, i%200)
			if err := rt.Tell(filter4, transaction.Message{ID: fmt.Sprint(i), Body: body(fmt.Sprintf("tw-%d", i%50), text)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(held / updates)
		}
		time.Sleep(10 * time.Second)
		// 100, 200, ... 3,200 ms, then each 5 s.
		if n := d.blocks(0) - d.blocks(held); n > 18 {
			t.Errorf("%d tries in %v", n, held)
		}
		if n := d.blocks(held); n != 1 {
			t.Errorf("%d blocks after the lock was free, want all in one", n)
		}
		results, last := d.results(t)
		counts := map[actors.Result]int{}
		for _, a := range results {
			counts[a.Result]++
		}
		if diff := cmp.Diff(map[actors.Result]int{actors.Applied: 50, actors.Superseded: updates - 50}, counts); diff != "" || last > held+5*time.Second {
			t.Errorf("after %v, answers (-want +got):\n%s", last, diff)
		}
		settleDeadLetters(t, rt)
	})
}

// R04: a refusal names the message, the IP version and table, the chain and the rule, and has
// the tool's exit code and words below it.
func TestR04RefusalSaysWhatAndWhere(t *testing.T) {
	const stderr = "ip6tables-restore v1.8.9 (legacy): unknown option \"--bogus\"\nError occurred at line: 5\n"
	sim := dataplane.NewSim(dataplane.Legacy)
	sim.NoScratch = true // so that the live table says it
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && strings.Contains(string(c.Input), "--bogus") {
			return dataplane.Classify(2, stderr, c.Input)
		}
		return nil
	}
	rt := newRuntime(t, sim, actors.Options{})
	answers, err := rt.Send(context.Background(), filter6,
		transaction.Message{ID: "good", Body: body("tw-a", "-j ACCEPT")},
		transaction.Message{ID: "bad", Owner: "web", Body: body("tw-b", "-p tcp --bogus -j DROP")},
	)
	if err != nil {
		t.Fatal(err)
	}
	var te *transaction.Error
	var re *dataplane.RestoreError
	if !errors.As(answers[1].Err, &te) || !errors.As(answers[1].Err, &re) || answers[0].Result != actors.Applied {
		t.Fatalf("%+v", answers)
	}
	if te.ID != "bad" || te.Owner != "web" || te.Table != filter6 || te.Chain != "tw-b" || te.Rule != "-p tcp --bogus -j DROP" {
		t.Errorf("%+v", te)
	}
	if re.ExitCode != 2 || re.Stderr != stderr || re.Text != "-A tw-b -p tcp --bogus -j DROP" {
		t.Errorf("%+v", re)
	}
	for _, word := range []string{"bad", "6/filter", "tw-b", "--bogus"} {
		if !strings.Contains(te.Error(), word) {
			t.Errorf("the text lacks %q: %v", word, te)
		}
	}
}

// R10: ten minutes of a lock that is held do not fill the log, and show in the status; then
// everything lands.
func TestR10LockHeldForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held = 10 * time.Minute
		var log bytes.Buffer
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		lockedUntil(sim, d.start, held, time.Second)
		rt := newRuntime(t, sim, actors.Options{
			OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Logger: zerolog.New(zerolog.SyncWriter(&log)),
		})
		if err := rt.Tell(filter4, transaction.Message{ID: "1", Body: body("tw-a", "-j ACCEPT")}); err != nil {
			t.Fatal(err)
		}
		for range 9 {
			time.Sleep(time.Minute)
			st, err := rt.Status(context.Background())
			if err != nil || len(st) != 1 || !st[0].Resting || st[0].Pending == 0 {
				t.Errorf("status %+v, %v", st, err)
			}
		}
		if n := d.blocks(0); n > 110 {
			t.Errorf("%d tries in 9 minutes", n)
		}
		time.Sleep(2 * time.Minute)
		if results, _ := d.results(t); results["1"].Result != actors.Applied {
			t.Errorf("%+v", results)
		}
		settleDeadLetters(t, rt)
		if n := strings.Count(log.String(), "\n"); n > 5 { // more and more rarely
			t.Errorf("%d lines of log:\n%s", n, log.String())
		}
	})
}

// R11: 100 messages and a lock that is held: each try is one block with all of them, none is
// cut, and all are pending.
func TestR11LockTextCutsNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held = 2 * time.Minute
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		lockedUntil(sim, d.start, held, time.Second)
		rt := newRuntime(t, sim, actors.Options{OnAnswer: d.answer, Observe: d.observe, NoJitter: true, Refresh: -1})
		msgs := make([]transaction.Message, 100)
		for i := range msgs {
			msgs[i] = transaction.Message{ID: fmt.Sprint(i), Body: body(fmt.Sprintf("tw-%d", i), "-j ACCEPT")}
		}
		if err := rt.Tell(filter4, msgs...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := d.blocks(0); n < 8 || n > 16 {
			t.Errorf("%d tries in a minute", n)
		}
		d.mu.Lock()
		for _, a := range d.restores {
			if n := strings.Count(a.chains, "tw-"); n != len(msgs) {
				t.Errorf("a block of %d messages at %v", n, a.at)
			}
		}
		d.mu.Unlock()
		st, err := rt.Status(context.Background())
		if results, _ := d.results(t); err != nil || len(results) != 0 || st[0].Messages != 100 {
			t.Errorf("%d answers, status %+v, %v", len(results), st, err)
		}
		time.Sleep(held)
		if results, _ := d.results(t); len(results) != len(msgs) {
			t.Errorf("%d answers", len(results))
		}
		settleDeadLetters(t, rt)
	})
}

// R59: no text field of any message carries a line of its own into what the kernel is sent;
// the message is refused, and those beside it land.
func TestR59NoFieldCarriesALine(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\x00"} {
		evil := "tw-x" + end + "-I INPUT -j ACCEPT"
		for name, b := range map[string]transaction.Body{
			"chain":          body(evil, "-j ACCEPT"),
			"deleted chain":  transaction.DeleteChains{Chains: []string{evil}},
			"handed chain":   transaction.HandOver{Chains: []string{evil}, To: "o"},
			"kernel chain":   transaction.InsertRule("INPUT"+end+"-P INPUT DROP", rule("-j ACCEPT"), transaction.InsertTop),
			"removed from":   transaction.RemoveRule("INPUT"+end+"-P INPUT DROP", rule("-j ACCEPT"), true),
			"policy":         transaction.SetPolicy{Chain: "INPUT", Policy: "DROP" + end + "-F INPUT"},
			"policy's chain": transaction.SetPolicy{Chain: "INPUT" + end + "-F INPUT", Policy: "DROP"},
			"stub's chain":   transaction.OverrideStub{Chain: evil, Rules: []rules.Rule{rule("-j RETURN")}},
		} {
			sim := dataplane.NewSim(dataplane.NFT)
			seed := "*filter\n:other - [0:0]\n-A INPUT -j other\nCOMMIT\n"
			if err := sim.Load(rules.IPv4, []byte(seed)); err != nil {
				t.Fatal(err)
			}
			var sent strings.Builder
			sim.Hook = func(c dataplane.Call) error {
				if c.Op == dataplane.OpRestore {
					sent.Write(c.Input)
				}
				return nil
			}
			m := actors.NewMachine(actors.MachineConfig{
				Dataplane: sim,
				Table:     func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
				Observe: func(e actors.Event) {
					if e.Kind != actors.EventAnswer {
						return
					}
					switch harmless := name == "deleted chain"; {
					case e.Answer.ID == "good" && e.Answer.Result != actors.Applied:
						t.Errorf("%s with %q: the message beside it: %v", name, end, e.Answer.Err)
					case e.Answer.ID == "evil" && e.Answer.Result != actors.Rejected && !harmless:
						t.Errorf("%s with %q: %v", name, end, e.Answer.Result)
					}
				},
			})
			for id, b := range map[string]transaction.Body{"evil": b, "good": body("tw-good", "-j ACCEPT")} {
				if err := m.Send(filter4, transaction.Message{ID: id, Owner: end, Body: b}); err != nil {
					t.Fatal(err)
				}
			}
			m.Settle()
			if want := "*filter\n:tw-good - [0:0]\n-A tw-good -j ACCEPT\nCOMMIT\n"; sent.String() != want {
				t.Errorf("%s with %q: sent %q", name, end, sent.String())
			}
		}
	}
}

// withoutComment is a simulator of a kernel that lacks the comment match.
func withoutComment() *dataplane.Sim {
	sim := dataplane.NewSim(dataplane.Legacy)
	sim.Hook = func(c dataplane.Call) error {
		for i, line := range strings.Split(string(c.Input), "\n") {
			if c.Op == dataplane.OpRestore && strings.Contains(line, "-m comment") {
				return dataplane.Classify(2, fmt.Sprintf("iptables-restore v1.8.9 (legacy): Couldn't load match `comment':No such file or directory\n\n"+
					"Error occurred at line: %d\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n", i+1), c.Input)
			}
		}
		return nil
	}
	return sim
}

// R97: a match that the kernel or the tool lacks costs the message that uses it, with the
// tool's reason, and nobody else.
func TestR97MissingMatchHasItsReason(t *testing.T) {
	rt := newRuntime(t, withoutComment(), actors.Options{})
	answers, err := rt.Send(context.Background(), filter4,
		transaction.Message{ID: "plain", Body: body("tw-a", "-j ACCEPT")},
		transaction.Message{ID: "comment", Body: body("tw-b", "-p tcp -j ACCEPT", "-m comment --comment x -j DROP")},
		transaction.Message{ID: "jump", Body: transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop)},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range answers {
		want := actors.Applied
		if a.ID == "comment" {
			want = actors.Rejected
		}
		if a.Result != want {
			t.Errorf("%s: %v: %v", a.ID, a.Result, a.Err)
		}
	}
	var te *transaction.Error
	if !errors.As(answers[1].Err, &te) || te.Reason != "Couldn't load match `comment':No such file or directory" ||
		te.Chain != "tw-b" || te.Rule != "-m comment --comment x -j DROP" || te.Column != 4 {
		t.Errorf("%+v", te)
	}
}

// R98: a table that the kernel lacks is answered at once, and lands when it can; the other
// tables do not notice.
func TestR98MissingTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sim, d := dataplane.NewSim(dataplane.Legacy), newDiary()
		var lacking atomic.Bool
		lacking.Store(true)
		sim.Hook = func(c dataplane.Call) error {
			if c.Table == raw4 && c.Op != dataplane.OpCanon && lacking.Load() {
				return dataplane.Classify(2, "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'raw'\n\nError occurred at line: 1\n", c.Input)
			}
			return nil
		}
		late := make(chan actors.Answer, 1)
		rt := newRuntime(t, sim, actors.Options{
			OnAnswer: d.answer, NoJitter: true, Logger: zerolog.New(zerolog.SyncWriter(&log)),
			Observe: func(e actors.Event) {
				d.observe(e)
				if e.Kind == actors.EventLate {
					late <- *e.Answer
				}
			},
		})
		for _, id := range []rules.TableID{raw4, nat4, filter4} {
			if err := rt.Tell(id, transaction.Message{ID: id.Name, Body: body("tw-a", "-p tcp -j RETURN")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		results, last := d.results(t)
		if last != 0 || results["nat"].Result != actors.Applied || results["filter"].Result != actors.Applied || results["raw"].Result != actors.Unavailable {
			t.Errorf("after %v: %+v", last, results)
		}
		if err := results["raw"].Err; err == nil || !strings.Contains(err.Error(), "table raw is not available") {
			t.Errorf("raw: %v", err)
		}
		time.Sleep(10*time.Minute + time.Second)
		d.mu.Lock()
		for _, a := range d.restores {
			if a.at > 0 {
				t.Errorf("a restore of %s at %v", a.table, a.at)
			}
		}
		d.mu.Unlock()
		lacking.Store(false) // its module was loaded
		if a := <-late; a.ID != "raw" || a.Result != actors.Applied {
			t.Errorf("%+v", a)
		}
		settleDeadLetters(t, rt)
		if n := strings.Count(log.String(), "\n"); n > 1 {
			t.Errorf("%d lines of log:\n%s", n, log.String())
		}
	})
}

// R100: IPv4 never waits for IPv6, whether IPv6 fails or hangs, though the two share the pace
// of the kernel's commits.
func TestR100IPv4NeverWaitsForIPv6(t *testing.T) {
	for name, fail := range map[string]func(context.Context, []byte) error{
		"fails": func(_ context.Context, input []byte) error {
			return dataplane.Classify(1, "ip6tables-restore/1.8.9 (nf_tables) Failed to initialize nft: Address family not supported by protocol\n", input)
		},
		"hangs": func(ctx context.Context, _ []byte) error {
			<-ctx.Done()
			return &dataplane.RestoreError{Class: dataplane.Unknown, Err: ctx.Err()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDiary()
				dp := &noIPv6{Sim: dataplane.NewSim(dataplane.NFT), fail: fail}
				rt := newRuntime(t, dp, actors.Options{OnAnswer: d.answer, Observe: d.observe, Pace: actors.NFTPace, Refresh: -1})
				for i := range 20 {
					for _, id := range []rules.TableID{filter6, filter4} {
						text := fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", 1+i)
						if err := rt.Tell(id, transaction.Message{ID: fmt.Sprint(id, i), Body: body("tw-a", text)}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(50 * time.Millisecond)
				}
				results, _ := d.results(t)
				for i := range 20 {
					if a := results[fmt.Sprint(filter4, i)]; a.Result != actors.Applied {
						t.Errorf("IPv4, message %d: %+v", i, a)
					}
					a, answered := results[fmt.Sprint(filter6, i)]
					if hangs := name == "hangs"; answered == hangs || !hangs && a.Result != actors.Unavailable {
						t.Errorf("IPv6, message %d: %+v", i, a)
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if err := rt.Stop(ctx); (err != nil) != (name == "hangs") {
					t.Errorf("stop: %v", err)
				}
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// noIPv6 is a simulator whose IPv6 restores fail.
type noIPv6 struct {
	*dataplane.Sim
	fail func(context.Context, []byte) error
}

func (n *noIPv6) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	if id.IPVersion == rules.IPv6 {
		return n.fail(ctx, input)
	}
	return n.Sim.Restore(ctx, id, input)
}

// R101: who may not write is answered at once, all messages by one operation: no halves, no
// second try.
func TestR101NoPermissionNoStorm(t *testing.T) {
	for _, op := range []dataplane.Op{dataplane.OpRead, dataplane.OpRestore} {
		b := newBench(t, dataplane.NFT, transaction.Config{})
		failed := 0
		b.sim.Hook = func(c dataplane.Call) error {
			if c.Op != op {
				return nil
			}
			failed++
			return dataplane.Classify(4, "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n", c.Input)
		}
		for i := range 100 {
			b.write(fmt.Sprint(i), fmt.Sprintf("tw-%d", i), "-j ACCEPT")
		}
		b.m.Settle()
		b.m.Advance(10 * time.Minute)
		if failed != 1 || len(b.answers) != 100 {
			t.Errorf("%s: %d tries, %d answers", op, failed, len(b.answers))
		}
		for id, result := range b.answers {
			if result != "unavailable" || !strings.Contains(b.errs[id].Error(), "CAP_NET_ADMIN") {
				t.Errorf("%s: message %s: %s: %v", op, id, result, b.errs[id])
			}
		}
	}
}

// R04: a legacy commit that another program's writing made fail, which says no more than the
// number of its line, is tried once more before anybody is blamed or the batch is cut.
func TestR04RaceOfACommitBlamesNobody(t *testing.T) {
	hook := transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop)
	for name, bodies := range map[string][]transaction.Body{
		"one chain": {body("tw-a", "-j ACCEPT")}, "one rule": {hook}, "several": {body("tw-a", "-j ACCEPT"), hook, body("tw-b")},
	} {
		b := newBench(t, dataplane.Legacy, transaction.Config{})
		times := 1
		b.sim.Hook = func(c dataplane.Call) error {
			if c.Op != dataplane.OpRestore || times == 0 {
				return nil
			}
			times--
			return dataplane.Classify(1, fmt.Sprintf("iptables-restore: line %d failed\n", strings.Count(string(c.Input), "\n")), c.Input)
		}
		for i, m := range bodies {
			b.send(fmt.Sprint(i), m)
		}
		b.m.Settle()
		for id, result := range b.answers {
			if result != "applied" {
				t.Errorf("%s: message %s: %s: %v", name, id, result, b.errs[id])
			}
		}
		if n := count(b.log, "restore"); n != 2 || len(b.answers) != len(bodies) {
			t.Errorf("%s: %d blocks, %d answers:\n%s", name, n, len(b.answers), strings.Join(b.log, "\n"))
		}
	}
}
