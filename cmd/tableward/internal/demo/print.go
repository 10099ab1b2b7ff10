// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// printer writes the story for people.
type printer struct {
	*bufio.Writer
	what map[string]string // what each message asks for, by id

	sent, refused int
	results       map[actors.Result]int
}

func (d *Demo) print(ctx context.Context, features []*feature, s *story) error {
	p := &printer{Writer: bufio.NewWriter(d.Out), what: map[string]string{}, results: map[actors.Result]int{}}
	fmt.Fprintf(p, "Running on %s.\n\nThe features, each an actor, which send at once:\n", d.Where)
	for _, f := range features {
		fmt.Fprintln(p, f.title())
		for _, m := range f.messages {
			p.what[m.ID] = describe(m.Body)
		}
	}
	ids := s.tables()
	for _, id := range ids {
		fmt.Fprintf(p, "\nWhat happened in table %s, IPv%d:\n", id.Name, id.IPVersion)
		for _, b := range blocks(s.events[id]) {
			p.block(b)
		}
	}
	for _, id := range ids {
		fmt.Fprintf(p, "\nTable %s, IPv%d, in the end:\n", id.Name, id.IPVersion)
		snap, err := d.Kernel.Read(ctx, id)
		if err != nil {
			return err
		}
		save(p, snap)
	}
	err := p.sum(features, s)
	return errors.Join(err, p.Flush())
}

// block prints one try and its answers.
func (p *printer) block(b block) {
	switch {
	case b.input != nil && b.err != nil:
		p.sent++
		p.refused++
		fmt.Fprintf(p, " block of %d lines, refused as a whole: %s\n", commands(b.input), reason(b.err))
	case b.input != nil:
		p.sent++
		of := ""
		if n := len(b.answers); n > 0 {
			of = fmt.Sprintf(" with %s of %s", count(n, "message"), strings.Join(b.owners(), ", "))
		}
		fmt.Fprintf(p, " block of %d lines%s, taken\n", commands(b.input), of)
		names, verdicts := stubs(b.input)
		for i, name := range names {
			fmt.Fprintf(p, "   %-10s  %s: is jumped to, nobody has sent it yet; until then: %s\n", "stub", name, verdicts[i])
		}
	default:
		fmt.Fprintf(p, " nothing to write\n")
	}
	for _, a := range b.answers {
		p.answer(a)
	}
	p.sent += b.deletes
	for _, name := range b.deleted {
		fmt.Fprintf(p, "   %-10s  %s\n", "deleted", name)
	}
}

func (p *printer) answer(a actors.Answer) {
	name := a.ID
	if a.Owner == "" {
		name = "demo"
	}
	what := p.what[a.ID]
	if what == "" {
		what = a.Kind
	}
	fmt.Fprintf(p, "   %-10s  %-13s  %s\n", a.Result, name, what)
	var te *transaction.Error
	if errors.As(a.Err, &te) {
		fmt.Fprintf(p, "   %-10s  %-13s  rule %s\n   %-10s  %-13s  %s\n", "", "", te.Rule, "", "", te.Reason)
	} else if a.Err != nil {
		fmt.Fprintf(p, "   %-10s  %-13s  %v\n", "", "", a.Err)
	}
}

// sum counts, and finds a message that has not exactly one answer.
func (p *printer) sum(features []*feature, s *story) error {
	var errs []error
	total := 0
	for _, f := range features {
		for _, m := range f.messages {
			total++
			if n := len(s.answers[m.ID]); n != 1 {
				errs = append(errs, fmt.Errorf("message %s has %d answers", m.ID, n))
				continue
			}
			p.results[s.answers[m.ID][0].Result]++
		}
	}
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(p.results)) {
		parts = append(parts, fmt.Sprintf("%d %s", p.results[r], r))
	}
	fmt.Fprintf(p, "\n%s of %s: %s; %s sent, %d of them refused.\n",
		count(total, "message"), count(len(features), "feature"), strings.Join(parts, ", "), count(p.sent, "block"), p.refused)
	return errors.Join(errs...)
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// reason is what the tool said, on one line.
func reason(err error) string {
	var re *dataplane.RestoreError
	if !errors.As(err, &re) || re.Reason == "" {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	if re.Line == 0 {
		return re.Reason
	}
	return fmt.Sprintf("line %d: %s", re.Line, re.Reason)
}

// describe says what a message asks for.
func describe(b transaction.Body) string {
	switch b := b.(type) {
	case transaction.RewriteChains:
		var names []string
		for _, c := range b.Chains {
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, count(len(c.Rules), "rule")))
		}
		return "rewrite " + strings.Join(names, ", ")
	case transaction.DeleteChains:
		return "delete " + strings.Join(b.Chains, ", ")
	case transaction.EditRules:
		var rs []string
		for _, e := range b.Edits {
			rs = append(rs, e.Rule.String())
		}
		return b.Kind() + " in " + b.Chain + ": " + strings.Join(rs, "; ")
	}
	return b.Kind()
}

// save prints a table as iptables-save does, without counters.
func save(w io.Writer, snap rules.Snapshot) {
	builtin := rules.BuiltinChains(snap.Table.Name)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(snap.Chains)), func(n string) bool { return slices.Contains(builtin, n) })
	names = append(slices.Clone(builtin), names...)
	fmt.Fprintf(w, "  *%s\n", snap.Table.Name)
	for _, name := range names {
		policy := snap.Chains[name].Policy
		if policy == "" {
			policy = "-"
		}
		fmt.Fprintf(w, "  :%s %s\n", name, policy)
	}
	for _, name := range names {
		for _, r := range snap.Chains[name].Rules {
			fmt.Fprintf(w, "  -A %s %s\n", name, r.Text)
		}
	}
	fmt.Fprintln(w, "  COMMIT")
}
