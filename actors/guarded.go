// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tableward/tableward/rules"
)

// The panics of a table actor's own logic that are survived: more than maxPanics within
// panicWindow is no accident any more.
const (
	maxPanics   = 10
	panicWindow = 10 * time.Second
)

// guarded steps the core. A panic there is ours: what the batch holds is answered, and the
// table is read before the next plan, since nobody knows what was believed. Too many are
// the end, told to the Fatal callback.
func (s *shell) guarded(step func() []effect) (effects []effect) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err := fmt.Errorf("table %s: internal error: %v", s.core.id, p)
		s.rt.opts.Logger.Error().Err(err).Bytes("stack", debug.Stack()).Msg("panic in a table actor")
		effects = s.core.failRun(err)
		now := s.now()
		s.panics = append(s.panics, now)
		for len(s.panics) > 0 && now.Sub(s.panics[0]) > panicWindow {
			s.panics = s.panics[1:]
		}
		if len(s.panics) > maxPanics {
			s.carryOut(effects)
			effects = nil
			s.end(err)
			return
		}
		s.kickSelf() // what is pending is not left lying
	}()
	return step()
}

// end answers all that has no answer, takes nothing more, and tells the owner of the
// Runtime why.
func (s *shell) end(err error) {
	s.carryOut(s.core.step(s.now(), stopNow{}))
	s.stopped = true
	if s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
	s.rt.fatal(err)
}

// start runs an operation beside the mailbox; its result comes back as a message.
func (s *shell) start(op effect) {
	s.inFlight, s.op = true, op
	if r, ok := op.(doRestore); ok && r.frees {
		s.freed = true
	}
	s.work.Add(1)
	dp, id, root, self, ctx := s.rt.dp, s.core.id, s.root, s.self, s.rt.ctx
	s.stats.operation(op)
	var sc Scanner
	if s.core.eyes.able {
		sc, _ = dp.(Scanner)
	}
	go func() {
		defer s.work.Done()
		result := performGuarded(ctx, dp, sc, id, op)
		if ev, ok := record(id, op, result); ok {
			s.rt.observe(ev)
		}
		root.Send(self, opDone{result})
	}()
}

// reportFailure logs a block that was not applied. A delete is best effort: what cannot go is
// tried again, and shown by the status.
func (s *shell) reportFailure(result event) {
	done, ok := result.(restoreDone)
	block, sent := s.op.(doRestore)
	if ok && sent && done.err != nil && block.phase == phaseModify && s.rt.ctx.Err() == nil {
		s.report.failed(s.now(), block.input, done.err)
	}
}

// performGuarded turns a panic of the dataplane into an error of which nothing is known.
func performGuarded(ctx context.Context, dp Dataplane, sc Scanner, id rules.TableID, op effect) (result event) {
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
		case doTry:
			result = tryDone{err: err}
		case doLook:
			result = lookDone{op: op, err: err}
		case doClose:
			result = closeDone{err: err}
		case doVerify:
			result = verifyDone{op: op, closed: closeDone{err: err}}
		default:
			result = restoreDone{err: err}
		}
	}()
	return perform(ctx, dp, sc, id, op)
}
