// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
)

// jsonBatch is what was done about one batch of a table.
type jsonBatch struct {
	Messages []string      `json:"messages"`
	TookMs   float64       `json:"tookMs"`
	Cuts     int           `json:"cuts"`
	Restores int           `json:"restores"`
	Reads    int           `json:"reads"`
	Probes   int           `json:"probes"`
	Steps    []jsonStep    `json:"steps"`
	Outcomes []jsonOutcome `json:"outcomes"`
}

// jsonStep is one operation. After is the step, from 1, whose failure it goes on from, so that
// the steps make a tree.
type jsonStep struct {
	Kind     actors.StepKind `json:"kind"`
	After    int             `json:"after,omitempty"`
	TookMs   float64         `json:"tookMs"`
	Messages int             `json:"messages"`
	Lines    int             `json:"lines,omitempty"`
	Bytes    int             `json:"bytes,omitempty"`
	Probes   int             `json:"probes,omitempty"`
	Found    int             `json:"found,omitempty"` // rules that a trial refused
	Error    *jsonStepError  `json:"error,omitempty"`
}

type jsonStepError struct {
	Class  string `json:"class"`
	Line   int    `json:"line,omitempty"`
	Text   string `json:"text,omitempty"`
	Exit   int    `json:"exit,omitempty"`
	Reason string `json:"reason"`
}

// jsonOutcome is what became of a message in this batch.
type jsonOutcome struct {
	ID     string `json:"id"`
	Result string `json:"result"`
}

func jsonBatches(records []actors.BatchRecord) []jsonBatch {
	var out []jsonBatch
	for _, r := range records {
		b := jsonBatch{
			Messages: r.Messages, TookMs: ms(r.Took), Cuts: r.Cuts, Restores: r.Restores, Reads: r.Reads, Probes: r.Probes,
			Steps: []jsonStep{}, Outcomes: []jsonOutcome{},
		}
		for _, s := range r.Steps {
			b.Steps = append(b.Steps, jsonStep{
				Kind: s.Kind, After: s.After, TookMs: ms(s.Took), Messages: s.Messages, Lines: s.Lines, Bytes: s.Bytes,
				Probes: s.Probes, Found: s.Found, Error: stepError(s.Err),
			})
		}
		for _, o := range r.Outcomes {
			b.Outcomes = append(b.Outcomes, jsonOutcome{o.ID, o.Result.String()})
		}
		out = append(out, b)
	}
	return out
}

func stepError(err error) *jsonStepError {
	var re *dataplane.RestoreError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &re):
		return &jsonStepError{re.Class.String(), re.Line, re.Text, re.ExitCode, re.Reason}
	}
	return &jsonStepError{Class: "other", Reason: err.Error()}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
