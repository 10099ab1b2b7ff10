// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"slices"
	"strings"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// parseError is the exit status of a tool that refused text before it asked the kernel; the
// line that it names then is the line at fault.
const parseError = 2

// isolate goes on after the kernel refused a block; nothing of the block is in the kernel.
// The batch is taken apart until each message at fault has failed by itself. What was not
// in the block (superseded, or refused at plan time for want of something in another part)
// and what is only suspected is set aside and judged last, beside all that is in the kernel
// by then, in the order of the batch.
func (c *core) isolate() []effect {
	r := c.run
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	if r.last {
		return c.isolateLast()
	}
	suspect := c.suspect()
	open := c.open()
	var out []effect
	if len(open) <= 1 {
		for _, it := range open {
			out = c.conclude(out, it, Rejected, c.explain(it))
		}
		return append(out, c.nextGroup()...)
	}
	if suspect != nil && r.err.ExitCode == parseError {
		out = c.conclude(out, suspect, Rejected, c.explain(suspect))
	} else if suspect != nil {
		r.setAside(suspect, nil)
	}
	r.groups = append(takeApart(open, suspect), r.groups[1:]...)
	r.fresh, r.learned, r.refused = false, false, nil
	return append(out, c.attempt()...)
}

// takeApart says in which groups the messages of a refused block are tried next, without
// the suspect: as one block when there is a suspect, else in halves (binary chop). Halves
// are never merged with what comes after them.
func takeApart(open []*item, suspect *item) [][]*item {
	if suspect != nil {
		return [][]*item{slices.DeleteFunc(slices.Clone(open), func(it *item) bool { return it == suspect })}
	}
	half := len(open) / 2
	return [][]*item{open[:half:half], open[half:]}
}

// isolateLast takes the last group apart into single messages.
func (c *core) isolateLast() []effect {
	r := c.run
	var out []effect
	if r.single {
		for _, it := range r.groups[0] {
			if it.done {
				continue
			}
			why := r.why[it]
			if why == nil {
				why = c.explain(it)
			}
			out = c.conclude(out, it, Rejected, why)
		}
		return append(out, c.nextGroup()...)
	}
	r.single = true
	var singles [][]*item
	for _, it := range r.groups[0] {
		if !it.done {
			singles = append(singles, []*item{it})
		}
	}
	r.groups = singles
	r.fresh, r.learned, r.refused = false, false, nil
	return append(out, c.attempt()...)
}

// open returns what of a refused group is tried again; the rest waits, or is set aside.
func (c *core) open() []*item {
	r := c.run
	var open []*item
	for i, it := range r.groups[0] {
		switch r.outcomes[i].Result {
		case transaction.Applied:
			open = append(open, it)
		case transaction.Waiting:
			c.wait(it)
		default:
			r.setAside(it, errOf(r.outcomes[i]))
		}
	}
	return open
}

// errOf is the refusal of an outcome, as an error that is nil where there is none.
func errOf(o transaction.Outcome) error {
	if o.Err == nil {
		return nil
	}
	return o.Err
}

// wait puts an item among those that wait for their kernel chain.
func (c *core) wait(it *item) {
	c.waiting = append(c.waiting, it)
	c.run.seq = slices.DeleteFunc(slices.Clone(c.run.seq), func(o *item) bool { return o == it })
}

// suspect is the message of the line that the error names, when that line can be trusted.
func (c *core) suspect() *item {
	r := c.run
	if r.err.Class != dataplane.Rejected {
		return nil
	}
	index, _, ok := r.txn.Plan().Origin(r.err.Line)
	if !ok {
		return nil
	}
	for i, o := range r.outcomes { // the transaction holds the messages that are not refused, in order
		if o.Result != transaction.Applied && o.Result != transaction.Superseded {
			continue
		}
		if index == 0 {
			return r.groups[0][i]
		}
		index--
	}
	return nil
}

// explain turns the tool's words into an error about a message, its chain and its rule.
func (c *core) explain(it *item) *transaction.Error {
	re := c.run.err
	e := &transaction.Error{Table: c.id, ID: it.msg.ID, Owner: it.msg.Owner, Reason: re.Reason, Err: re}
	if e.Reason == "" {
		e.Reason = re.Error()
	}
	if _, line, ok := c.run.txn.Plan().Origin(re.Line); ok && re.Class == dataplane.Rejected {
		e.Chain, e.Rule = line.Chain, line.Rule.String()
		e.Column = columnOf(e.Rule, re.Reason)
	} else {
		e.Chain = firstChain(it.msg)
	}
	return e
}

// firstChain is the first chain that a message is about.
func firstChain(m transaction.Message) string {
	switch b := m.Body.(type) {
	case transaction.RewriteChains:
		if len(b.Chains) > 0 {
			return b.Chains[0].Name
		}
	case transaction.DeleteChains:
		if len(b.Chains) > 0 {
			return b.Chains[0]
		}
	case transaction.EditRules:
		return b.Chain
	case transaction.SetPolicy:
		return b.Chain
	case transaction.OverrideStub:
		return b.Chain
	}
	return ""
}

// columnOf returns the column, from 1, of the word of a rule that the tool's words quote, or
// 0. The tools write `word' or "word".
func columnOf(rule, reason string) int {
	words, err := rules.SplitWords(rule)
	if err != nil {
		return 0
	}
	for _, w := range words {
		for _, quoted := range []string{"`" + w.Text + "'", `"` + w.Text + `"`} {
			if w.Text != "" && strings.Contains(reason, quoted) {
				return w.Column
			}
		}
	}
	return 0
}

// onDelete goes on after a delete block. It is best effort: what cannot go stays, condemned
// or pinned, and is tried again at the next refresh.
func (c *core) onDelete(err error) []effect {
	r := c.run
	names := r.deletes[0]
	r.deletes = r.deletes[1:]
	var re *dataplane.RestoreError
	errors.As(err, &re)
	switch {
	case err == nil:
		c.state.Deleted(names...)
	case re != nil && (re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere):
		r.deletes = append(c.pin(names, re), r.deletes...)
	default:
		c.stale = c.stale || re == nil || re.Class == dataplane.Unknown
		r.deletes = nil
	}
	if len(r.deletes) > 0 {
		return []effect{c.sendDelete()}
	}
	return c.nextGroup()
}

// pin finds the chain that the kernel refused to delete; what is to be tried next is
// returned. The error's line is that of the chain's delete; without a line, halves.
func (c *core) pin(names []string, re *dataplane.RestoreError) [][]string {
	if len(names) == 1 {
		c.state.Pinned(names[0])
		return nil
	}
	b := transaction.DeleteBlock(c.id, names)
	if i := re.Line - 2; re.Class == dataplane.Rejected && i >= 0 && i < len(b.Lines) {
		name := b.Lines[i].Chain
		c.state.Pinned(name)
		return [][]string{slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })}
	}
	half := len(names) / 2
	return [][]string{names[:half], names[half:]}
}

func (c *core) sendDelete() effect {
	return doRestore{rules.AppendRestore(nil, transaction.DeleteBlock(c.id, c.run.deletes[0])), phaseDelete}
}
