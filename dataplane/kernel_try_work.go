// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/tableward/tableward/rules"
)

// errOver ends the search without being an error.
var errOver = errors.New("the time for new probes is over")

// task is a part of the search, for any worker.
type task func(context.Context, *worker) error

// worker tries rules in a room of its own.
type worker struct {
	*trial
	room *room
}

// run learns what there is to learn of a batch. Rounds follow each other as long as what was
// refused changes who reaches whom.
func (t *trial) run(ctx context.Context, r *room) error {
	w := &worker{trial: t, room: r}
	defer func() { t.k.leaveRoom(w.room) }()
	t.judge(ctx, r)
	err := w.try(ctx, func(ctx context.Context, w *worker) error { return w.tryNames(ctx) })
	for t.settle(); err == nil; t.settle() {
		if len(open(t.units)) == 0 {
			return nil
		}
		for _, stage := range []func() []task{t.scouts, t.suspects, t.groups} {
			if err == nil {
				err = t.share(ctx, w, stage())
			}
		}
		if t.over = errors.Is(err, errOver); err == nil || t.over {
			err = cmp.Or(t.share(ctx, w, t.namings()), err)
		}
	}
	if errors.Is(err, errOver) {
		t.over = true
		return nil
	}
	return err
}

// judge refuses and skips what there is no need to try.
func (t *trial) judge(ctx context.Context, r *room) {
	read := false
	for _, it := range t.items {
		if it.skipped == "" && it.index >= 0 && !r.s.judges(it.rule) {
			it.skipped = "users are not known in this user namespace"
		}
		for _, name := range it.rule.Sets() {
			if !read {
				t.live, read = t.k.readSets(ctx), true
			}
			if _, exists := t.live[name]; t.live != nil && !exists && it.skipped == "" {
				t.refuse(it.unit, it, unreached, absentSet(name))
				break
			}
		}
	}
}

// share has tasks done by several workers, of whom w is one.
func (t *trial) share(ctx context.Context, w *worker, tasks []task) error {
	t.ctx, t.cancel = context.WithCancel(ctx)
	defer t.cancel()
	t.queue, t.err = tasks, nil
	for range min(len(tasks), runtime.GOMAXPROCS(0)) - 1 {
		if t.k.hire() {
			t.employ()
		}
	}
	t.work(w)
	t.wg.Wait()
	return t.err
}

// employ lets one more worker begin, for whom there is a place.
func (t *trial) employ() {
	t.wg.Go(func() {
		defer t.k.dismiss()
		w := &worker{trial: t}
		t.work(w)
		t.k.leaveRoom(w.room)
	})
}

func (t *trial) work(w *worker) {
	for next := t.next(); next != nil; next = t.next() {
		if err := w.try(t.ctx, next); err != nil {
			t.fail(err)
		}
	}
}

// next takes a task from the queue; there is none when it is empty, or all is over.
func (t *trial) next() task {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil || len(t.queue) == 0 {
		return nil
	}
	next := t.queue[0]
	t.queue = t.queue[1:]
	return next
}

func (t *trial) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil || errors.Is(t.err, errOver) {
		t.err = err
	}
	if !errors.Is(err, errOver) {
		t.cancel()
	}
}

// lend has another worker begin, with these units or with the next task if there is one,
// where it is worth while: an nft probe that is refused sleeps. It tells whether the units
// are another's now.
func (w *worker) lend(units []*unit, alone bool) bool {
	if w.backend != NFT || !w.k.hire() {
		return false
	}
	w.mu.Lock()
	lent := len(w.queue) == 0
	if lent {
		w.queue = append(w.queue, func(ctx context.Context, w *worker) error { return w.solve(ctx, units, alone) })
	}
	w.mu.Unlock()
	w.employ()
	return lent
}

// try does a task, once more if it fails for a room that had been in use: its namespace, or
// its tool, may have been taken away from us meanwhile.
func (w *worker) try(ctx context.Context, next task) error {
	err := next(ctx, w)
	if err == nil || w.room == nil || !w.room.spoilt {
		return err
	}
	used := w.room.sends > 0
	w.leave()
	if !used || ctx.Err() != nil || errors.Is(err, errDeadline) {
		return err
	}
	return next(ctx, w)
}

func (w *worker) leave() {
	w.k.leaveRoom(w.room)
	w.room = nil
}

// enter sees to it that the worker is in a room that is fit for the rules of units, with
// their sets.
func (w *worker) enter(ctx context.Context, units []*unit) error {
	for w.room == nil || !w.fits(units) {
		if w.room != nil {
			w.room.spoilt = true
			w.leave()
		}
		r, err := w.k.newRoom()
		if err != nil {
			return err
		}
		w.room = r
	}
	w.makeSets(ctx, units)
	return nil
}

// fits tells whether nothing in the room can mislead: it is not too large, has no chain that
// the table does not have, and no set of another kind.
func (w *worker) fits(units []*unit) bool {
	if w.backend == NFT && (w.room.reached > maxReached || w.room.chains > maxRoomChains) {
		return false
	}
	return !slices.ContainsFunc(units, func(u *unit) bool { return slices.ContainsFunc(u.items, w.misleads) })
}

func (w *worker) misleads(it *item) bool {
	if it.asked() == 0 {
		return false
	}
	target := it.rule.Target()
	return !w.names[target] && w.room.declared[chainKey{w.id, target}] ||
		slices.ContainsFunc(it.rule.Sets(), func(name string) bool {
			state, asked := w.room.s.sets[setKey{w.id.IPVersion, name}]
			return asked && state != setState{w.live.kind(w.id.IPVersion, name), true}
		})
}

func (w *worker) makeSets(ctx context.Context, units []*unit) {
	var with []*item
	var rs []rules.Rule
	for _, u := range units {
		for _, it := range u.items {
			if len(it.rule.Sets()) > 0 && it.asked() != 0 {
				with, rs = append(with, it), append(rs, it.rule)
			}
		}
	}
	w.room.s.makeSetsOf(ctx, w.k, w.id.IPVersion, rs, func() liveSets { return w.live })
	for _, it := range with {
		if !w.room.s.hasSets(w.id.IPVersion, it.rule) {
			it.skipped = "set " + it.rule.Sets()[0] + " cannot be made in a scratch namespace"
		}
	}
}

// send gives the tool blocks, unless the time is over. On legacy the table is emptied before
// if it is to begin anew.
func (w *worker) send(ctx context.Context, blocks [][]probeLine, anew bool) (answer, error) {
	if w.budget > 0 && time.Since(w.begin) > w.budget && (w.answered.Load() || w.found.Load() && !w.naming) {
		return answer{}, errOver
	}
	if ctx.Err() != nil {
		return answer{}, runError(outcome{exit: -1, err: context.Cause(ctx)})
	}
	w.probes.Add(1)
	w.k.stats.probes.Add(1)
	return w.room.send(ctx, w.k, w.tools, w.id, blocks, anew)
}
