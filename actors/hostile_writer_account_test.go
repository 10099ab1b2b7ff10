// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

type (
	toldDrift struct {
		at    time.Time
		chain string
	}
	refusal struct {
		at   time.Time
		what string
	}
	// sight is a look at the table by the save tool.
	sight struct {
		begin, end time.Time
		wrong      []string
	}
	// fightLook is a look by the runtime.
	fightLook struct {
		begin  time.Time
		chains []string // none: all
	}
	// fightCommit is a block of ours.
	fightCommit struct {
		begin, end time.Time
		chains     []string // that it touches
		input      string
		err        error
		checked    bool              // nobody else wrote meanwhile
		overtaken  bool              // somebody did, but not after it
		broken     map[string]string // of those: what was read back of chains that are not whole
	}
)

// witness is a Kernel whose writes are read back.
type witness struct {
	*dataplane.Kernel
	f *fight
}

func (w witness) Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	w.f.looked(chains)
	return w.Kernel.Scan(ctx, id, chains...)
}

func (w witness) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	w.f.looked(chains)
	return w.Kernel.Read(ctx, id, chains...)
}

func (w witness) Expect(ctx context.Context, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error) {
	defer w.f.worked(fmt.Sprintf("Expect of %d chains", len(chains)), time.Now())
	return w.Kernel.Expect(ctx, id, chains)
}

func (w witness) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	defer w.f.worked(fmt.Sprintf("Canon of %d rules", len(rs)), time.Now())
	return w.Kernel.Canon(ctx, id, rs)
}

func (w witness) Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error) {
	defer w.f.worked("Try", time.Now())
	return w.Kernel.Try(ctx, id, b)
}

// worked notes what takes the runtime long beside the table.
func (f *fight) worked(what string, begin time.Time) {
	took := time.Since(begin)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.works = append(f.works, historyLine{begin, fmt.Sprintf("%s, %v", what, took.Round(time.Millisecond))})
}

func (f *fight) looked(chains []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks = append(f.looks, fightLook{time.Now(), chains})
}

func (w witness) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	f := w.f
	if !f.armed.Load() {
		return w.Kernel.Restore(ctx, id, input)
	}
	may, acts := f.wishes.now(), f.acting.Load()
	c := fightCommit{chains: touched(string(input)), input: string(input), begin: time.Now()}
	c.err = w.Kernel.Restore(ctx, id, input)
	c.end = time.Now()
	since := f.acting.Load()
	if c.err == nil && since%2 == 0 {
		if err := c.readBack(f, may); err == nil && f.acting.Load() == since {
			c.checked, c.overtaken = since == acts, since != acts
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commits = append(f.commits, c)
	return c.err
}

// readBack finds the chains that are not whole: as the wishes have them that the block may
// have been made of.
func (c *fightCommit) readBack(f *fight, may map[string][]string) error {
	table, err := f.save()
	if err != nil {
		return err
	}
	view := table.view()
	for _, name := range wrong(view, may) {
		if slices.Contains(c.chains, name) {
			if c.broken == nil {
				c.broken = map[string]string{}
			}
			c.broken[name] = view[name]
		}
	}
	return nil
}

// touched returns the chains that a block changes.
func touched(input string) []string {
	names := map[string]bool{}
	for line := range strings.Lines(input) {
		words := strings.Fields(line)
		switch {
		case len(words) > 0 && strings.HasPrefix(words[0], ":"):
			names[words[0][1:]] = true
		case len(words) > 1 && strings.HasPrefix(words[0], "-"):
			names[words[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// attribute finds out which of the changes between the save before an act and the one after
// it are the act's: those of chains that no block of ours touched meanwhile.
func (f *fight) attribute(a *hostileAct) {
	a.effective, a.effectWrong, a.unattributed = nil, nil, 0
	for _, name := range a.changed {
		if f.touchedBetween(name, a.before, a.end) {
			a.unattributed++
			continue
		}
		a.effective = append(a.effective, name)
		if slices.Contains(a.wrong, name) {
			a.effectWrong = append(a.effectWrong, name)
		}
	}
}

func (f *fight) touchedBetween(name string, from, to time.Time) bool {
	for i := len(f.commits) - 1; i >= 0; i-- {
		c := f.commits[i]
		if c.end.Before(from) {
			return false
		}
		if c.begin.Before(to) && slices.Contains(c.chains, name) {
			return true
		}
	}
	return false
}

// How an act's effect on a chain was met.
const (
	metTold    = "told"
	metWritten = "written over before a look"
	metUndone  = "right again before a look"
)

// met returns what came first after an act, and when: the event, a block of ours that wrote the
// chain in any case, or a sight of the chain as it should be, since the writer has undone it.
func (f *fight) met(a hostileAct, chain string) (how string, at time.Time) {
	take := func(t time.Time, by string) {
		if how == "" || t.Before(at) {
			how, at = by, t
		}
	}
	for _, d := range f.told {
		if d.chain == chain && !d.at.Before(a.begin) {
			take(d.at, metTold)
			break
		}
	}
	for _, c := range f.commits {
		if c.err == nil && !c.end.Before(a.end) && slices.Contains(c.chains, chain) {
			take(c.end, metWritten)
			break
		}
	}
	for _, s := range f.sights {
		if s.begin.After(a.end) && !slices.Contains(s.wrong, chain) {
			take(s.begin, metUndone)
			break
		}
	}
	return how, at
}

// planned returns since when a block of ours may have been planned, as far as a chain is
// concerned: the last look at it.
func (f *fight) planned(c fightCommit, chain string) time.Time {
	var since time.Time
	for _, l := range f.looks {
		if l.begin.Before(c.begin) && (len(l.chains) == 0 || slices.Contains(l.chains, chain)) {
			since = l.begin
		}
	}
	return since
}

// between tells whether the writer has changed a chain between our look at it and the block
// that was made after it, where the block is no cure for that: in kernel chains single rules
// are changed, and on legacy a change by index meets other rules than it was made for when
// somebody writes without the lock and leaves the size of the table as it is, which the
// kernel does not show.
func (f *fight) between(c fightCommit, chain string) bool {
	kernel, since := !strings.HasPrefix(chain, "tw-"), f.planned(c, chain)
	return slices.ContainsFunc(f.acts, func(a hostileAct) bool {
		return (kernel || f.backend == dataplane.Legacy && a.noLock) && a.end.After(since) && a.begin.Before(c.end) &&
			slices.Contains(a.changed, chain)
	})
}

// judge holds the fight to what was promised.
func (f *fight) judge(form hostileForm) {
	t := f.t
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judgeActs(form)
	f.judgeCommits(form)
	for _, r := range f.refused {
		t.Logf("seed %d, %v: %s", *hostileSeed, f.since(r.at), r.what)
	}
	if judgeRefused && len(f.refused) > 0 {
		t.Errorf("%d messages were refused", len(f.refused))
	}
	st, err := f.rt.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(f.took) == 0 {
		t.Error("nothing was repaired")
		return
	}
	t.Logf("drift events %d, repairs %d, p50 %v, p99 %v; blocks of ours %d, reads %d, looks %d; messages %d, answers %d",
		len(f.told), len(f.took), quantile(f.took, 0.5), quantile(f.took, 0.99), st[0].Restores, st[0].Reads, st[0].Looks, f.asked.Load(), f.answered.Load())
}

func (f *fight) judgeActs(form hostileForm) {
	t := f.t
	t.Helper()
	effective, by, failed, hows := 0, map[string]int{}, map[string]int{}, map[string]int{}
	var waits []time.Duration
	for i := range f.acts {
		a := &f.acts[i]
		f.attribute(a)
		if a.err != nil {
			failed[a.kind]++
		}
		if len(a.effective) > 0 {
			effective++
			by[a.kind]++
		}
		for _, name := range a.effectWrong {
			how, at := f.met(*a, name)
			hows[how]++
			wait := at.Sub(a.end)
			if how == metTold {
				waits = append(waits, max(0, wait))
			}
			if how == "" || wait > hostileTold {
				t.Errorf("seed %d: act %d, %s (%s) changed %s, which was met by %q after %v\n%s",
					*hostileSeed, i, a.kind, a.what, name, how, wait, f.history(name, a.begin, a.end.Add(hostileTold)))
			}
		}
	}
	t.Logf("seed %d: %d acts, %d changed something: %v; failed: %v", *hostileSeed, len(f.acts), effective, by, failed)
	if len(waits) > 0 {
		t.Logf("changes of chains: %v; from the act to the event p50 %v, p99 %v, most %v", hows, quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1))
	}
	for _, kind := range hostileKinds {
		if by[kind] < form.of {
			t.Errorf("only %d acts of kind %q changed something", by[kind], kind)
		}
	}
	if effective < form.acts {
		t.Errorf("only %d acts changed something", effective)
	}
}

func (f *fight) judgeCommits(form hostileForm) {
	t := f.t
	t.Helper()
	checked, overtaken, torn, between, failed := 0, 0, 0, 0, 0
	for _, c := range f.commits {
		switch {
		case c.err != nil:
			failed++
			t.Logf("%v: a block of ours failed after %v: %v; the line is %q", f.since(c.begin), c.end.Sub(c.begin), c.err, lineOf(c.input, c.err))
		case c.overtaken:
			overtaken++
			if len(c.broken) > 0 {
				torn++
			}
		case c.checked:
			checked++
			for _, name := range slices.Sorted(maps.Keys(c.broken)) {
				if f.between(c, name) {
					between++
					continue
				}
				t.Errorf("seed %d, %v: a block of ours left %s as %q:\n%s\n%s", *hostileSeed, f.since(c.begin), name, c.broken[name], excerpt(c.input, name),
					f.history(name, f.planned(c, name), c.end))
			}
		}
	}
	t.Logf("blocks read back: %d with nobody writing meanwhile (%d chains that somebody had changed since we looked); %d others, %d of them not whole; %d failed",
		checked, between, overtaken, torn, failed)
	if checked < form.commits {
		t.Errorf("only %d blocks were read back", checked)
	}
}
