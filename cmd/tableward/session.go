// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// errTimeout is the reason of what has no answer when the time is over.
var errTimeout = errors.New("no answer within the timeout")

// session sends the messages of one command through a runtime of its own and gathers what
// comes of it.
type session struct {
	kernel kernel
	msgs   []*filed
	ids    []rules.TableID
	waits  map[answerKey]bool // what waits for a kernel chain, from the start
	dry    bool               // do not wait for kernel chains
	done   chan struct{}      // closed when all messages have their answers

	mu      sync.Mutex // guards what follows
	missing int        // messages without an answer
	answers map[answerKey]actors.Answer
	counts  map[rules.TableID]*tableCount
}

type answerKey struct {
	table rules.TableID
	id    string
}

// tableCount is what one table's actor did.
type tableCount struct {
	restores, reads, probes int

	batches   []actors.BatchRecord
	written   [][]byte      // blocks that the kernel took
	trouble   error         // why the last operation failed, if that was no message's fault
	unsettled int           // messages without an answer that need not wait for a chain
	settled   chan struct{} // closed when there are none
	waiting   int           // messages that wait for a kernel chain, from the start
}

// newSession prepares the sending of messages; absent tells of the chains that a message
// has to wait for.
func newSession(k kernel, msgs []*filed, absent func(*filed) bool) *session {
	s := &session{
		kernel: k, msgs: msgs, ids: tables(msgs),
		waits: map[answerKey]bool{}, done: make(chan struct{}), missing: len(msgs), answers: map[answerKey]actors.Answer{}, counts: map[rules.TableID]*tableCount{},
	}
	for _, id := range s.ids {
		s.counts[id] = &tableCount{settled: make(chan struct{})}
	}
	for _, m := range msgs {
		if absent(m) {
			s.counts[m.Table].waiting++
			s.waits[answerKey{m.Table, m.ID}] = true
		} else {
			s.counts[m.Table].unsettled++
		}
	}
	for _, c := range s.counts {
		if c.unsettled == 0 {
			close(c.settled)
		}
	}
	return s
}

// run sends the messages, all of one table as one piece, one table after the other. When
// ctx ends, what has no answer yet gets one from the runtime, which stops then.
func (s *session) run(ctx context.Context, prefixes []string, log zerolog.Logger) error {
	info := s.kernel.Info()
	rt, err := actors.New(s.kernel, actors.Options{
		Table: transaction.Config{
			Prefixes: prefixes, MaxDepth: info.MaxDepth, Backend: info.Kernel(), Extensions: info.Extensions,
		},
		Adjust:  func(cfg *transaction.Config) { cfg.OwnChains = s.declared(cfg.Table) },
		Observe: s.observe, OnBatch: s.onBatch, Logger: runtimeLog(log),
		Refresh: -1, // a command repairs nothing that it was not told to, and sweeps nothing
	})
	if err != nil {
		return err
	}
	rt.Start()
	for _, id := range s.ids {
		if ctx.Err() != nil {
			break
		}
		if err := rt.Tell(id, s.of(id)...); err != nil {
			_ = rt.Stop(ctx)
			return err
		}
		select {
		case <-s.counts[id].settled:
		case <-ctx.Done():
		}
	}
	if !s.dry {
		s.refreshUntil(ctx, rt)
	}
	_ = rt.Stop(ctx) // its error is that ctx has ended
	return nil
}

// refreshUntil waits for what is still missing, which is about kernel chains that do not
// exist: the tables are looked at again and again.
func (s *session) refreshUntil(ctx context.Context, rt *actors.Runtime) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-ctx.Done():
			return
		case <-again.C:
		}
		for _, id := range s.ids {
			if s.counts[id].waiting > 0 {
				_ = rt.Tell(id, transaction.Message{ID: "refresh", Body: transaction.Refresh{}})
			}
		}
	}
}

// declared returns the names of all chains that the messages rewrite.
func (s *session) declared(id rules.TableID) []string {
	var names []string
	for _, m := range s.msgs {
		if b, ok := m.Body.(transaction.RewriteChains); ok && m.Table == id {
			for _, c := range b.Chains {
				names = append(names, c.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *session) of(id rules.TableID) []transaction.Message {
	var out []transaction.Message
	for _, m := range s.msgs {
		if m.Table == id {
			out = append(out, m.Message.Message)
		}
	}
	return out
}

// observe is called by the runtime's goroutines.
func (s *session) observe(e actors.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[e.Table]
	switch e.Kind {
	case actors.EventRead:
		c.reads++
		c.trouble = e.Err
	case actors.EventRestore:
		c.restores++
		c.trouble = e.Err
		if e.Err == nil && !e.Delete {
			c.written = append(c.written, e.Input)
		}
	case actors.EventAnswer:
		s.settle(c, answerKey{e.Table, e.Answer.ID}, *e.Answer)
	}
}

// onBatch is called by the tables' actors.
func (s *session) onBatch(b actors.BatchRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[b.Table]
	c.probes += b.Probes
	c.batches = append(c.batches, b)
}

// settle notes an answer. The caller holds mu.
func (s *session) settle(c *tableCount, key answerKey, a actors.Answer) {
	if _, again := s.answers[key]; again || a.Kind == (transaction.Refresh{}).Kind() {
		return
	}
	s.answers[key] = a
	if s.missing--; s.missing == 0 {
		close(s.done)
	}
	if s.waits[key] {
		return
	}
	if c.unsettled--; c.unsettled == 0 {
		close(c.settled)
	}
}

// answer returns what became of a message; late says why answers are missing.
func (s *session) answer(m *filed, late error) actors.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[answerKey{m.Table, m.ID}]
	if !ok {
		a = actors.Answer{
			ID: m.ID, Owner: m.Owner, Table: m.Table, Kind: m.Body.Kind(), Result: actors.Unavailable, Err: actors.ErrStopped,
		}
	}
	if a.Result == actors.Unavailable && errors.Is(a.Err, actors.ErrStopped) {
		a.Err = s.whyMissing(m, late)
	}
	return a
}

// whyMissing is the reason of a message that got no answer but that of the end. The caller
// holds mu.
func (s *session) whyMissing(m *filed, late error) error {
	if late == nil {
		late = errDry // nothing else ends before all answers are there
	}
	switch trouble := s.counts[m.Table].trouble; {
	case s.waits[answerKey{m.Table, m.ID}]:
		return fmt.Errorf("%w: chain %s does not exist, and is not made since it is not ours", late, m.Head.Chain)
	case trouble != nil && !ended(trouble):
		return fmt.Errorf("%w: %w", late, trouble)
	}
	return late
}

// ended tells whether an operation failed because we ended it, which explains nothing. One
// that was waiting for a lock then says who has it.
func ended(err error) bool {
	var re *dataplane.RestoreError
	return errors.Is(err, context.Canceled) && !(errors.As(err, &re) && re.Class == dataplane.Busy)
}

// errDry is the reason of what a dry run does not wait for.
var errDry = errors.New("a dry run does not wait")

// lateReason says why a command ended before its answers came; nil when it did not.
func lateReason(ctx, parent context.Context, f *flags) error {
	switch {
	case parent.Err() != nil:
		return errors.New("interrupted")
	case ctx.Err() != nil:
		return fmt.Errorf("%w of %s", errTimeout, f.timeout)
	}
	return nil
}
