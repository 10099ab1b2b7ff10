// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tableward/tableward/actors"
)

// AppendText appends the transcript in the form for people: a line for each record, with
// restore input indented below it.
func (t *Transcript) AppendText(dst []byte) []byte {
	var b strings.Builder
	for _, r := range t.Records {
		r.text(&b)
	}
	for _, table := range slices.Sorted(maps.Keys(t.Final)) {
		b.WriteString("final " + table + "\n")
		indent(&b, t.Final[table])
	}
	return append(dst, b.String()...)
}

func (r *Record) text(b *strings.Builder) {
	l := r.line()
	b.WriteString(l.At + " ")
	switch r.Kind {
	case actors.EventRead:
		b.WriteString(r.Table.String() + " read")
	case actors.EventWait:
		b.WriteString(r.Table.String() + " rest")
	case actors.EventDrift:
		b.WriteString(r.Table.String() + " drift: " + l.Drift)
	case actors.EventBroken:
		b.WriteString(r.Table.String() + " broken")
		l.Error = l.Broken
	case actors.EventRestore:
		b.WriteString(r.Table.String() + " restore")
		if l.Error == nil {
			b.WriteString(" ok")
		}
	case actors.EventAnswer:
		b.WriteString("message " + quoted(r.ID) + " " + l.Answer)
	case actors.EventWaits:
		b.WriteString("message " + quoted(r.ID) + " waits for its chain")
	case actors.EventLate:
		b.WriteString("message " + quoted(r.ID) + " late " + l.Late)
	}
	if l.Error != nil {
		l.Error.text(b, r.Kind != actors.EventAnswer)
	}
	b.WriteByte('\n')
	if r.Kind == actors.EventRestore {
		indent(b, r.Restore)
	}
}

// text writes an error on the rest of the line.
func (f *failure) text(b *strings.Builder, withClass bool) {
	if withClass {
		b.WriteString(" " + f.Class)
	}
	if f.Line > 0 {
		fmt.Fprintf(b, " line %d", f.Line)
	}
	if f.Exit != 0 {
		fmt.Fprintf(b, " exit %d", f.Exit)
	}
	if f.Chain != "" {
		b.WriteString(" chain " + quoted(f.Chain))
	}
	if f.Rule != "" {
		b.WriteString(" rule " + strconv.Quote(f.Rule))
	}
	if f.Column > 0 {
		fmt.Fprintf(b, " column %d", f.Column)
	}
	if len(f.With) > 0 {
		b.WriteString(" with")
		for _, id := range f.With {
			b.WriteString(" " + quoted(id))
		}
	}
	b.WriteString(": " + oneLine(f.Reason))
}

// quoted returns a name as it is where that is plain to see, else quoted.
func quoted(name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || r == 0x7F }) {
		return strconv.Quote(name)
	}
	return name
}

// oneLine keeps what a tool or a user wrote from breaking the form.
func oneLine(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }) {
		q := strconv.Quote(s)
		return q[1 : len(q)-1]
	}
	return s
}

func indent(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
}
