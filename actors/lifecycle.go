// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"
)

type lifecycle uint8

const (
	fresh lifecycle = iota
	running
	stopped
)

// Start makes the Runtime ready for messages. It touches no table: a table is read when its
// first message comes.
func (r *Runtime) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != fresh {
		return
	}
	handler := zerolog.NewSlogHandler(r.opts.Logger.Level(zerolog.WarnLevel))
	r.system = actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(handler) }),
		// Each dead letter starts a goroutine of the library's log throttle that lives as long
		// as its interval; a second would outlive the Runtime and show in who tests for leaks.
		actor.WithDeadLetterThrottleInterval(time.Millisecond),
	)
	// A message to an actor that is gone is answered as well.
	r.system.EventStream.Subscribe(func(e any) {
		if dead, ok := e.(*actor.DeadLetterEvent); ok {
			r.buryLate(dead)
		}
	})
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.state = running
	r.watch()
}

// Stop takes no more messages, waits until all that were taken are answered, and ends. When
// ctx ends first, the operation under way is ended and what is still pending is answered
// Unavailable. The rules stay in the kernel. Stopping twice is safe.
func (r *Runtime) Stop(ctx context.Context) error {
	r.mu.Lock()
	was := r.state
	r.state = stopped
	r.mu.Unlock()
	if was != running {
		return nil
	}
	var waits []chan struct{}
	for _, pid := range r.pids {
		done := make(chan struct{})
		waits = append(waits, done)
		r.system.Root.Send(pid, drain{done})
	}
	err := r.await(ctx, waits)
	r.cancel()
	r.watching.Wait()
	for _, s := range r.tables {
		s.work.Wait()
	}
	for _, pid := range r.pids {
		_ = r.system.Root.PoisonFuture(pid).Wait()
	}
	r.system.Shutdown()
	return err
}

// await waits for every table to drain; when ctx ends, it has them give up.
func (r *Runtime) await(ctx context.Context, waits []chan struct{}) error {
	for _, done := range waits {
		select {
		case <-done:
			continue
		case <-ctx.Done():
		}
		r.cancel()
		for _, pid := range r.pids {
			r.system.Root.Send(pid, abort{})
		}
		for _, d := range waits {
			<-d
		}
		return ctx.Err()
	}
	return nil
}

func (l lifecycle) err() error {
	switch l {
	case fresh:
		return ErrNotStarted
	case stopped:
		return ErrStopped
	}
	return nil
}

// buryLate answers a message to an actor that the system knows no more.
func (r *Runtime) buryLate(dead *actor.DeadLetterEvent) {
	to, known := r.shells.Load(dead.PID.GetId())
	if !known {
		r.bury(dead.Message)
		return
	}
	message := dead.Message
	if dead.Sender != nil {
		message = actor.WrapEnvelope(message)
		message.(*actor.MessageEnvelope).Sender = dead.Sender
	}
	to.(*shell).bury(message)
}

// bury answers a message that came to an actor which is gone.
func (r *Runtime) bury(message any) {
	switch m := message.(type) {
	case *envelope:
		for _, it := range m.items {
			r.deliver(it, m.to.refusal(it))
		}
	case drain:
		close(m.done)
	case inquiry:
		m.answer <- TableStatus{Table: m.of}
	}
}

// fatal tells that a table's actor has ended by itself.
func (r *Runtime) fatal(err error) {
	r.opts.Logger.Error().Err(err).Msg("a table actor has ended")
	if r.opts.Fatal == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.Error().Interface("panic", p).Msg("panic in the callback for the end of a table actor")
		}
	}()
	r.opts.Fatal(err)
}
