// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
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
		chains []string // nil: all
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

// unseen tells whether the writer may have changed a chain without the lock since we have
// looked at it last, in a way that the kernel does not show: then a change by index meets
// other rules than it was made for.
func (f *fight) unseen(c fightCommit, chain string) bool {
	var since time.Time
	for _, l := range f.looks {
		if l.begin.Before(c.begin) && (l.chains == nil || slices.Contains(l.chains, chain)) {
			since = l.begin
		}
	}
	for _, a := range f.acts {
		if a.noLock && a.end.After(since) && a.begin.Before(c.end) && (slices.Contains(a.changed, chain) || a.unattributed > 0) {
			return true
		}
	}
	return false
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
		t.Errorf("seed %d, %v: %s", *hostileSeed, f.since(r.at), r.what)
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
	checked, overtaken, torn, unseen, failed := 0, 0, 0, 0, 0
	for _, c := range f.commits {
		switch {
		case c.err != nil:
			failed++
			t.Logf("%v: a block of ours failed after %v: %v; the line is %q", f.since(c.begin), c.end.Sub(c.begin), c.err, lineOf(c.input, c.err))
		case c.overtaken:
			overtaken++
			if len(c.broken) > 0 {
				torn++
				for name, text := range c.broken {
					t.Logf("overtaken: %s is %q after %v of\n%s", name, text, c.end.Sub(c.begin), excerpt(c.input, name))
				}
			}
		case c.checked:
			checked++
			for _, name := range slices.Sorted(maps.Keys(c.broken)) {
				if f.backend == dataplane.Legacy && f.unseen(c, name) {
					unseen++
					continue
				}
				t.Errorf("seed %d: a block of ours left %s as %q:\n%s", *hostileSeed, name, c.broken[name], excerpt(c.input, name))
			}
		}
	}
	t.Logf("blocks read back: %d with nobody writing meanwhile (%d chains that somebody had changed unseen); %d others, %d of them not whole; %d failed",
		checked, unseen, overtaken, torn, failed)
	if checked < form.commits {
		t.Errorf("only %d blocks were read back", checked)
	}
}

// lineOf is the line of a block that an error is about.
func lineOf(input string, err error) string {
	var re *dataplane.RestoreError
	lines := strings.Split(input, "\n")
	if !errors.As(err, &re) || re.Line < 1 || re.Line > len(lines) {
		return ""
	}
	return lines[re.Line-1]
}

// excerpt is what a block has about a chain.
func excerpt(input, name string) string {
	var out []string
	for line := range strings.Lines(input) {
		if strings.HasPrefix(line, ":"+name+" ") || strings.Contains(line, " "+name+" ") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return fmt.Sprintf("%q (of %d bytes)", out, len(input))
}

// history is what happened to a chain within a span, for who has to find out why.
func (f *fight) history(chain string, from, to time.Time) string {
	var lines []historyLine
	for i, a := range f.acts {
		if slices.Contains(a.changed, chain) {
			lines = append(lines, historyLine{a.begin, fmt.Sprintf("act %d, %s, without the lock %t, %v, error %v", i, a.kind, a.noLock, a.end.Sub(a.begin), a.err)})
		}
	}
	for _, c := range f.commits {
		if slices.Contains(c.chains, chain) || c.err != nil {
			lines = append(lines, historyLine{c.begin, fmt.Sprintf("block of ours, %v, error %v: %s", c.end.Sub(c.begin), c.err, excerpt(c.input, chain))})
		}
	}
	for _, l := range f.looks {
		if l.chains == nil || slices.Contains(l.chains, chain) {
			lines = append(lines, historyLine{l.begin, fmt.Sprintf("look at %d chains (0: all)", len(l.chains))})
		}
	}
	for _, d := range f.told {
		if d.chain == chain {
			lines = append(lines, historyLine{d.at, "told"})
		}
	}
	for _, s := range f.sights {
		lines = append(lines, historyLine{s.end, fmt.Sprintf("seen to be wrong: %t", slices.Contains(s.wrong, chain))})
	}
	slices.SortStableFunc(lines, func(a, b historyLine) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range lines {
		if l.at.After(from.Add(-time.Second/4)) && l.at.Before(to.Add(time.Second/4)) {
			fmt.Fprintf(&out, "  %8v %s\n", f.since(l.at), l.text)
		}
	}
	return out.String()
}

type historyLine struct {
	at   time.Time
	text string
}

// since is a moment as the reports have it: since the first act.
func (f *fight) since(at time.Time) time.Duration {
	return at.Sub(f.acts[0].before).Round(100 * time.Microsecond)
}
