// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/dataplane"
)

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

// history is what happened to a chain within a span, and since our last block before it that
// touched the chain, for who has to find out why.
func (f *fight) history(chain string, from, to time.Time) string {
	for i := len(f.commits) - 1; i >= 0; i-- {
		if c := f.commits[i]; c.begin.Before(from) && slices.Contains(c.chains, chain) {
			from = c.begin
			break
		}
	}
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
		if len(l.chains) == 0 || slices.Contains(l.chains, chain) {
			lines = append(lines, historyLine{l.begin, fmt.Sprintf("look at %d chains (0: all)", len(l.chains))})
		}
	}
	for _, d := range f.told {
		if d.chain == chain {
			lines = append(lines, historyLine{d.at, "told"})
		}
	}
	lines = append(lines, f.works...)
	was := false
	for _, s := range f.sights {
		if now := slices.Contains(s.wrong, chain); now != was {
			was = now
			lines = append(lines, historyLine{s.end, fmt.Sprintf("seen to be wrong: %t", now)})
		}
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
