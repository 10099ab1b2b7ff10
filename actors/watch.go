// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Watcher is a Dataplane that tells when somebody else writes. Without one, drift is found by
// the next refresh.
type Watcher interface {
	// Watch calls notify for each write that is not ours, until ctx ends. Notify does not block.
	// An error means that nothing is told any more.
	Watch(ctx context.Context, notify func(dataplane.Change)) error
}

const (
	// pollInterval is how often the pulse of each table is asked for where nothing tells of
	// writes.
	pollInterval = time.Second
	// lookShare bounds what looking at a table that others write to costs: between two looks
	// lies so many times what the last one took.
	lookShare = 20
	// digestShare is the same for a legacy table at rest, of which the kernel does not tell
	// that a rule was replaced by another one.
	digestShare = 200
	// The wait before drift is looked for grows from firstDamp to mostDamp while drift keeps
	// coming, and is over after calm without any.
	firstDamp = 50 * time.Millisecond
	mostDamp  = time.Second
	calm      = 5 * time.Second
)

// changed tells a table's actor that somebody has written. The zero Change is a poll.
type changed struct{ change dataplane.Change }

// watch tells the tables' actors of writes until the Runtime stops.
func (r *Runtime) watch() {
	w, ok := r.dp.(Watcher)
	if _, scans := r.dp.(Scanner); !ok || !scans {
		return
	}
	r.watching.Go(func() {
		err := w.Watch(r.ctx, func(c dataplane.Change) { r.tellChange(c) })
		if r.ctx.Err() != nil {
			return
		}
		r.opts.Logger.Warn().Err(err).Msg("nobody tells of writes to the tables any more: each is asked every second")
		r.poll()
	})
}

// poll has every table look at its pulse now and then.
func (r *Runtime) poll() {
	tick := make(chan struct{}, 1)
	for {
		stop := r.opts.Clock.AfterFunc(pollInterval, func() { tick <- struct{}{} })
		select {
		case <-tick:
			r.tellChange(dataplane.Change{})
		case <-r.ctx.Done():
			stop()
			return
		}
	}
}

func (r *Runtime) tellChange(c dataplane.Change) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.state != running {
		return
	}
	for id, pid := range r.pids {
		if c.Table == "" || id == (rules.TableID{IPVersion: c.IPVersion, Name: c.Table}) {
			r.system.Root.Send(pid, changed{c})
		}
	}
}

// watcher is what a table's actor knows of those who write beside it.
type watcher struct {
	again   bool          // somebody has written since the look under way began
	damp    time.Duration // between two looks, while somebody fights us
	drifted time.Time     // when drift was found last
	fought  bool          // it was told that somebody fights us
	log     reporter      // of drift, by its words
}

// changed notes that somebody has written, and has the table looked at.
func (s *shell) changed(c dataplane.Change) {
	if s.ending() {
		return
	}
	if c != (dataplane.Change{}) {
		s.core.noteChange(c)
	}
	if s.core.eyes.open {
		s.checkSoon()
	}
}

// checkSoon has the table looked at, at once if it has not been looked at just now.
func (s *shell) checkSoon() {
	if s.checking {
		s.watcher.again = true
		return
	}
	if s.timers[checkTimer] != nil {
		return
	}
	eyes, now := &s.core.eyes, s.now()
	if now.Sub(s.watcher.drifted) > calm {
		s.watcher.damp, s.watcher.fought = 0, false
	}
	wait := max(s.watcher.damp, lookShare*eyes.took) - now.Sub(eyes.looked)
	if wait > 0 {
		s.setTimer(checkTimer, wait)
		return
	}
	s.check()
}

// check looks at the table and repairs it.
func (s *shell) check() {
	if s.checking || s.ending() {
		return
	}
	s.checking = true
	s.add(&item{
		msg:      transaction.Message{ID: "drift check", Body: transaction.Refresh{}},
		internal: true,
		reply: func(Answer) {
			s.checking = false
			if s.watcher.again {
				s.watcher.again = false
				s.root.Send(s.self, changed{})
			}
		},
	})
}

// armDigest sets the next look at a legacy table at rest.
func (s *shell) armDigest() {
	if s.core.eyes.able && s.core.state.Backend() == string(dataplane.Legacy) && !s.ending() && s.rt.opts.Refresh > 0 {
		s.setTimer(digestTimer, max(pollInterval, digestShare*s.core.eyes.took))
	}
}

// digestNow looks at a legacy table though nothing tells that it has changed.
func (s *shell) digestNow() {
	s.armDigest()
	if s.core.eyes.open && !s.checking && !s.core.busy() {
		s.core.eyes.pulse = 0
		s.check()
	}
}

// tellDrifts logs what one look has found, and slows down when it goes on.
func (s *shell) tellDrifts(drifts []Drift) {
	if len(drifts) == 0 {
		return
	}
	for _, d := range drifts {
		s.stats.drifts++
		s.rt.observe(Event{Table: s.core.id, Kind: EventDrift, Drift: &d})
	}
	log := s.rt.opts.Logger.Warn().Stringer("table", s.core.id).Strs("by", drifts[0].By)
	if n := len(drifts); n > 1 {
		log = log.Int("chains", n)
	}
	w, now := &s.watcher, s.now()
	if now.Sub(w.drifted) <= calm {
		w.damp = min(max(2*w.damp, firstDamp), mostDamp)
	}
	w.drifted = now
	switch {
	case w.damp < mostDamp:
		said := drifts[0].Drift.String()
		omitted, ok := w.log.due(now, said)
		if !ok {
			log.Discard().Send()
			break
		}
		if omitted > 0 {
			log = log.Int("omitted", omitted)
		}
		log.Msg("drift: " + said)
	case !w.fought:
		w.fought = true
		log.Msg("somebody fights for this table: it is repaired once a second now; drift: " + drifts[0].Drift.String())
		s.rt.observe(Event{Table: s.core.id, Kind: EventFought, Drift: &drifts[0]})
	default:
		log.Discard().Send()
	}
}
