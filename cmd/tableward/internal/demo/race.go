// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/transaction"
)

// race makes every feature an actor, lets all send at once and waits for them.
func race(ctx context.Context, rt *actors.Runtime, features []*feature, s *story, hurry bool) error {
	done := make(chan error, len(features))
	var all []*actors.FeatureActor
	for _, f := range features {
		r := &racer{feature: f, ctx: ctx, story: s, hurry: hurry, done: done}
		a, err := rt.Owner(f.owner, 0).Spawn(r.receive)
		if err != nil {
			return err
		}
		defer a.End()
		all = append(all, a)
	}
	for _, a := range all {
		a.Post(goOn{})
	}
	for range all {
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// racer is a feature as an actor. It sends without waiting for answers; where its log lets
// time pass it does what a real one does: it has its answers before it goes on.
type racer struct {
	*feature
	ctx   context.Context // ends the waits of receive
	story *story
	hurry bool

	begin  time.Time // zero before the start
	next   int       // the message that is to be sent
	open   int       // messages without an answer
	rested bool      // the pause before next is over
	over   bool
	done   chan<- error // has room for its one result
}

// goOn starts a racer, and ends a pause.
type goOn struct{}

func (r *racer) receive(self *actors.FeatureActor, message any) {
	switch m := message.(type) {
	case goOn:
		r.rested = true
		if r.begin.IsZero() {
			r.begin = time.Now()
		}
	case actors.Answer:
		r.story.answered(m)
		r.open--
	}
	if r.over {
		return
	}
	err := r.send(self)
	if err != nil {
		err = fmt.Errorf("%s: %w", r.owner, err)
	}
	if r.over = err != nil || r.next == len(r.messages) && r.open <= 0; r.over {
		r.done <- err
	}
}

// send sends messages up to the next pause.
func (r *racer) send(self *actors.FeatureActor) error {
	for r.next < len(r.messages) {
		if r.pauses() && !r.rested {
			if r.open == 0 {
				r.rest(self)
			}
			return nil
		}
		m := r.messages[r.next]
		r.next++
		r.rested = false
		if _, ok := m.Body.(transaction.InSync); ok {
			if _, err := self.InSync(r.ctx); err != nil {
				return err
			}
			r.story.insync(m.ID)
			continue
		}
		if err := self.Request(m.Table, m.Message); err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
		r.open++
	}
	return nil
}

// pauses tells whether the log lets time pass before the next message.
func (r *racer) pauses() bool { return r.next > 0 && r.at[r.next] > r.at[r.next-1] }

func (r *racer) rest(self *actors.FeatureActor) {
	d := time.Until(r.begin.Add(r.at[r.next]))
	if r.hurry {
		d = 0
	}
	time.AfterFunc(d, func() { self.Post(goOn{}) })
}
