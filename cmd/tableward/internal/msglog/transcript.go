// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Transcript is what a replay saw, in order, and what the tables hold in the end.
type Transcript struct {
	Records []Record
	Final   map[string]string // save text by table, as "4/nat"
}

// Record is one line of a transcript: a read, a restore, a rest, or an answer.
type Record struct {
	At      time.Duration
	Table   rules.TableID // not of an answer
	Kind    actors.EventKind
	Restore string // the exact input
	ID      string // of the message answered
	Answer  actors.Result
	Drift   string // what somebody else has changed
	Err     error
}

func (t *Transcript) add(e actors.Event) {
	if e.Kind == actors.EventRepaired || e.Kind == actors.EventFought {
		return // the restore says it
	}
	r := Record{At: e.At, Kind: e.Kind, Table: e.Table, Restore: string(e.Input), Err: e.Err}
	if e.Answer != nil {
		r.Table = rules.TableID{}
		r.ID, r.Answer, r.Err = e.Answer.ID, e.Answer.Result, e.Answer.Err
	}
	if e.Drift != nil {
		r.Drift = e.Drift.String()
	}
	t.Records = append(t.Records, r)
}

// line is a record as JSON; the fields stand in the order in which they are written.
type line struct {
	At      string          `json:"at"`
	IP      rules.IPVersion `json:"ip,omitempty"`
	Table   string          `json:"table,omitempty"`
	Read    bool            `json:"read,omitempty"`
	Rest    bool            `json:"rest,omitempty"`
	Restore string          `json:"restore,omitempty"`
	Result  string          `json:"result,omitempty"`
	ID      string          `json:"id,omitempty"`
	Answer  string          `json:"answer,omitempty"`
	Waits   bool            `json:"waits,omitempty"`  // for its kernel chain
	Late    string          `json:"late,omitempty"`   // what became of a message that had been answered unavailable
	Drift   string          `json:"drift,omitempty"`  // what somebody else has changed
	Broken  *failure        `json:"broken,omitempty"` // a repair that the kernel refused and that is left undone
	Error   *failure        `json:"error,omitempty"`
}

// failure is an error as JSON: of an operation, or of an answer.
type failure struct {
	Class  string   `json:"class"`
	Chain  string   `json:"chain,omitempty"`
	Rule   string   `json:"rule,omitempty"`
	Line   int      `json:"line,omitempty"`
	Text   string   `json:"text,omitempty"`
	Column int      `json:"column,omitempty"`
	Exit   int      `json:"exit,omitempty"`
	Reason string   `json:"reason"`
	With   []string `json:"with,omitempty"`
}

// AppendJSON appends the transcript as JSON lines.
func (t *Transcript) AppendJSON(dst []byte) []byte {
	b := bytes.NewBuffer(dst)
	out := json.NewEncoder(b)
	out.SetEscapeHTML(false)
	for _, r := range t.Records {
		_ = out.Encode(r.line()) // nothing in it can fail, and neither can the buffer
	}
	_ = out.Encode(map[string]map[string]string{"final": t.Final})
	return b.Bytes()
}

func (r *Record) line() line {
	l := line{At: r.At.String(), IP: r.Table.IPVersion, Table: r.Table.Name}
	switch r.Kind {
	case actors.EventRead:
		l.Read = true
	case actors.EventWait:
		l.Rest = true
	case actors.EventWaits:
		return line{At: l.At, ID: r.ID, Waits: true}
	case actors.EventDrift:
		l.Drift = r.Drift
	case actors.EventBroken:
		l.Broken = brokenFailure(r.Err)
		return l
	case actors.EventRestore:
		l.Restore = r.Restore
		if r.Err == nil {
			l.Result = "ok"
		}
	case actors.EventAnswer:
		l.ID, l.Answer = r.ID, r.Answer.String()
		l.Error = r.answerFailure()
		return l
	case actors.EventLate:
		l.ID, l.Late = r.ID, r.Answer.String()
		l.Error = r.answerFailure()
		return l
	}
	l.Error = operationFailure(r.Err)
	return l
}

func brokenFailure(err error) *failure {
	f := &failure{Class: "rejected", Reason: err.Error()}
	var te *transaction.Error
	if errors.As(err, &te) {
		f.Chain, f.Rule, f.Column, f.Reason = te.Chain, te.Rule, te.Column, te.Reason
	}
	return f
}

func operationFailure(err error) *failure {
	if err == nil {
		return nil
	}
	var re *dataplane.RestoreError
	if !errors.As(err, &re) {
		return &failure{Class: "unknown", Reason: err.Error()}
	}
	f := &failure{Class: re.Class.String(), Line: re.Line, Text: re.Text, Exit: re.ExitCode, Reason: re.Reason}
	if f.Reason == "" {
		f.Reason = re.Error()
	}
	return f
}

// answerFailure says why a message is not applied; its class is the answer's word.
func (r *Record) answerFailure() *failure {
	if r.Err == nil {
		return nil
	}
	f := &failure{Class: r.Answer.String(), Reason: r.Err.Error()}
	var te *transaction.Error
	var re *dataplane.RestoreError
	switch {
	case errors.As(r.Err, &te):
		f.Chain, f.Rule, f.Column, f.Reason, f.With = te.Chain, te.Rule, te.Column, te.Reason, te.With
	case errors.As(r.Err, &re) && re.Reason != "":
		f.Reason = re.Reason
	}
	return f
}
