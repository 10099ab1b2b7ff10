// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"
)

const (
	// tryPrefix begins the names of the chains in which rules are tried.
	tryPrefix = "tableward-try-"
	// taskRules is how many rules make a task, in whole units.
	taskRules = 512
	// packRules is how many rules share a chain, where units are smaller.
	packRules = 10
	// Lines of a block. nft takes time that grows with the square of a block's chains, and in
	// a user namespace no block of more than 208 KiB of netlink messages, which is some 33
	// chains of 10 rules; legacy writes its table once for each block.
	sliceNFT          = 1000
	sliceUnprivileged = 250
	// sliceReached is how many lines nft is given at once that it may refuse for where they
	// are reached from: it then looks at the whole table again after each of them.
	sliceReached = 50
)

// tasks cuts units into tasks.
func (t *trial) tasks(units []*unit) []task {
	var out []task
	from, weight := 0, 0
	for i, u := range units {
		if weight += len(u.items); weight >= taskRules || i == len(units)-1 {
			part := units[from : i+1]
			out = append(out, func(ctx context.Context, w *worker) error { return w.solve(ctx, part, false) })
			from, weight = i+1, 0
		}
	}
	return out
}

// solve asks all that is still to be asked of units: it loads them unreached, then hooks them
// up. Some at a time, by halves, where the tool does not say which are refused.
func (w *worker) solve(ctx context.Context, units []*unit, alone bool) error {
	win := window{size: len(units)}
	for units = open(units); len(units) > 0; units = open(units) {
		n := min(win.next(len(units)), len(units))
		if err := w.enter(ctx, units[:n]); err != nil {
			return err
		}
		p := w.plan(units[:n], alone)
		a, err := w.send(ctx, slices.Concat(p.load, w.hooking(p.reached)), true)
		if err != nil {
			return err
		}
		switch {
		case a.taken >= len(p.load):
			p.loaded()
			a.taken -= len(p.load)
			if err := w.hookUp(ctx, p, a); err != nil {
				return err
			}
			units = units[n:]
			win.saw(n, hooking{taken: n})
			continue
		case w.refuseNamed(p.load[a.taken], a):
			win.bad = 0
		case n == 1:
			w.refuse(units[0], nil, unreached, a.reason)
			win.saw(1, hooking{refusal: a.reason})
		default:
			win.saw(n, hooking{suspects: n, refusal: a.reason})
		}
		if half := len(units) / 2; half > 0 && w.lend(units[half:], alone) {
			units = units[:half]
		}
	}
	return nil
}

// refuseNamed refuses the rules whose lines are named. Where nothing is reached they are all
// at fault.
func (w *worker) refuseNamed(block []probeLine, a answer) (any bool) {
	for _, l := range a.named {
		for _, it := range block[l.Line].items {
			if !it.unit.stop {
				w.refuse(it.unit, it, unreached, a.because(l))
			}
			any = true
		}
	}
	return any
}

// because is the refusal of one line.
func (a answer) because(l LineError) *RestoreError {
	e := *a.reason
	e.Reason = l.Reason
	return &e
}

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
	blocks := w.hooking(lines)
	for _, block := range blocks[:a.taken] {
		taken += rulesOf(block)
	}
	switch {
	case a.reason == nil:
		return taken, -1
	case len(a.named) > 0 && blocks[a.taken][a.named[0].Line].pack != nil:
		return taken, taken + rulesOf(blocks[a.taken][:a.named[0].Line])
	case taken == len(lines)-1:
		return taken, taken
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
		if n > 1 || w.k.backend != NFT || !lines[0].jump || len(lines[0].pack.units) > 1 {
			a, err = w.send(ctx, w.hooking(lines[:n]), false)
			return lines, n, a, err
		}
		// Most are refused: one probe that names the rule is better than one before it that
		// names the chain.
		u := lines[0].pack.units[0]
		re, err := w.direct(ctx, u, ^unreached)
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
			return !it.unit.stop && it.asked()&l.at != 0
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
	case w.k.backend == NFT:
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
	var lines []probeLine
	first := places(0)
	for i := range w.hooks {
		hook := at & (1 << i)
		chain := ""
		for _, it := range u.items {
			if it.asked()&hook == 0 {
				continue
			}
			if first == 0 {
				first = hook
			}
			if w.builtin(it.chain) {
				lines = append(lines, w.ownLine(it, hook, nil))
				continue
			}
			if chain == "" {
				chain = w.newChain()
				lines = append(lines, probeLine{text: declares(chain)}, probeLine{text: "-A " + w.hooks[i] + " -j " + chain})
			}
			lines = append(lines, probeLine{text: "-A " + chain + " " + it.text, items: []*item{it}, at: hook})
		}
	}
	blocks := cut(lines, sliceReached)
	a, err := w.send(ctx, blocks, false)
	if err != nil {
		return nil, err
	}
	for _, block := range blocks[:a.taken] {
		w.took(block)
	}
	if a.reason == nil {
		return nil, nil
	}
	if len(a.named) > 0 {
		if l := blocks[a.taken][a.named[0].Line]; len(l.items) > 0 {
			w.refuse(u, l.items[0], l.at, a.reason)
			return a.reason, nil
		}
	}
	w.refuse(u, nil, first, a.reason)
	return a.reason, nil
}
