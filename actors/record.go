// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// BatchRecord is what was done about one batch, and what came of it.
type BatchRecord struct {
	Table rules.TableID
	Begin time.Time
	Took  time.Duration
	// Messages are the ids of the batch's messages, in order.
	Messages []string
	// Cuts counts how often the batch was cut, so that parts of it came into the kernel one
	// after the other.
	Cuts     int
	Restores int // blocks sent to the live table
	Probes   int // blocks sent elsewhere
	Reads    int
	// Steps are the operations in order. They make a tree: each names the one whose failure
	// made it necessary.
	Steps []Step
	// Outcomes are what became of the messages that the batch decided, in the order of their
	// answers. One that has none waits, or is tried again.
	Outcomes []Outcome
}

// Step is one operation of a batch.
type Step struct {
	Kind     StepKind
	After    int // 1 and up: the step whose failure this one goes on from; 0: none
	Begin    time.Time
	Took     time.Duration
	Messages int   // of the part of the batch that it is about
	Lines    int   // of a restore's block
	Bytes    int   // of a restore's block
	Probes   int   // of a trial
	Err      error // nil: the kernel has taken it; of a trial: it could not be had
	Found    int   // of a trial: rules that are refused
}

// StepKind says what a Step did.
type StepKind string

// The kinds of steps.
const (
	StepRead    StepKind = "read"
	StepLook    StepKind = "look"    // looked at without a tool, wholly or in part
	StepCanon   StepKind = "canon"   // asked what the tool reads back
	StepTrial   StepKind = "trial"   // rules were tried away from the live table
	StepRestore StepKind = "restore" // a block was sent to the live table
	StepDelete  StepKind = "delete"  // likewise, best effort
)

// Outcome is what became of one message.
type Outcome struct {
	ID     string
	Owner  string
	Result Result
	Err    error
}

// begin notes the operation that a batch is about to wait for.
func (r *run) begin(now time.Time, op effect) {
	s := Step{Begin: now}
	if len(r.groups) > 0 {
		s.Messages = len(r.groups[0])
		for _, it := range r.groups[0] {
			s.After = max(s.After, it.step)
		}
	}
	switch op := op.(type) {
	case doRead:
		s.Kind = StepRead
		r.record.Reads++
	case doLook, doClose:
		s.Kind = StepLook
	case doCanon:
		s.Kind = StepCanon
	case doTry:
		s.Kind = StepTrial
	case doRestore:
		r.record.Restores++
		s.Kind, s.Bytes = StepRestore, len(op.input)
		for _, b := range op.input {
			if b == '\n' {
				s.Lines++
			}
		}
		if op.phase == phaseDelete {
			s.Kind = StepDelete
		}
	default:
		return
	}
	r.record.Steps = append(r.record.Steps, s)
	r.open = true
}

// done notes the end of that operation. Mail, which may come at any time, is none.
func (r *run) done(now time.Time, e event) {
	switch e.(type) {
	case readDone, canonDone, restoreDone, tryDone, lookDone, closeDone:
	default:
		return
	}
	if !r.open {
		return
	}
	r.open = false
	s := &r.record.Steps[len(r.record.Steps)-1]
	s.Took = now.Sub(s.Begin)
	switch e := e.(type) {
	case readDone:
		s.Err = e.err
	case lookDone:
		s.Err = e.err
	case closeDone:
		s.Err = e.err
	case tryDone:
		s.Err, s.Probes = e.err, e.trial.Probes
		r.record.Probes += e.trial.Probes
		for _, v := range e.trial.Verdicts {
			if v.Err != nil {
				s.Found++
			}
		}
	case restoreDone:
		if e.moved { // nothing was sent
			r.record.Restores--
			r.record.Steps = r.record.Steps[:len(r.record.Steps)-1]
			return
		}
		s.Err = e.err
		var re *dataplane.RestoreError
		if s.Kind == StepRestore && errors.As(e.err, &re) && len(r.groups) > 0 {
			for _, it := range r.groups[0] {
				it.step = len(r.record.Steps)
			}
		}
	}
}

// newRun makes the run of a batch.
func (c *core) newRun(batch []*item) *run {
	r := &run{groups: [][]*item{batch}, batch: batch}
	r.record = BatchRecord{Table: c.id, Begin: c.now, Messages: make([]string, len(batch))}
	for i, it := range batch {
		it.step = 0
		r.record.Messages[i] = it.msg.ID
	}
	return r
}

// noteOutcome adds an answer to the record.
func (r *run) noteOutcome(it *item, result Result, err error) {
	r.record.Outcomes = append(r.record.Outcomes, Outcome{it.msg.ID, it.msg.Owner, result, err})
}

// tellRecord appends the record of the batch that is over.
func (c *core) tellRecord(out []effect) []effect {
	r := c.run
	r.record.Took = c.now.Sub(r.record.Begin)
	return append(out, doRecord{r.record})
}
