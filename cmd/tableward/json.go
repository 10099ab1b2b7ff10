// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

type applyOutput struct {
	Schema   string       `json:"schema"`
	Command  string       `json:"command"`
	Backend  string       `json:"backend,omitempty"`
	OK       bool         `json:"ok"`
	DryRun   bool         `json:"dryRun,omitempty"`
	Answers  []jsonAnswer `json:"answers"`
	Refused  []jsonPlace  `json:"refused"`
	Findings []jsonPlace  `json:"findings,omitempty"`
	Tables   []jsonTable  `json:"tables"`
	Blocks   []dryBlock   `json:"blocks,omitempty"` // of a dry run
}

type jsonAnswer struct {
	ID     string          `json:"id"`
	Owner  string          `json:"owner"`
	IP     rules.IPVersion `json:"ip"`
	Table  string          `json:"table"`
	Kind   string          `json:"kind"`
	Result string          `json:"result"`
	Error  *jsonError      `json:"error,omitempty"`
}

// jsonError has the column in the rule.
type jsonError struct {
	Class  string   `json:"class"`
	Chain  string   `json:"chain,omitempty"`
	Rule   string   `json:"rule,omitempty"`
	File   string   `json:"file,omitempty"`
	Line   int      `json:"line,omitempty"`
	Column int      `json:"column,omitempty"`
	Reason string   `json:"reason"`
	With   []string `json:"with,omitempty"`
	// What to do, and a command that shows the refusal again.
	Advice  string `json:"advice,omitempty"`
	Command string `json:"command,omitempty"`
	Hook    string `json:"hook,omitempty"`   // from which the rule is not allowed
	Stderr  string `json:"stderr,omitempty"` // what the tool wrote
}

// jsonPlace is a place in a file. Line is 0 when the file could not be read.
type jsonPlace struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
}

type jsonTable struct {
	IP       rules.IPVersion `json:"ip"`
	Table    string          `json:"table"`
	Restores int             `json:"restores"`
	Reads    int             `json:"reads"`
	Probes   int             `json:"probes"`
	Batches  []jsonBatch     `json:"batches,omitempty"` // what was done, batch by batch
	Stubs    []string        `json:"stubs"`
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (r *applyRun) jsonOutput(code int) applyOutput {
	out := applyOutput{
		Schema: schema, Command: "apply", Backend: r.backend(), OK: code == exitOK, DryRun: r.flags.dryRun,
		Answers: []jsonAnswer{}, Refused: jsonRefused(r.set.refused), Tables: []jsonTable{},
	}
	for _, o := range r.outcomes {
		out.Answers = append(out.Answers, o.json())
	}
	for _, f := range r.set.files {
		for _, finding := range f.Findings {
			out.Findings = append(out.Findings, placeOf(f, finding))
		}
	}
	for _, t := range r.tables {
		stubs := t.stubs
		if stubs == nil {
			stubs = []string{}
		}
		out.Tables = append(out.Tables, jsonTable{
			IP: t.id.IPVersion, Table: t.id.Name, Restores: t.count.restores, Reads: t.count.reads, Probes: t.count.probes,
			Stubs: stubs, Batches: jsonBatches(t.count.batches),
		})
	}
	if r.dry != nil {
		out.Blocks = r.dry.inOrder()
	}
	return out
}

// backend returns the backend in use, "" where none could be opened.
func (r *applyRun) backend() string {
	if r.kernel == nil {
		return ""
	}
	return r.kernel.Info().Backend
}

func placeOf(f *rulefile.File, finding rulefile.Finding) jsonPlace {
	return jsonPlace{f.Name, finding.Line.Number, finding.Column, finding.Reason}
}

func jsonRefused(refused []*rulefile.Error) []jsonPlace {
	out := []jsonPlace{}
	for _, e := range refused {
		out = append(out, jsonPlace{e.File, e.Err.Line, e.Err.Column, e.Err.Reason})
	}
	return out
}

func (o outcome) json() jsonAnswer {
	a := jsonAnswer{
		ID: o.Message.ID, Owner: o.Message.Owner, IP: o.Message.Table.IPVersion, Table: o.Message.Table.Name,
		Kind: o.Answer.Kind, Result: o.Result.String(),
	}
	if o.Result == actors.Applied || o.Result == actors.Superseded {
		return a
	}
	a.Error = &jsonError{Class: o.Result.String(), File: o.file.Name, Reason: o.reason()}
	var te *transaction.Error
	if errors.As(o.Err, &te) {
		line, _ := o.Find(te.Chain, te.Rule, te.Column)
		a.Error.Chain, a.Error.Rule, a.Error.Column = te.Chain, te.Rule, te.Column
		a.Error.Line, a.Error.With = line.Number, te.With
		a.Error.Advice, a.Error.Command, a.Error.Hook = te.Advice, te.Command, te.Hook
		var re *dataplane.RestoreError
		if errors.As(te.Err, &re) {
			a.Error.Stderr = strings.ToValidUTF8(re.Stderr, "\uFFFD")
		}
	}
	return a
}

// reason is what people are told: without the names that stand beside it.
func (o outcome) reason() string {
	var te *transaction.Error
	if errors.As(o.Err, &te) {
		return te.Reason
	}
	switch err := o.Err.(type) {
	case nil:
		return ""
	case *dataplane.RestoreError: // unwrapped: what wraps one has more to say
		if err.Reason != "" {
			return err.Reason
		}
	}
	return o.Err.Error()
}
