// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

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
	rt   *Runtime
	core *core
	root *actor.RootContext
	self *actor.PID

	kicked   bool // a kick is in the mailbox, behind all that is pending
	inFlight bool // an operation of the dataplane is under way beside the mailbox
	stopRest func() bool
	drained  chan<- struct{} // not nil: closed when all is answered
	stopped  bool

	work sync.WaitGroup // operations under way
}

// The shell's own messages.
type (
	kick     struct{}
	envelope struct{ items []*item }
	opDone   struct{ result event }
	restOver struct{}
	drain    struct{ done chan<- struct{} }
	abort    struct{}
)

// Receive implements actor.Actor.
func (s *shell) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		s.self, s.root = ctx.Self(), ctx.ActorSystem().Root
	case *envelope:
		s.take(m.items)
	case Request:
		s.request(ctx.Sender(), m)
	case *Request:
		s.request(ctx.Sender(), *m)
	case kick:
		s.kicked = false
		s.advance(nil)
	case opDone:
		s.inFlight = false
		s.advance(m.result)
	case restOver:
		s.stopRest = nil
		s.advance(tick{})
	case drain:
		s.drained = m.done
		s.advance(nil)
	case abort:
		s.stopResting()
		s.advance(stopNow{})
	}
}

// request takes a message from another actor. Its answer is sent by the root context, since
// it comes after Receive has returned.
func (s *shell) request(sender *actor.PID, m Request) {
	it := &item{msg: s.rt.named(m.Message).Clone()}
	if sender != nil {
		root := s.root
		it.reply = func(a Answer) { root.Send(sender, a) }
	}
	s.take([]*item{it})
}

// take puts messages into the batch that is gathered, and starts on it when idle: by a
// message to itself, so that all that is in the mailbox already comes along.
func (s *shell) take(items []*item) {
	if s.stopped {
		for _, it := range items {
			s.rt.deliver(it, s.refusal(it))
		}
		return
	}
	s.core.step(mail{items})
	if !s.kicked && !s.inFlight && !s.core.busy() {
		s.kicked = true
		s.root.Send(s.self, kick{})
	}
}

// refusal is the answer to what comes after the end.
func (s *shell) refusal(it *item) Answer {
	return Answer{
		ID: it.msg.ID, Owner: it.msg.Owner, Table: s.core.id, Kind: it.msg.Body.Kind(), Result: Unavailable, Err: ErrStopped,
	}
}

// advance hands an event to the core and carries out what it asks for.
func (s *shell) advance(e event) {
	effects := s.guarded(e)
	for _, next := range effects {
		switch op := next.(type) {
		case doReply:
			s.rt.deliver(op.item, op.answer)
		case doNews:
			s.rt.observe(Event{Table: s.core.id, Kind: EventLate, Answer: &op.answer})
		case doRest:
			s.rest(op)
		default:
			s.start(op)
		}
	}
	if s.drained != nil && !s.core.busy() && !s.inFlight {
		for _, next := range s.core.step(stopNow{}) { // what waits for a kernel chain
			s.rt.deliver(next.(doReply).item, next.(doReply).answer)
		}
		s.stopped = true
		close(s.drained)
		s.drained = nil
	}
}

// guarded steps the core. A panic there is ours: what the batch holds is answered, and the
// table is read before the next plan, since nobody knows what was believed.
func (s *shell) guarded(e event) (effects []effect) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		s.rt.opts.Logger.Error().Interface("panic", p).Bytes("stack", debug.Stack()).
			Stringer("table", s.core.id).Msg("panic in a table actor")
		effects = s.core.failRun(fmt.Errorf("internal error: %v", p))
		s.kicked = true
		s.root.Send(s.self, kick{}) // what is pending is not left lying
	}()
	if e != nil {
		effects = s.core.step(e)
	}
	return append(effects, s.core.begin()...)
}

// start runs an operation beside the mailbox; its result comes back as a message.
func (s *shell) start(op effect) {
	s.inFlight = true
	s.work.Add(1)
	dp, id, root, self, ctx := s.rt.dp, s.core.id, s.root, s.self, s.rt.ctx
	go func() {
		defer s.work.Done()
		result := performGuarded(ctx, dp, id, op)
		if ev, ok := record(id, op, result); ok {
			s.rt.observe(ev)
		}
		root.Send(self, opDone{result})
	}()
}

// performGuarded turns a panic of the dataplane into an error of which nothing is known.
func performGuarded(ctx context.Context, dp Dataplane, id rules.TableID, op effect) (result event) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err := fmt.Errorf("table %s: panic in the dataplane: %v", id, p)
		switch op := op.(type) {
		case doRead:
			result = readDone{err: err}
		case doCanon:
			result = canonDone{asked: op.rules}
		default:
			result = restoreDone{err}
		}
	}()
	return perform(ctx, dp, id, op)
}

func (s *shell) rest(op doRest) {
	s.rt.observe(Event{Table: s.core.id, Kind: EventWait})
	root, self := s.root, s.self
	s.stopRest = s.rt.opts.Clock.AfterFunc(op.after, func() { root.Send(self, restOver{}) })
}

func (s *shell) stopResting() {
	if s.stopRest != nil {
		s.stopRest()
		s.stopRest = nil
	}
}
