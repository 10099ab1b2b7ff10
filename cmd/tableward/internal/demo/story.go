// SPDX-License-Identifier: Apache-2.0

package demo

import (
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
}

func newStory(features []*feature) *story {
	s := &story{events: map[rules.TableID][]actors.Event{}, answers: map[string][]actors.Answer{}}
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

// answered notes an answer that a feature has got.
func (s *story) answered(a actors.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[a.ID] = append(s.answers[a.ID], a)
}

// insync notes the answer to a message that went to all tables.
func (s *story) insync(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[id] = append(s.answers[id], actors.Answer{ID: id, Result: actors.Applied})
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
