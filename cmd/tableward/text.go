// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// explain tells people what went wrong, where, why, and what to do.
func (r *applyRun) explain() {
	for _, e := range r.set.refused {
		fmt.Fprintf(r.stderr, "refused: %v\n", e)
	}
	for _, f := range r.set.files {
		for _, finding := range f.Findings {
			fmt.Fprintf(r.stderr, "warning: %s\n", locateFinding(f, finding))
		}
	}
	told := map[string]bool{}
	for _, o := range r.outcomes {
		switch o.Result {
		case actors.Rejected, actors.Conflict:
			o.explain(r.stderr, "apply again")
		case actors.Unavailable:
			if reason := o.reason(); !told[o.Message.Table.String()+reason] {
				told[o.Message.Table.String()+reason] = true
				r.explainUnavailable(o, reason)
			}
		}
	}
}

func locateFinding(f *rulefile.File, finding rulefile.Finding) string {
	return rulefile.Locate(f.Name, &rules.SyntaxError{
		Line: finding.Line.Number, Column: finding.Column, Text: finding.Line.Text, Reason: finding.Reason,
	})
}

// explain shows the place of a rejected message's rule; again is how to send it once more.
func (o outcome) explain(w io.Writer, again string) {
	var te *transaction.Error
	if !errors.As(o.Err, &te) {
		fmt.Fprintf(w, "%s: %s: message %s: %v\n", o.Result, o.file.Name, o.Message.ID, o.Err)
		return
	}
	line, column := o.Find(te.Chain, te.Rule, te.Column)
	fmt.Fprintf(w, "%s: %s\n", o.Result, rulefile.Locate(o.file.Name, &rules.SyntaxError{
		Line: line.Number, Column: column, Text: line.Text, Reason: te.Reason,
	}))
	fmt.Fprintf(w, "  message %s of %s, chain %s of %s\n", o.Message.ID, ownerName(te.Owner), te.Chain, o.Message.Table)
	if te.Advice != "" {
		fmt.Fprintf(w, "  what to do: %s\n", te.Advice)
	}
	if te.Command != "" {
		fmt.Fprintf(w, "  to see it again: %s\n", te.Command)
	}
	if len(te.With) > 0 {
		fmt.Fprintf(w, "  it fails only together with %s: change one of them and %s\n", strings.Join(te.With, ", "), again)
		return
	}
	fmt.Fprintf(w, "  nothing of this message is in the kernel: correct the line and %s\n", again)
}

func (r *applyRun) explainUnavailable(o outcome, reason string) {
	fmt.Fprintf(r.stderr, "unavailable: table %s: %s\n", o.Message.Table, reason)
	switch {
	case isPermission(o.Err):
		fmt.Fprintf(r.stderr, "  %s\n", permissionAdvice(r.flags, r.backend(), o.Err))
	case errors.Is(o.Err, errTimeout):
		fmt.Fprintln(r.stderr, "  apply again, or give more time with --timeout")
	}
}

// printText prints a line for each message, the stubs and a summary. A dry run prints the
// restore input instead, and nothing else on stdout.
func (r *applyRun) printText(code int) error {
	w := bufio.NewWriter(r.stdout)
	if r.dry != nil {
		printBlocks(w, r.dry.inOrder())
		if err := w.Flush(); err != nil {
			return err
		}
		w = bufio.NewWriter(r.stderr)
	}
	for _, o := range r.outcomes {
		fmt.Fprintf(w, "%s %s %s %s (%s)", o.Result, o.Message.ID, o.Answer.Kind, o.subject(), o.Message.Table)
		if o.Err != nil {
			fmt.Fprintf(w, ": %s", o.reason())
		}
		fmt.Fprintln(w)
	}
	for _, t := range r.tables {
		for _, name := range t.stubs {
			fmt.Fprintf(w, "stub %s (%s): no file declares this chain; it %s\n", name, t.id, stubEffect(t.id))
		}
	}
	fmt.Fprintln(w, r.summary())
	return w.Flush()
}

func stubEffect(id rules.TableID) string {
	if id.Name == "nat" {
		return "returns, so what comes there is not translated"
	}
	return "drops what comes there"
}

// printBlocks prints what would be sent, exactly. Comments, which the tools skip, say the IP
// version where it is not 4 throughout.
func printBlocks(w io.Writer, blocks []dryBlock) {
	ip := rules.IPv4
	for _, b := range blocks {
		if b.IP != ip {
			fmt.Fprintf(w, "# ip: %d\n", b.IP)
			ip = b.IP
		}
		io.WriteString(w, b.Input)
	}
}

// subject is the chain that a message is about.
func (o outcome) subject() string {
	switch b := o.Body.(type) {
	case transaction.RewriteChains:
		return b.Chains[0].Name
	case transaction.DeleteChains:
		return b.Chains[0]
	case transaction.EditRules:
		return b.Chain
	case transaction.SetPolicy:
		return b.Chain + " " + b.Policy
	}
	return ""
}

// summary counts the answers and the refused files.
func (r *applyRun) summary() string {
	counts := map[actors.Result]int{}
	for _, o := range r.outcomes {
		counts[o.Result]++
	}
	s := plural(len(r.outcomes), "message")
	sep := ": "
	for _, result := range []actors.Result{actors.Applied, actors.Superseded, actors.Rejected, actors.Conflict, actors.Unavailable} {
		if counts[result] > 0 {
			s += fmt.Sprintf("%s%d %s", sep, counts[result], result)
			sep = ", "
		}
	}
	if n := len(r.set.refused); n > 0 {
		s += "; " + plural(n, "file") + " refused"
	}
	if r.dry != nil {
		s += " (dry run: nothing was written)"
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ownerName is an owner's name for people.
func ownerName(owner string) string {
	if owner == "" {
		return "no owner"
	}
	return owner
}
