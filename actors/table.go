// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Request asks a table actor for its answer from another actor: send it with a sender
// (Request, RequestFuture) to the PID that Runtime.PID returns, and an Answer comes back.
// Sent without a sender, the answer goes to OnAnswer.
type Request struct{ Message transaction.Message }

// shell is one table's actor. It outlives the instances that protoactor makes: all state is
// here. Only Receive touches it, on one goroutine at a time, except where said.
type shell struct {
	rt    *Runtime
	core  *core
	root  *actor.RootContext
	self  *actor.PID
	stats stats

	kicked   bool           // a kick is in the mailbox, behind all that is pending
	inFlight bool           // an operation of the dataplane is under way beside the mailbox
	place    time.Time      // reserved with the pacer; zero: none
	freed    bool           // the run under way has freed something in the kernel
	timers   map[int]func() // what stops each timer, by kind
	refresh  bool           // a refresh of the timer's is in the mail
	checking bool           // a look for drift is
	watcher  watcher
	panics   []time.Time
	drained  chan<- struct{} // not nil: closed when all is answered
	aborted  bool            // nothing is begun any more, and all is answered
	stopped  bool

	op         effect   // under way, or the last one
	keep       *keeper  // nil: there is no state file
	report     reporter // of blocks that fail
	refreshErr string   // why the last periodic refresh failed, "" if it did not

	depth atomic.Int64   // messages of Go callers that no batch has taken; senders read it
	gone  atomic.Bool    // the actor has ended; its mailbox only answers
	work  sync.WaitGroup // operations under way
}

// The shell's own messages.
type (
	kick     struct{}
	envelope struct {
		items []*item
		to    *shell
	}
	opDone  struct{ result event }
	timeUp  struct{ timer int }
	drain   struct{ done chan<- struct{} }
	abort   struct{}
	own     struct{ names []string }
	inquiry struct {
		of     rules.TableID
		answer chan<- TableStatus
	}
)

// Receive implements actor.Actor.
func (s *shell) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.started(ctx)
	case *envelope:
		s.take(m.items)
	case Request:
		s.add(s.itemOf(ctx.Sender(), m))
	case *Request:
		s.add(s.itemOf(ctx.Sender(), *m))
	case kick:
		s.kicked = false
		s.advance(nil)
	case opDone:
		s.inFlight = false
		if done, ok := m.result.(restoreDone); ok && done.moved {
			s.stats.restores--
			s.stats.batches--
		}
		s.reportFailure(m.result)
		s.noteResult(m.result)
		s.advance(m.result)
	case kept:
		s.kept(m)
	case changed:
		s.changed(m.change)
	case timeUp:
		s.timeUp(m.timer)
	case inquiry:
		m.answer <- s.status()
	case drain:
		s.drained = m.done
		s.stopTimer(refreshTimer)
		s.stopTimer(graceTimer)
		s.stopTimer(checkTimer)
		s.stopTimer(digestTimer)
		s.stopTimer(keepTimer)
		s.advance(nil)
	case own:
		s.advance(owning(m))
	case abort:
		s.aborted = true
		for timer := range s.timers {
			s.stopTimer(timer)
		}
		s.advance(nil)
	case *actor.Stopping:
		s.stopping()
	}
}

// started comes at the start, and again after a restart, when messages to ourselves may
// have been lost.
func (s *shell) started(ctx actor.Context) {
	s.self, s.root = ctx.Self(), ctx.ActorSystem().Root
	s.load()
	s.startTimers()
	s.stopTimer(paceTimer) // its message may be among them
	s.kickSelf()
}

// stopping comes when the actor ends, by the Runtime or by somebody who sent it a stop.
func (s *shell) stopping() {
	for timer := range s.timers {
		s.stopTimer(timer)
	}
	if !s.stopped {
		s.end(fmt.Errorf("table %s: its actor was stopped by somebody else", s.core.id))
	}
	s.gone.Store(true)
}

// itemOf makes an item of another actor's message. Its answer is sent by the root context,
// since it comes after Receive has returned.
func (s *shell) itemOf(sender *actor.PID, m Request) *item {
	it := &item{msg: s.rt.named(m.Message).Clone()}
	if sender != nil {
		root := s.rt.system.Root
		it.reply = func(a Answer) { root.Send(sender, a) }
	}
	return it
}

// take puts messages into the batch that is gathered, and starts on it when idle: by a
// message to itself, so that all that is in the mailbox already comes along.
func (s *shell) take(items []*item) {
	if s.stopped || s.aborted {
		for _, it := range items {
			s.rt.deliver(it, s.refusal(it))
		}
		return
	}
	s.core.step(s.now(), mail{items})
	s.stats.messages += uint64(len(items))
	if !s.inFlight && !s.core.busy() {
		s.kickSelf()
	}
}

// add takes one message that did not come by Runtime.post, which counts its own.
func (s *shell) add(it *item) {
	s.depth.Add(1)
	s.take([]*item{it})
}

func (s *shell) kickSelf() {
	if !s.kicked {
		s.kicked = true
		s.root.Send(s.self, kick{})
	}
}

func (s *shell) now() time.Time { return s.rt.opts.Clock.Now() }

// refusal is the answer to what comes after the end.
func (s *shell) refusal(it *item) Answer {
	return s.core.answerOf(it, Unavailable, ErrStopped)
}

// advance hands an event to the core, carries out what it asks for, and begins the next
// batch when it may.
func (s *shell) advance(e event) {
	now, writing, waited := s.now(), s.core.writing(), len(s.core.mail.queue)
	defer func() { s.depth.Add(int64(len(s.core.mail.queue) - waited)) }()
	if e != nil {
		s.carryOut(s.guarded(func() []effect { return s.core.step(now, e) }))
	}
	if writing && !s.core.writing() {
		s.leavePlace(now) // the answers that were given meanwhile are no part of the run
	}
	if s.mayBegin() {
		s.carryOut(s.guarded(func() []effect { return s.core.begin(s.now()) }))
		if !s.core.writing() {
			s.leavePlace(s.now())
			if _, pending := s.core.due(s.now()); pending {
				s.kickSelf()
			}
		}
	}
	if s.aborted {
		s.carryOut(s.core.step(s.now(), stopNow{})) // whatever the last operation has led to
	}
	s.finishDrain()
}

// ending tells whether nothing of our own making is to be begun any more.
func (s *shell) ending() bool { return s.stopped || s.aborted || s.drained != nil }

// mayBegin tells whether a batch may be taken now; if later, a timer is set.
func (s *shell) mayBegin() bool {
	if s.inFlight || s.stopped || s.aborted {
		return false
	}
	wait, pending := s.core.due(s.now())
	if !pending {
		return false
	}
	if p := s.rt.pacer; wait == 0 && p != nil && s.place.IsZero() {
		wait, s.place = p.reserve(s.now())
	} else if p != nil && s.place.After(s.now()) {
		wait = s.place.Sub(s.now())
	}
	if wait > 0 {
		// More messages do not move the time that is waited for. A timer set anew for each of
		// them is later: an idle Go program wakes by whole milliseconds from when it fell asleep.
		if s.timers[paceTimer] == nil {
			s.setTimer(paceTimer, wait)
		}
		return false
	}
	s.stopTimer(paceTimer)
	return true
}

// leavePlace tells the pacer when the run was over.
func (s *shell) leavePlace(ended time.Time) {
	if !s.place.IsZero() {
		s.rt.pacer.done(ended, s.place, s.freed)
	}
	s.place, s.freed = time.Time{}, false
}

func (s *shell) carryOut(effects []effect) {
	var drifts []Drift
	for _, next := range effects {
		switch op := next.(type) {
		case doReply:
			s.stats.count(op.answer)
			if op.answer.Result == Applied && !op.item.internal {
				s.noteKeep()
			}
			s.rt.deliver(op.item, op.answer)
		case doNews:
			s.rt.observe(Event{Table: s.core.id, Kind: EventLate, Answer: &op.answer})
		case doWait:
			s.rt.observe(waitEvent(s.core.id, s.core, op))
		case doLost:
			s.rt.opts.Logger.Warn().Err(op.err).Stringer("table", s.core.id).
				Msg("a legacy tool was killed at work: rule counters of the table may be lost")
			s.rt.observe(Event{Table: s.core.id, Kind: EventCountersLost, Err: op.err})
		case doBroken:
			s.rt.opts.Logger.Warn().Err(op.err).Msg("what a stranger broke cannot be put back now")
			s.rt.observe(Event{Table: s.core.id, Kind: EventBroken, Err: op.err})
		case doDrift:
			drifts = append(drifts, op.drift)
		case doRepaired:
			s.stats.repaired++
			s.rt.observe(Event{Table: s.core.id, Kind: EventRepaired, Drift: &op.drift})
		case doRecord:
			s.rt.tellBatch(op.record)
		case doRest:
			s.rt.observe(Event{Table: s.core.id, Kind: EventWait})
			s.setTimer(restTimer, op.after)
		default:
			s.start(op)
		}
	}
	s.tellDrifts(drifts)
}

// finishDrain ends the shell's work when it is to end and nothing is under way.
func (s *shell) finishDrain() {
	if s.drained == nil || s.inFlight || s.core.busy() {
		return
	}
	if _, pending := s.core.due(s.now()); pending {
		return
	}
	s.carryOut(s.core.step(s.now(), stopNow{})) // what waits for a kernel chain
	s.stopped = true
	s.keepNow()
	close(s.drained)
	s.drained = nil
}
