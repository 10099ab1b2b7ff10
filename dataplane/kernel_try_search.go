// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"
)

const (
	// tryPrefix begins the names of the chains in which rules are tried.
	tryPrefix = "tableward-try-"
	// taskRules is how many rules make a task, in whole units; one of several rules counts
	// for unitRules at least, so that there are no more than 32 of them.
	taskRules = 512
	unitRules = taskRules / 32
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

// groups cuts the units of which there is something left to ask into tasks.
func (t *trial) groups() []task { return t.tasks(open(t.units)) }

func (t *trial) tasks(units []*unit) []task {
	var out []task
	from, weight := 0, 0
	for i, u := range units {
		if weight += len(u.items); len(u.items) > 1 {
			weight += max(unitRules-len(u.items), 0)
		}
		if weight >= taskRules || i == len(units)-1 {
			part := units[from : i+1]
			out = append(out, func(ctx context.Context, w *worker) error { return w.solve(ctx, part, false) })
			from, weight = i+1, 0
		}
	}
	return out
}

// solve asks all that is still to be asked of units: it loads them unreached, then hooks them
// up. Where the tool does not say which are refused it does so with some at a time, by
// halves. On legacy a refused hook leads to halves too: the table is better kept small than
// loaded only once.
func (w *worker) solve(ctx context.Context, units []*unit, alone bool) error {
	win := window{size: len(units)}
	for units = open(units); len(units) > 0; units = open(units) {
		n := min(win.next(len(units)), len(units))
		if err := w.enter(ctx, units[:n]); err != nil {
			return err
		}
		p := w.plan(units[:n], alone)
		blocks, load := p.blocks(n > 1)
		a, err := w.send(ctx, blocks, true)
		if err != nil {
			return err
		}
		switch {
		case a.taken >= load:
			p.loaded()
			a.taken -= load
			if err := w.hookUp(ctx, p, a); err != nil {
				return err
			}
			if n == 1 && a.reason != nil {
				win.saw(1, hooking{refusal: a.reason})
			} else {
				win.saw(n, hooking{taken: n})
			}
			if a.reason == nil && slices.ContainsFunc(units[:n], (*unit).answered) {
				w.answered.Store(true)
			}
			units = units[n:]
			continue
		case w.shorten(a.reason):
			continue
		case w.refuseNamed(a):
			win.named(a.before(units), a)
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

// refuseNamed refuses the rules whose lines are named. They are all at fault where nothing is
// reached, and where there is but one.
func (w *worker) refuseNamed(a answer) (any bool) {
	for _, l := range a.named {
		for _, it := range l.items {
			if it.asked()&l.at != 0 {
				w.refuse(it.unit, it, l.at, a.because(l))
			}
			any = true
		}
	}
	return any
}

// before is how many units stand before the first of which a rule is named.
func (a answer) before(units []*unit) int {
	return max(0, slices.IndexFunc(units, func(u *unit) bool {
		return slices.ContainsFunc(a.named, func(l namedLine) bool { return len(l.items) > 0 && slices.Contains(u.items, l.items[0]) })
	}))
}

// because is the refusal of one line.
func (a answer) because(l namedLine) *RestoreError {
	e := *a.reason
	e.Reason = l.reason
	return &e
}
