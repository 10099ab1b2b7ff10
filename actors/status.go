// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"slices"
	"time"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// TableStatus is what is known of one table at one moment.
type TableStatus struct {
	Table         rules.TableID
	Pending       int           // messages that no batch has taken yet
	OldestPending time.Duration // how long the oldest of them has waited
	Waiting       int           // messages that wait for a kernel chain
	Parked        int           // messages that an absent environment stops
	Resting       bool          // in backoff
	Grace         bool          // grace is open
	Stubs         []string
	Condemned     []string
	Pinned        []string
	// MissingAnchors are rules of kernel chains that stand where they can, since what they are
	// to stand before or after is not there.
	MissingAnchors []transaction.MissingAnchor

	Messages uint64 // taken since the start
	Batches  uint64 // restores of modify blocks
	Restores uint64 // all blocks sent
	Reads    uint64
	Looks    uint64 // scans that were no more than a pulse included
	Drifts   uint64 // changes of others that were found
	Repaired uint64
	Trials   uint64 // times that rules were tried away from the live table
	Suspects int    // messages of a refused batch that have not been searched yet
	Answers  map[Result]uint64
}

// stats counts what a shell does.
type stats struct {
	messages, batches, restores, reads, trials uint64
	looks, drifts, repaired                    uint64
	answers                                    [Unavailable + 1]uint64
}

func (s *stats) count(a Answer) { s.answers[a.Result]++ }

func (s *stats) operation(op effect) {
	switch op := op.(type) {
	case doRead:
		s.reads++
	case doLook:
		s.looks++
	case doTry:
		s.trials++
	case doRestore:
		s.restores++
		if op.phase == phaseModify {
			s.batches++
		}
	}
}

func (s *shell) status() TableStatus {
	c := s.core
	depth, age := c.mail.depth(s.now())
	st := TableStatus{
		Table: c.id, Pending: depth, OldestPending: age, Waiting: len(c.waiting), Parked: len(c.parked), Resting: c.resting,
		Grace: c.state.Grace(), Stubs: c.state.Stubs(), Condemned: c.state.Condemned(), Pinned: c.state.PinnedChains(),
		MissingAnchors: c.state.MissingAnchors(),
		Messages:       s.stats.messages, Batches: s.stats.batches, Restores: s.stats.restores, Reads: s.stats.reads, Looks: s.stats.looks, Drifts: s.stats.drifts, Repaired: s.stats.repaired, Trials: s.stats.trials, Suspects: len(c.suspects),
		Answers: map[Result]uint64{},
	}
	for r, n := range s.stats.answers {
		if n > 0 {
			st.Answers[Result(r)] = n
		}
	}
	return st
}

// Status returns the status of every table that has an actor, 4 before 6, then by name. It
// does not wait for what is under way.
func (r *Runtime) Status(ctx context.Context) ([]TableStatus, error) {
	r.mu.RLock()
	if err := r.state.err(); err != nil {
		r.mu.RUnlock()
		return nil, err
	}
	answers := make(chan TableStatus, len(r.pids))
	n := len(r.pids)
	for id, pid := range r.pids {
		r.system.Root.Send(pid, inquiry{id, answers})
	}
	r.mu.RUnlock()
	out := make([]TableStatus, 0, n)
	for range n {
		select {
		case st := <-answers:
			out = append(out, st)
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
	slices.SortFunc(out, func(a, b TableStatus) int { return a.Table.Compare(b.Table) })
	return out, nil
}
