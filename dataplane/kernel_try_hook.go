// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"
)

// hookUp hooks up what was loaded. The answer is the one to all lines of the plan.
func (w *worker) hookUp(ctx context.Context, p *plan, a answer) error {
	lines, n := p.reached, len(p.reached)
	win := window{size: n}
	var split []*unit
	for len(lines) > 0 {
		taken, fault := w.place(lines[:n], a)
		w.took(lines[:taken])
		switch {
		case a.reason == nil:
			win.saw(n, hooking{taken: n})
			lines = lines[n:]
		case fault < 0:
			win.saw(n, hooking{taken: taken, suspects: n - taken, refusal: a.reason})
			lines = lines[taken:]
		default:
			l := lines[fault]
			if l.jump {
				// It can be refused only for what it leads to, when those before it have been taken.
				w.took(lines[taken:fault])
				if fault > 0 {
					win.saw(fault, hooking{taken: fault})
				}
				win.saw(1, hooking{refusal: a.reason})
				lines = lines[fault+1:]
			} else {
				win.bad = 0
				lines = slices.Delete(slices.Clone(lines[taken:]), fault-taken, fault-taken+1)
			}
			if err := w.blame(ctx, l, a.reason); err != nil {
				return err
			}
			if l.pack.split {
				split = append(split, l.pack.units...)
			}
			lines = w.lendLines(lines)
		}
		var err error
		if lines, n, a, err = w.next(ctx, &win, lines); err != nil {
			return err
		}
	}
	return w.solve(ctx, split, true)
}

// place finds how many lines were taken for sure, and which is at fault, -1 if that is not
// known.
func (w *worker) place(lines []probeLine, a answer) (taken, fault int) {
	if a.reason == nil {
		return len(lines), -1
	}
	for _, block := range w.hooking(lines)[:a.taken] {
		taken += rulesOf(block)
	}
	if taken == len(lines)-1 {
		return taken, taken
	}
	for _, named := range a.named {
		for i, l := range lines[taken:] {
			if l.text == named.text {
				return taken, taken + i
			}
		}
	}
	return taken, -1
}

// rulesOf counts the lines of a block that somebody planned.
func rulesOf(block []probeLine) (n int) {
	for _, l := range block {
		if l.pack != nil {
			n++
		}
	}
	return n
}

// next tries the next lines that are still asked for.
func (w *worker) next(ctx context.Context, win *window, lines []probeLine) (left []probeLine, n int, a answer, err error) {
	for lines = asked(lines); len(lines) > 0; lines = asked(lines) {
		n = min(win.next(len(lines)), len(lines))
		if n > 1 || w.backend != NFT || !lines[0].jump || len(lines[0].pack.units) > 1 {
			a, err = w.send(ctx, w.hooking(lines[:n]), false)
			return lines, n, a, err
		}
		// Most are refused: one probe that names the rule is better than one before it that
		// names the chain.
		u := lines[0].pack.units[0]
		re, err := w.direct(ctx, u, reached)
		if err != nil {
			return nil, 0, a, err
		}
		if re == nil {
			win.saw(1, hooking{taken: 1})
			continue
		}
		win.saw(1, hooking{refusal: re})
		lines = w.lendLines(lines)
	}
	return nil, 0, answer{}, nil
}

// asked are the lines that there is still need of.
func asked(lines []probeLine) []probeLine {
	return slices.DeleteFunc(slices.Clone(lines), func(l probeLine) bool {
		return l.pack.split || !slices.ContainsFunc(l.items, func(it *item) bool {
			return it.asked()&l.at != 0
		})
	})
}

// lendLines has another worker ask for half of what is left.
func (w *worker) lendLines(lines []probeLine) []probeLine {
	mid := len(lines) / 2
	for mid > 0 && mid < len(lines) && lines[mid].pack == lines[mid-1].pack {
		mid++
	}
	if mid == 0 || mid == len(lines) {
		return lines
	}
	var units []*unit
	for i, l := range lines[mid:] {
		if (i == 0 || l.pack != lines[mid+i-1].pack) && !l.pack.split {
			units = append(units, l.pack.units...)
		}
	}
	if w.lend(units, false) {
		return lines[:mid]
	}
	return lines
}

// blame refuses what is at fault where a line is refused that hooks something up.
func (w *worker) blame(ctx context.Context, l probeLine, re *RestoreError) error {
	u := l.pack.units[0]
	switch {
	case len(l.items) == 1:
		w.refuse(l.items[0].unit, l.items[0], l.at, re)
		return nil
	case len(l.pack.units) > 1:
		l.pack.split = true
		return nil
	case w.backend == NFT:
		named, err := w.direct(ctx, u, l.at)
		if named != nil || err != nil {
			return err
		}
	}
	w.refuse(u, nil, l.at, re)
	return nil
}

// direct tries a unit's rules where hooks reach them already, so that nft names the rule that
// it refuses. It returns the refusal.
func (w *worker) direct(ctx context.Context, u *unit, at places) (*RestoreError, error) {
	lines := w.directLines(u, at)
	blocks := cut(lines, min(sliceReached, w.slice()))
	a, err := w.send(ctx, blocks, false)
	if err != nil {
		return nil, err
	}
	if w.shorten(a.reason) {
		return w.direct(ctx, u, at)
	}
	for _, block := range blocks[:a.taken] {
		w.took(block)
	}
	switch {
	case a.reason == nil:
	case len(a.named) > 0 && len(a.named[0].items) > 0:
		w.refuse(u, a.named[0].items[0], a.named[0].at, a.reason)
	default:
		i := slices.IndexFunc(lines, func(l probeLine) bool { return l.at != 0 })
		w.refuse(u, nil, lines[i].at, a.reason)
	}
	return a.reason, nil
}

func (w *worker) directLines(u *unit, at places) (lines []probeLine) {
	for i := range w.hooks {
		chain := ""
		for _, it := range u.items {
			if it.asked()&at&(1<<i) == 0 || w.builtin(it.chain) {
				continue
			}
			if chain == "" {
				chain = w.newChain()
				lines = append(lines, probeLine{text: declares(chain)}, probeLine{text: "-A " + w.hooks[i] + " -j " + chain})
			}
			lines = append(lines, probeLine{text: "-A " + chain + " " + it.text, items: []*item{it}, at: 1 << i})
		}
	}
	for _, it := range u.items {
		if own := it.asked() & at; own != 0 && w.builtin(it.chain) {
			lines = append(lines, w.ownLine(it, own, nil))
		}
	}
	return lines
}
