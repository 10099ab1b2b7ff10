// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// bench is a Machine on a simulator with everything that happened written down.
type bench struct {
	t       testing.TB
	sim     *dataplane.Sim
	m       *actors.Machine
	log     []string          // what happened, in order
	answers map[string]string // id: result
	errs    map[string]error
}

func newBench(t testing.TB, backend dataplane.Backend, cfg transaction.Config) *bench {
	b := &bench{t: t, sim: dataplane.NewSim(backend), answers: map[string]string{}, errs: map[string]error{}}
	if cfg.Prefixes == nil {
		cfg.Prefixes = []string{"tw-"}
	}
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: b.sim,
		Table:     func(rules.TableID) transaction.Config { return cfg },
		Observe:   b.observe,
	})
	return b
}

func (b *bench) observe(e actors.Event) {
	switch e.Kind {
	case actors.EventRead:
		b.log = append(b.log, "read"+short(e.Err))
	case actors.EventRestore:
		word := "restore "
		if e.Delete {
			word = "delete "
		}
		b.log = append(b.log, word+chainsOf(e.Input)+short(e.Err))
	case actors.EventWait:
		b.log = append(b.log, "rest")
	case actors.EventLate:
		b.log = append(b.log, fmt.Sprintf("%s %s late %v", e.At, e.Answer.ID, e.Answer.Result))
	case actors.EventAnswer:
		if b.answers[e.Answer.ID] != "" {
			b.t.Errorf("message %s is answered twice", e.Answer.ID)
		}
		b.answers[e.Answer.ID] = e.Answer.Result.String()
		b.errs[e.Answer.ID] = e.Answer.Err
		b.log = append(b.log, fmt.Sprintf("%s %s %v", e.At, e.Answer.ID, e.Answer.Result))
	}
}

func short(err error) string {
	var re *dataplane.RestoreError
	if errors.As(err, &re) {
		return ": " + re.Class.String()
	}
	return ""
}

// chainsOf returns the chains that a block declares or edits.
func chainsOf(input []byte) string {
	var out []string
	for _, line := range strings.Split(string(input), "\n") {
		f := strings.Fields(line)
		if len(f) > 0 && strings.HasPrefix(f[0], ":") {
			out = append(out, f[0][1:])
		} else if len(f) > 1 && (f[0] == "-I" || f[0] == "-D") {
			out = append(out, f[0]+f[1])
		}
	}
	return strings.Join(out, ",")
}

func (b *bench) send(id string, body transaction.Body) {
	b.t.Helper()
	if err := b.m.Send(filter4, transaction.Message{ID: id, Body: body}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) write(id, name string, texts ...string) {
	b.t.Helper()
	b.send(id, transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, texts...)}})
}

// failing has the next restores answered with err.
func (b *bench) failing(times int, err *dataplane.RestoreError) {
	b.sim.Hook = func(c dataplane.Call) error {
		if c.Op != dataplane.OpRestore || times == 0 {
			return nil
		}
		times--
		return err
	}
}

func (b *bench) want(lines ...string) {
	b.t.Helper()
	if diff := cmp.Diff(lines, b.log); diff != "" {
		b.t.Errorf("what happened (-want +got):\n%s", diff)
	}
	for _, id := range b.m.Tables() {
		if err := b.m.State(id).Check(); err != nil {
			b.t.Error(err)
		}
	}
}

// D3, D13: trouble of the environment is nobody's fault. The batch stays whole, is tried
// again after 100 ms, 200 ms, ... at most 5 s, and what comes meanwhile joins it.
func TestPassingTroubleIsRetried(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	b.failing(9, &dataplane.RestoreError{Class: dataplane.Busy, ExitCode: 4})
	b.write("1", "tw-a", "-j ACCEPT")
	b.write("2", "tw-b", "-j ACCEPT")
	b.m.Settle()
	b.write("3", "tw-a", "-j DROP") // comes during the rest, and supersedes
	b.m.Settle()
	b.m.Advance(time.Minute)
	b.want(
		"read", "restore tw-a,tw-b: busy", "rest",
		"restore tw-a,tw-b: busy", "rest", "restore tw-a,tw-b: busy", "rest", "restore tw-a,tw-b: busy", "rest",
		"restore tw-a,tw-b: busy", "rest", "restore tw-a,tw-b: busy", "rest", "restore tw-a,tw-b: busy", "rest",
		"restore tw-a,tw-b: busy", "rest", "restore tw-a,tw-b: busy", "rest",
		"restore tw-a,tw-b", "21.3s 1 superseded", "21.3s 2 applied", "21.3s 3 applied",
	)
}

// D16: of a run that was ended at its deadline nothing is known: the table is read first.
func TestUnknownOutcomeIsReadFirst(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.failing(1, &dataplane.RestoreError{Class: dataplane.Unknown})
	b.write("1", "tw-a", "-j ACCEPT")
	b.m.Settle()
	b.m.Advance(time.Second)
	b.want("read", "restore tw-a: unknown", "rest", "read", "restore tw-a", "100ms 1 applied")
}

// An absent environment answers at once, keeps the wish, and tries it at each refresh.
func TestAbsentEnvironment(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.failing(2, &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no such table"})
	b.write("1", "tw-a", "-j ACCEPT")
	b.m.Settle()
	b.send("r1", transaction.Refresh{})
	b.m.Settle()
	b.send("r2", transaction.Refresh{})
	b.m.Settle()
	b.want(
		"read", "restore tw-a: unavailable", "0s 1 unavailable",
		"read", "restore tw-a: unavailable", "0s r1 unavailable",
		"read", "restore tw-a", "0s 1 late applied", "0s r2 applied",
	)
	if b.errs["1"] == nil || !strings.Contains(b.errs["1"].Error(), "no such table") {
		t.Errorf("the answer does not say what is missing: %v", b.errs["1"])
	}
}

// D1: the line of the error leads to its message; the rest lands as one block.
func TestLineLeadsToTheCulprit(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	for i := range 8 {
		text := "-j ACCEPT"
		if i == 5 {
			text = "-p tcp --bogus -j ACCEPT"
		}
		b.write(fmt.Sprint(i), fmt.Sprintf("tw-%d", i), text)
	}
	b.m.Settle()
	b.want(
		"read", "restore tw-0,tw-1,tw-2,tw-3,tw-4,tw-5,tw-6,tw-7: rejected", "0s 5 rejected",
		"restore tw-0,tw-1,tw-2,tw-3,tw-4,tw-6,tw-7",
		"0s 0 applied", "0s 1 applied", "0s 2 applied", "0s 3 applied", "0s 4 applied", "0s 6 applied", "0s 7 applied",
	)
	var e *transaction.Error
	if !errors.As(b.errs["5"], &e) || e.Chain != "tw-5" || e.Rule != "-p tcp --bogus -j ACCEPT" || e.Column != 8 {
		t.Errorf("error %+v", e)
	}
}

// A refusal without a line is searched by halves, and whoever is innocent lands.
func TestHalvesFindTheCulprit(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	for i := range 8 {
		text := "-j ACCEPT"
		if i == 5 {
			text = "-j MASQUERADE" // legacy names the COMMIT line only
		}
		b.write(fmt.Sprint(i), fmt.Sprintf("tw-%d", i), text)
	}
	b.m.Settle()
	for i := range 8 {
		want := "applied"
		if i == 5 {
			want = "rejected"
		}
		if got := b.answers[fmt.Sprint(i)]; got != want {
			t.Errorf("message %d: %s, want %s\n%s", i, got, want, strings.Join(b.log, "\n"))
		}
	}
	if n := count(b.log, "restore"); n > 8 { // one of them asks for a refusal without a word again
		t.Errorf("%d restores for one culprit of 8:\n%s", n, strings.Join(b.log, "\n"))
	}
}

func count(log []string, prefix string) (n int) {
	for _, line := range log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// D5: messages that only together succeed are not blamed for a third one: while a batch is
// taken apart, what misses something of another part is judged last.
func TestOnlyTogetherSucceed(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	b.write("1", "tw-a", "-j web") // "web" has no prefix: no stub can stand in
	b.write("bad", "tw-bad", "-j MASQUERADE")
	b.write("3", "tw-c", "-j ACCEPT")
	b.write("2", "web", "-j ACCEPT")
	b.m.Settle()
	want := map[string]string{"1": "applied", "2": "applied", "3": "applied", "bad": "rejected"}
	if diff := cmp.Diff(want, b.answers); diff != "" {
		t.Errorf("%s\n%s", diff, strings.Join(b.log, "\n"))
	}
}

// A message that a refused one had superseded counts again.
func TestSupersededByARefusedMessageCountsAgain(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	b.write("1", "tw-a", "-s 10.0.0.1/32 -j ACCEPT")
	b.write("x", "tw-x", "-j ACCEPT")
	b.write("2", "tw-a", "-j MASQUERADE")
	b.m.Settle()
	want := map[string]string{"1": "applied", "x": "applied", "2": "rejected"}
	if diff := cmp.Diff(want, b.answers); diff != "" {
		t.Errorf("%s\n%s", diff, strings.Join(b.log, "\n"))
	}
	if !strings.Contains(b.sim.Save(filter4), "-A tw-a -s 10.0.0.1/32 -j ACCEPT") {
		t.Error(b.sim.Save(filter4))
	}
}

// Nobody is blamed for what a stranger deleted behind our back.
func TestVanishedTargetBlamesNobody(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.write("1", "tw-b", "-j ACCEPT")
	b.m.Settle()
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n-F tw-b\n-X tw-b\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.write("2", "tw-a", "-j tw-b")
	b.m.Settle()
	b.want(
		"read", "restore tw-b", "0s 1 applied",
		"restore tw-a: rejected-somewhere", "read", "restore tw-a,tw-b", "0s 2 applied",
	)
}

// What is too large is cut, and nobody is blamed.
func TestTooLargeIsCut(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && strings.Count(string(c.Input), ":tw-") > 2 {
			return &dataplane.RestoreError{Class: dataplane.TooLarge, Reason: "Message too long"}
		}
		return nil
	}
	for i := range 5 {
		b.write(fmt.Sprint(i), fmt.Sprintf("tw-%d", i), "-j ACCEPT")
	}
	b.m.Settle()
	for id, got := range b.answers {
		if got != "applied" {
			t.Errorf("message %s: %s", id, got)
		}
	}
	if len(b.answers) != 5 {
		t.Errorf("%d answers", len(b.answers))
	}
}

// D37: a chain whose delete the kernel refused stays condemned and is tried again.
func TestCondemnedIsTriedAgain(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.write("1", "tw-a", "-j ACCEPT")
	b.m.Settle()
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n-A INPUT -j tw-a\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.send("2", transaction.DeleteChains{Chains: []string{"tw-a"}})
	b.m.Settle()
	if diff := cmp.Diff([]string{"tw-a"}, b.m.State(filter4).Condemned()); diff != "" {
		t.Error(diff)
	}
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n-D INPUT -j tw-a\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.send("3", transaction.Refresh{})
	b.m.Settle()
	b.want(
		"read", "restore tw-a", "0s 1 applied",
		"restore tw-a", "0s 2 applied", "delete tw-a: rejected",
		"read", "0s 3 applied", "delete tw-a",
	)
}

// A rule for a kernel chain that does not exist waits, and is in when the chain is.
func TestWaitsForItsKernelChain(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.send("1", transaction.InsertRule("DOCKER-USER", rule("-j ACCEPT"), transaction.InsertTop))
	b.m.Settle()
	b.want("read")
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j RETURN\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.send("2", transaction.Refresh{})
	b.m.Settle()
	b.want("read", "read", "restore -IDOCKER-USER", "0s 1 applied", "0s 2 applied")
}

// Whatever of a random batch is bad, and whatever trouble there is on the way: each message
// has one answer, and the kernel is what the messages that are in make of it by themselves.
func TestPropertyOneAnswerEachAndTheKernelAgrees(t *testing.T) {
	texts := []string{
		"-j ACCEPT", "-s 10.0.0.1/32 -j DROP", "-j tw-a", "-j tw-b", "-j tw-c", "-j web", "-j MASQUERADE",
		"-p tcp --bogus -j ACCEPT", "-m set --match-set nosuch src -j ACCEPT",
	}
	names := []string{"tw-a", "tw-b", "tw-c", "tw-d", "web"}
	trouble := []dataplane.Class{dataplane.Busy, dataplane.Unknown, dataplane.TooLarge, dataplane.RejectedSomewhere}
	rapid.Check(t, func(rt *rapid.T) {
		backend := rapid.SampledFrom([]dataplane.Backend{dataplane.NFT, dataplane.Legacy}).Draw(rt, "backend")
		b := newBench(t, backend, transaction.Config{MaxDepth: 15})
		faults := rapid.SliceOfN(rapid.IntRange(0, 12), 0, 30).Draw(rt, "faults")
		b.sim.Hook = func(c dataplane.Call) error {
			if c.Op != dataplane.OpRestore || len(faults) == 0 {
				return nil
			}
			n := faults[0]
			faults = faults[1:]
			if n < 3 { // the last, an unfounded refusal, is left to the goldens: it may blame an innocent
				return &dataplane.RestoreError{Class: trouble[n], Reason: "made up"}
			}
			return nil
		}
		var sent []transaction.Message
		for batch := range rapid.IntRange(1, 3).Draw(rt, "batches") {
			for range rapid.IntRange(1, 8).Draw(rt, "messages") {
				m := randomMessage(rt, len(sent), names, texts)
				sent = append(sent, m)
				if err := b.m.Send(filter4, m); err != nil {
					t.Fatal(err)
				}
			}
			b.m.Settle()
			b.m.Advance(time.Duration(batch+1) * time.Hour)
		}
		for _, m := range sent {
			if b.answers[m.ID] == "" {
				rt.Fatalf("message %s has no answer:\n%s", m.ID, strings.Join(b.log, "\n"))
			}
		}
		faults = nil
		b.send("refresh", transaction.Refresh{}) // a delete that met trouble is tried again
		b.m.Settle()
		clean := newBench(t, backend, transaction.Config{MaxDepth: 15})
		for _, m := range sent {
			if slices.Contains([]string{"applied", "superseded"}, b.answers[m.ID]) {
				if err := clean.m.Send(filter4, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		clean.m.Settle()
		if diff := cmp.Diff(clean.sim.Save(filter4), b.sim.Save(filter4)); diff != "" {
			rt.Fatalf("the good messages alone (-) and the run (+) differ:\n%s\n%s", diff, strings.Join(b.log, "\n"))
		}
	})
}

func randomMessage(rt *rapid.T, i int, names, texts []string) transaction.Message {
	m := transaction.Message{ID: fmt.Sprint(i), Owner: rapid.SampledFrom([]string{"", "", "o"}).Draw(rt, "owner")}
	name := rapid.SampledFrom(names).Draw(rt, "chain")
	// One rule for each owner: within one list the order is that of landing, and a batch that
	// was taken apart lands in another order than it came.
	listed := rule(map[string]string{"": "-j tw-a", "o": "-j web"}[m.Owner])
	if rapid.IntRange(0, 3).Draw(rt, "bad") == 0 {
		listed = rule("-p tcp --bogus -j ACCEPT")
	}
	switch rapid.IntRange(0, 5).Draw(rt, "kind") {
	case 0:
		m.Body = transaction.DeleteChains{Chains: []string{name}}
	case 1:
		m.Body = transaction.InsertRule("INPUT", listed, transaction.InsertTop)
	case 2:
		m.Body = transaction.RemoveRule("INPUT", listed, false)
	default:
		m.Body = transaction.RewriteChains{Chains: []rules.Chain{chainOf(name, rapid.SliceOfN(rapid.SampledFrom(texts), 0, 2).Draw(rt, "rules")...)}}
	}
	return m
}

// mute is a dataplane that cannot be asked what the tool reads back, and whose tool spells
// addresses in its own way.
type mute struct {
	*dataplane.Sim
}

func (mute) Canon(context.Context, rules.TableID, []rules.Rule) ([]rules.Canon, error) {
	return nil, dataplane.ErrNoScratch
}

func (m mute) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	snap, err := m.Sim.Read(ctx, id, chains...)
	for name, c := range snap.Chains {
		for i, r := range c.Rules {
			text := strings.ReplaceAll(r.Text, "10.0.0.1 ", "10.0.0.1/32 ")
			c.Rules[i] = rules.SavedRule{Text: text, Rule: rules.MustParseRule(text)}
		}
		snap.Chains[name] = c
	}
	return snap, err
}

// Where no scratch namespace can be had, what the tool reads back is learned from a read
// after the write: a refresh then finds nothing to do, and a rule is there once.
func TestCanonIsLearnedFromTheReadAfterAWrite(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: mute{b.sim},
		Table:     func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
		Observe:   b.observe,
	})
	hook := transaction.InsertRule("INPUT", rule("-s 10.0.0.1 -j tw-a"), transaction.InsertTop)
	b.write("1", "tw-a", "-s 10.0.0.1 -j ACCEPT")
	b.send("2", hook)
	b.m.Settle()
	b.send("3", hook)
	b.send("4", transaction.Refresh{})
	b.m.Settle()
	b.want(
		"read", "restore tw-a,-IINPUT", "0s 1 applied", "0s 2 applied", "read",
		"read", "0s 3 applied", "0s 4 applied",
	)
}

// R38: a table that its tool cannot show is written all the same, as far as whole chains go;
// rules of kernel chains come when it can be shown again.
func TestIncompatibleTable(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	hidden := true
	b.sim.Hook = func(c dataplane.Call) error {
		if hidden && c.Op == dataplane.OpRead {
			return &dataplane.RestoreError{Class: dataplane.Unavailable, Err: dataplane.ErrIncompatible}
		}
		return nil
	}
	b.write("1", "tw-a", "-j ACCEPT")
	b.send("2", transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop))
	b.send("3", transaction.Refresh{})
	b.m.Settle()
	hidden = false
	b.send("4", transaction.Refresh{})
	b.m.Settle()
	b.want(
		"read: unavailable", "0s 2 unavailable", "0s 3 unavailable", "restore tw-a", "0s 1 applied",
		"read", "restore -IINPUT", "0s 2 late applied", "0s 4 applied",
	)
}

// A legacy tool that was killed at work may have cost the table its counters: an event says so.
func TestLostCountersAreTold(t *testing.T) {
	b := newBench(t, dataplane.Legacy, transaction.Config{})
	lost := 0
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: b.sim,
		Table:     func(rules.TableID) transaction.Config { return transaction.Config{Prefixes: []string{"tw-"}} },
		Observe: func(e actors.Event) {
			if e.Kind == actors.EventCountersLost {
				lost++
			}
		},
	})
	b.failing(1, &dataplane.RestoreError{Class: dataplane.Unknown, ExitCode: -1, CountersLost: true})
	b.write("1", "tw-a", "-j ACCEPT")
	b.m.Settle()
	b.m.Advance(time.Second)
	if lost != 1 {
		t.Errorf("%d events, want 1", lost)
	}
}

// What is refused of a repair without a word why is found chain by chain; all others come
// back.
func TestRepairWithoutAWord(t *testing.T) {
	for _, which := range []string{"5", "0", "7", "[07]", "[0347]", "[1-6]"} {
		guilty := regexp.MustCompile("-A tw-" + which + " ")
		t.Run(which, func(t *testing.T) { repairWithout(t, guilty) })
	}
}

func repairWithout(t *testing.T, guilty *regexp.Regexp) {
	b := newBench(t, dataplane.Legacy, transaction.Config{Backend: "legacy"})
	for i := range 8 {
		b.write(fmt.Sprint(i), fmt.Sprintf("tw-%d", i), "-j ACCEPT")
	}
	b.m.Settle()
	if err := b.sim.Load(rules.IPv4, []byte("*filter\n-F\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	b.sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && guilty.Match(c.Input) {
			return &dataplane.RestoreError{Class: dataplane.RejectedSomewhere, ExitCode: 1, Line: 0, Reason: "line 20 failed"}
		}
		return nil
	}
	b.send("refresh", transaction.Refresh{})
	b.m.Settle()
	save := b.sim.Save(filter4)
	for i := range 8 {
		if got := strings.Contains(save, fmt.Sprintf("-A tw-%d -j ACCEPT", i)); got == guilty.MatchString(fmt.Sprintf("-A tw-%d ", i)) {
			t.Errorf("tw-%d is back: %v\n%s", i, got, strings.Join(b.log, "\n"))
		}
	}
	if b.answers["refresh"] != "applied" {
		t.Errorf("the refresh is %s", b.answers["refresh"])
	}
}
