// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// manner is how a kernel says what is wrong with a block.
type manner int

const (
	byParser manner = iota // the first line at fault, exit 2
	byLines                // each line at fault, exit 4
	byCommit               // no line
	byFirst                // the first line at fault and all behind it, as a validation does
)

// touchy is a simulator that minds words in comments: "bad" wherever it stands, and "east"
// and "west" when a table has both. It can be tried in.
type touchy struct {
	*dataplane.Sim
	manner    manner
	live      int           // blocks that the live table saw
	trials    []int         // rules of each trial
	most      int           // rules that a trial gets to before its budget is over; 0: all
	took      time.Duration // that a trial says it took
	noScratch bool
	onTry     func()
}

func (d *touchy) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	d.live++
	lines := strings.Split(string(input), "\n")
	var bad []int // lines, from 1
	for i, line := range lines {
		if strings.HasPrefix(line, "-A") && strings.Contains(line, "bad") {
			bad = append(bad, i+1)
		}
	}
	all := string(input) + d.Save(id)
	commit := fmt.Sprintf("iptables-restore: line %d failed\n", len(lines)-1)
	switch {
	case strings.Contains(all, "east") && strings.Contains(all, "west"):
		return dataplane.Classify(1, commit, input)
	case len(bad) == 0:
		return d.Sim.Restore(ctx, id, input)
	case d.manner == byCommit:
		return dataplane.Classify(1, commit, input)
	case d.manner == byParser:
		said := fmt.Sprintf("iptables-restore v1.8.9 (nf_tables): bad word\nError occurred at line: %d\n", bad[0])
		return dataplane.Classify(2, said, input)
	case d.manner == byFirst:
		for i := bad[0] + 1; i < len(lines)-1; i++ {
			bad = append(bad[:i-bad[0]], i)
		}
	}
	said := "iptables-restore v1.8.9 (nf_tables): \n"
	for _, n := range bad {
		said += fmt.Sprintf("line %d: RULE_APPEND failed (Invalid argument): rule in chain %s\n", n, strings.Fields(lines[n-1])[1])
	}
	return dataplane.Classify(4, said, input)
}

func (d *touchy) Try(_ context.Context, _ rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	if d.onTry != nil {
		d.onTry()
	}
	if d.noScratch {
		return dataplane.Trial{}, dataplane.ErrNoScratch
	}
	tried, text := 0, ""
	trial := dataplane.Trial{Took: d.took}
	for _, c := range append(append([]rules.Chain{}, b.Chains...), b.Kernel...) {
		for i, r := range c.Rules {
			v := dataplane.Verdict{Chain: c.Name, Index: i}
			switch {
			case d.most > 0 && b.Budget > 0 && tried >= d.most:
				v.Untried = true
				trial.Verdicts = append(trial.Verdicts, v)
				continue
			case strings.Contains(r.String(), "bad"):
				trial.Probes++
				v.Err = &dataplane.RestoreError{Class: dataplane.Rejected, Reason: "bad word", Text: r.String()}
				trial.Verdicts = append(trial.Verdicts, v)
			}
			tried++
			text += r.String()
		}
	}
	trial.Probes++
	if b.Whole {
		trial.Verdicts = nil
	} else {
		d.trials = append(d.trials, tried)
	}
	if b.Whole && (strings.Contains(text, "bad") || strings.Contains(text, "east") && strings.Contains(text, "west")) {
		return trial, &dataplane.RestoreError{Class: dataplane.RejectedSomewhere, Reason: "together", Err: dataplane.ErrTogether}
	}
	return trial, nil
}

// searchBench is a Machine on a touchy kernel.
type searchBench struct {
	*bench
	k       *touchy
	records []actors.BatchRecord
}

func newSearchBench(t testing.TB, m manner) *searchBench {
	b := &searchBench{bench: newBench(t, dataplane.NFT, transaction.Config{})}
	b.k = &touchy{Sim: b.sim, manner: m}
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: b.k,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{Prefixes: []string{"tw-"}, Kinds: true}
		},
		Observe: b.observe,
		OnBatch: func(r actors.BatchRecord) { b.records = append(b.records, r) },
	})
	b.write("warm", "tw-warm", note("warm"))
	b.m.Settle()
	b.k.live, b.k.trials, b.log, b.records = 0, nil, nil, nil
	delete(b.answers, "warm")
	return b
}

// note is a rule of one kind, whatever its comment.
func note(word string) string { return fmt.Sprintf("-m comment --comment %q -j ACCEPT", word) }

// fill sends messages 0 to n-1, the bad ones among them.
func (b *searchBench) fill(n int, bad ...int) map[string]string {
	want := map[string]string{}
	for i := range n {
		word, id := fmt.Sprint("good", i), fmt.Sprint(i)
		want[id] = "applied"
		for _, at := range bad {
			if at == i {
				word, want[id] = fmt.Sprint("bad", i), "rejected"
			}
		}
		b.write(id, fmt.Sprintf("tw-%03d", i), note("first"), note(word))
	}
	return want
}

func (b *searchBench) same(want map[string]string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.answers); diff != "" {
		b.t.Errorf("answers (-want +got):\n%s\n%s", diff, strings.Join(b.log, "\n"))
	}
	for id, result := range want {
		if result != "rejected" {
			continue
		}
		var e *transaction.Error
		if !errors.As(b.errs[id], &e) || !strings.Contains(e.Rule, "bad"+id) || e.Chain == "" {
			b.t.Errorf("message %s: the error does not name its rule: %v", id, b.errs[id])
		}
	}
}

// Whatever the tool says and however many are bad, the live table sees three blocks at most,
// and all that is good lands in the last of them.
func TestSearchFindsWhoIsAtFault(t *testing.T) {
	for _, c := range []struct {
		name   string
		manner manner
		bad    []int
		live   int
		trials int
	}{
		{"one line of the parser", byParser, []int{5}, 2, 0},
		{"a second line of the parser: the rest is searched", byParser, []int{5, 7, 9}, 3, 1},
		{"lines that stand apart are all true", byLines, []int{5, 9, 13}, 2, 0},
		{"neighbours: only the first is suspected, and all is searched", byFirst, []int{5}, 2, 1},
		{"no line", byCommit, []int{5}, 2, 1},
		{"no line, many", byCommit, []int{1, 5, 6, 12, 19}, 2, 1},
		{"all", byCommit, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSearchBench(t, c.manner)
			want := b.fill(20, c.bad...)
			b.m.Settle()
			b.same(want)
			if b.k.live != c.live || len(b.k.trials) != c.trials {
				t.Errorf("%d blocks on the live table and %d trials, want %d and %d\n%s",
					b.k.live, len(b.k.trials), c.live, c.trials, strings.Join(b.log, "\n"))
			}
		})
	}
}

// Where nothing can be tried the live table is searched, and the answers are the same.
func TestSearchWithoutScratch(t *testing.T) {
	for _, m := range []manner{byParser, byLines, byCommit} {
		b := newSearchBench(t, m)
		b.k.noScratch = true
		want := b.fill(20, 5, 9)
		b.m.Settle()
		if diff := cmp.Diff(want, b.answers); diff != "" {
			t.Errorf("manner %d: answers (-want +got):\n%s", m, diff)
		}
	}
}

// A kind of rule that the kernel does not take is found before the live table is touched.
func TestKindsAreTriedFirst(t *testing.T) {
	b := newSearchBench(t, byCommit)
	b.write("1", "tw-a", `-p tcp -m comment --comment bad1 -j ACCEPT`)
	b.write("2", "tw-b", `-p tcp -m comment --comment good -j ACCEPT`)
	b.write("3", "tw-c", note("good"))
	b.m.Settle()
	b.same(map[string]string{"1": "rejected", "2": "applied", "3": "applied"})
	if b.k.live != 1 {
		t.Errorf("the live table saw %d blocks, want 1", b.k.live)
	}
	before := len(b.k.trials)
	b.write("4", "tw-d", `-p tcp -m comment --comment other -j ACCEPT`)
	b.m.Settle()
	if len(b.k.trials) != before {
		t.Error("a kind that was proven is tried again")
	}
}

// A search that takes long lets what is known to be good land first; the rest goes on some
// at a time, in turn with the mail, and what came later stays on top.
func TestSearchInPieces(t *testing.T) {
	b := newSearchBench(t, byCommit)
	b.k.most, b.k.took = 11, time.Second
	want := b.fill(20, 3, 15)
	sent := false
	b.k.onTry = func() {
		if len(b.k.trials) == 1 && !sent { // the first hunt: somebody writes what a suspect wrote
			sent = true
			b.write("new", "tw-018", note("newer"))
			b.write("other", "tw-other", note("other"))
		}
	}
	b.m.Settle()
	want["new"], want["other"] = "applied", "applied"
	want["18"] = b.answers["18"] // applied before it, or superseded: both are true
	b.same(want)
	if save := b.sim.Save(filter4); !strings.Contains(save, `-A tw-018 -m comment --comment newer -j ACCEPT`) || strings.Contains(save, "good18") {
		t.Errorf("an old message lies on top of a newer one:\n%s", save)
	}
	first := strings.Join(b.log, "\n")
	if strings.Index(first, "0s 2 applied") > strings.Index(first, "15 rejected") {
		t.Errorf("what is known to be good does not land first:\n%s", first)
	}
}

// Messages that the kernel refuses only together are both told, and neither is applied.
func TestKernelConflict(t *testing.T) {
	b := newSearchBench(t, byCommit)
	b.fill(6)
	b.write("e", "tw-e", note("east"))
	b.write("f", "tw-f", note("good"))
	b.write("w", "tw-w", note("west"))
	b.m.Settle()
	if b.answers["e"] != "conflict" || b.answers["w"] != "conflict" || b.answers["f"] != "applied" || b.answers["5"] != "applied" {
		t.Errorf("%v\n%s", b.answers, strings.Join(b.log, "\n"))
	}
	var e *transaction.Error
	if !errors.As(b.errs["e"], &e) || cmp.Diff([]string{"w"}, e.With) != "" {
		t.Errorf("the conflict does not name its other message: %v", b.errs["e"])
	}
	if save := b.sim.Save(filter4); strings.Contains(save, "east") || strings.Contains(save, "west") {
		t.Errorf("a message of the conflict is in the kernel:\n%s", save)
	}
}

// What is too large is remembered: the next batch is cut before it is sent.
func TestR107TooLargeIsRemembered(t *testing.T) {
	b := newBench(t, dataplane.NFT, transaction.Config{})
	refused := 0
	b.sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && len(c.Input) > 1000 {
			refused++
			return &dataplane.RestoreError{Class: dataplane.TooLarge, Reason: "Message too long"}
		}
		return nil
	}
	for round := range 3 {
		for i := range 40 {
			b.write(fmt.Sprint(round, "-", i), fmt.Sprintf("tw-%d", i), fmt.Sprintf("-s 10.%d.0.%d -j ACCEPT", round, i))
		}
		b.m.Settle()
		if round == 0 {
			refused = 0
		}
	}
	if refused != 0 {
		t.Errorf("%d blocks were refused after the first batch had shown how large one may be", refused)
	}
	for id, got := range b.answers {
		if got != "applied" {
			t.Errorf("message %s: %s: %v", id, got, b.errs[id])
		}
	}
}

// The record of a batch says what was done about it, step by step.
func TestBatchRecord(t *testing.T) {
	b := newSearchBench(t, byCommit)
	b.fill(4, 2)
	b.m.Settle()
	if len(b.records) != 1 {
		t.Fatalf("%d records", len(b.records))
	}
	r := b.records[0]
	var steps []string
	for _, s := range r.Steps {
		steps = append(steps, fmt.Sprintf("%s %d after %d: %v", s.Kind, s.Messages, s.After, short(s.Err)))
	}
	want := []string{"restore 4 after 0: : rejected-somewhere", "read 4 after 1: ", "trial 4 after 1: ", "restore 4 after 1: "}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(r.Messages) != 4 || len(r.Outcomes) != 4 || r.Probes != 2 || r.Cuts != 0 {
		t.Errorf("%+v", r)
	}
}
