// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"slices"
	"sync"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

// story gathers what happens. Its methods may be called by several goroutines.
type story struct {
	mu      sync.Mutex // guards all below
	events  map[rules.TableID][]actors.Event
	answers map[string][]actors.Answer // by message id
	open    map[string]int             // messages without an answer, by owner
	changed chan struct{}              // closed, and replaced, when an answer comes
}

func newStory(features []*feature) *story {
	s := &story{
		events: map[rules.TableID][]actors.Event{}, answers: map[string][]actors.Answer{}, open: map[string]int{},
		changed: make(chan struct{}),
	}
	for _, f := range features {
		for _, m := range f.messages {
			s.answers[m.ID] = nil
		}
	}
	return s
}

// take is the runtime's Observe.
func (s *story) take(e actors.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[e.Table] = append(s.events[e.Table], e)
}

// answered is the runtime's OnAnswer: the messages that are only told.
func (s *story) answered(a actors.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[a.ID] = append(s.answers[a.ID], a)
	s.open[a.Owner]--
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *story) sent(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[owner]++
}

// insync notes the answer to a message that went to all tables.
func (s *story) insync(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[id] = append(s.answers[id], actors.Answer{ID: id, Result: actors.Applied})
}

// wait returns when the owner has all its answers.
func (s *story) wait(ctx context.Context, owner string) error {
	for {
		s.mu.Lock()
		n, changed := s.open[owner], s.changed
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tables are those in which something happened, in order.
func (s *story) tables() []rules.TableID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]rules.TableID, 0, len(s.events))
	for id := range s.events {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, rules.TableID.Compare)
	return ids
}
