// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"math/rand/v2"
	"time"

	"github.com/tableward/tableward/transaction"
)

// The shell's timers. Each is one shot and armed again when it has been handled, so that
// ticks never pile up behind a table that is slow.
const (
	restTimer    = iota // backoff while the environment is in trouble
	paceTimer           // until the next batch may begin
	refreshTimer        // until the table is looked at again
	checkTimer          // until the table is looked at since somebody has written
	digestTimer         // until a legacy table at rest is looked at
	graceTimer          // until grace ends though not every owner has spoken
	keepTimer           // until the state file is written
)

// The defaults of Options.
const (
	DefaultRefresh = time.Minute
	DefaultGrace   = 30 * time.Second
)

// setTimer arms a timer; one of the same kind that is running is replaced.
func (s *shell) setTimer(timer int, d time.Duration) {
	s.stopTimer(timer)
	root, self := s.root, s.self
	stop := s.rt.opts.Clock.AfterFunc(d, func() { root.Send(self, timeUp{timer}) })
	if s.timers == nil {
		s.timers = map[int]func(){}
	}
	s.timers[timer] = func() { stop() }
}

func (s *shell) stopTimer(timer int) {
	if stop := s.timers[timer]; stop != nil {
		stop()
		delete(s.timers, timer)
	}
}

// startTimers arms what runs by itself.
func (s *shell) startTimers() {
	s.armRefresh()
	s.armDigest()
	if s.core.state.Grace() && s.rt.opts.GraceTimeout > 0 {
		s.setTimer(graceTimer, s.rt.opts.GraceTimeout)
	}
}

// armRefresh sets the next refresh, up to a fifth late, so that the tables of a host and the
// hosts of a fleet do not all look at once.
func (s *shell) armRefresh() {
	d := s.rt.opts.Refresh
	if d <= 0 || s.ending() {
		return
	}
	if !s.rt.opts.NoJitter {
		d += time.Duration(rand.Int64N(int64(d)/5 + 1))
	}
	s.setTimer(refreshTimer, d)
}

func (s *shell) timeUp(timer int) {
	if s.timers[timer] == nil {
		return // it was stopped while its message was on the way
	}
	delete(s.timers, timer)
	switch timer {
	case restTimer:
		s.advance(tick{})
	case paceTimer:
		s.advance(nil)
	case refreshTimer:
		s.refreshNow()
	case checkTimer:
		s.check()
	case digestTimer:
		s.digestNow()
	case graceTimer:
		s.endGrace()
	case keepTimer:
		s.keepNow()
	}
}

// refreshNow looks at the table, repairs it, and deletes orphans once grace is over. While
// an earlier refresh still waits for its turn there is no second one.
func (s *shell) refreshNow() {
	s.armRefresh()
	if s.refresh || s.ending() {
		return
	}
	var body transaction.Body = transaction.Cleanup{}
	if s.core.state.Grace() {
		body = transaction.Refresh{}
	}
	s.refresh = true
	s.add(&item{
		msg:      transaction.Message{ID: "periodic " + body.Kind(), Body: body},
		internal: true,
		reply: func(a Answer) {
			s.refresh = false
			s.tellRefresh(a.Err)
		},
	})
}

// tellRefresh logs that the periodic refresh fails: once for each reason, not each minute.
func (s *shell) tellRefresh(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if err != nil && reason != s.refreshErr {
		s.rt.opts.Logger.Warn().Err(err).Stringer("table", s.core.id).Msg("the periodic refresh failed")
	}
	s.refreshErr = reason
}

// endGrace is the loud fallback for owners that never say InSync.
func (s *shell) endGrace() {
	if !s.core.state.Grace() || s.ending() {
		return
	}
	s.rt.opts.Logger.Warn().Stringer("table", s.core.id).Dur("after", s.rt.opts.GraceTimeout).
		Msg("grace ends by its timer, before every owner was in sync: what ours needs and nobody has written becomes a stub")
	s.rt.observe(Event{Table: s.core.id, Kind: EventGraceTimeout})
	s.add(&item{msg: transaction.Message{ID: "grace timer", Body: transaction.EndGrace{}}, internal: true, reply: func(Answer) {}})
}
