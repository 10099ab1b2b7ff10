// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

// parseError is the exit status of a tool that refused text before it asked the kernel; the
// line that it names then is the line at fault.
const parseError = 2

// isolate goes on after the kernel refused a block; nothing of the block is in the kernel.
// The batch is taken apart until each message at fault has failed by itself. What is set
// aside on the way is judged last, beside all that is in the kernel by then, in the order
// of the batch.
func (c *core) isolate() []effect {
	r := c.run
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	if broken := c.broken(); broken != nil {
		return c.retry(broken)
	}
	if r.last {
		return c.isolateLast()
	}
	if alone := r.undoneOf(r.groups[0]); len(alone) == 1 {
		return append(c.refuse(nil, alone[0]), c.nextGroup()...)
	}
	if suspect := c.suspect(); suspect != nil {
		return c.without(suspect)
	}
	open, out := c.open()
	if len(open) <= 1 {
		for _, it := range open {
			out = c.refuse(out, it)
		}
		return append(out, c.nextGroup()...)
	}
	r.partial = true
	half := len(open) / 2
	r.groups = append([][]*item{open[:half:half], open[half:]}, r.groups[1:]...)
	return c.retry(out)
}

// retry tries what the first group is now.
func (c *core) retry(out []effect) []effect {
	r := c.run
	r.fresh, r.learned, r.refused = false, false, nil
	return append(out, c.attempt()...)
}

// broken leaves undone what the kernel refused, when it was the repair of a chain or a rule
// that no message of the batch wrote: that is nobody's fault. Otherwise it returns nil.
func (c *core) broken() []effect {
	r := c.run
	line, ok := r.txn.Plan().Repair(r.err.Line)
	if !ok || r.err.Class != dataplane.Rejected {
		return nil
	}
	c.state.Broken(line)
	return []effect{doBroken{&transaction.Error{
		Table: c.id, Chain: line.Chain, Rule: line.Rule.String(), Column: columnOf(line.Rule.String(), r.err.Reason),
		Reason: r.err.Reason, Err: r.err,
	}}}
}

// without tries a group again without the message that the error's line came from. A line
// that the tool could not read is at fault for certain; of a refusal by the kernel it is
// only suspected and judged last, by itself.
func (c *core) without(suspect *item) []effect {
	r := c.run
	certain := r.err.ExitCode == parseError
	var out []effect
	if certain {
		out = c.refuse(out, suspect)
	} else {
		r.setAside(suspect, nil)
	}
	rest := make([]*item, 0, len(r.groups[0]))
	for _, it := range r.groups[0] {
		switch {
		case it == suspect:
		case !certain && it.msg.Owner == suspect.msg.Owner && closes(it.msg):
			r.setAside(it, nil)
		default:
			rest = append(rest, it)
		}
	}
	r.groups[0] = rest
	return c.retry(out)
}

// closes tells whether a message shuts a door that other messages of its owner open first.
func closes(m transaction.Message) bool {
	b, ok := m.Body.(transaction.SetPolicy)
	return ok && b.Policy == "DROP"
}

// refuse concludes an item that the kernel does not take.
func (c *core) refuse(out []effect, it *item) []effect {
	c.run.gone = append(c.run.gone, it.msg)
	switch it.msg.Body.(type) {
	case transaction.EndGrace, transaction.InSync:
		// Nobody sends it again, and grace must not stay open for ever.
		c.retries = append(c.retries, &item{msg: it.msg, seq: it.seq, answered: true})
	}
	return c.conclude(out, it, Rejected, c.explain(it))
}

// judgeLast sets the undone messages of a group aside, one of which stands in the way of a
// message that is in the kernel; the last group is taken apart.
func (c *core) judgeLast() []effect {
	r := c.run
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	if r.last {
		return c.isolateLast()
	}
	for i, it := range r.groups[0] {
		if !it.done {
			r.setAside(it, errOf(r.outcomes[i]))
		}
	}
	r.groups[0] = nil
	return c.attempt()
}

// isolateLast takes the last group apart into single messages.
func (c *core) isolateLast() []effect {
	r := c.run
	var out []effect
	if r.single || len(r.undoneOf(r.groups[0])) == 1 {
		for _, it := range r.groups[0] {
			if it.done {
				continue
			}
			if why := r.why[it]; why != nil {
				out = c.conclude(out, it, Rejected, why)
			} else {
				out = c.refuse(out, it)
			}
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
	return c.retry(out)
}

// open returns what of a refused group is tried again in halves; the rest waits, or is set
// aside: superseded messages were not in the block; messages refused at plan time may be
// good beside what is in the other half; a policy DROP waits for all that its owner sends.
func (c *core) open() (open []*item, out []effect) {
	r := c.run
	for i, it := range r.groups[0] {
		switch o := r.outcomes[i]; {
		case o.Result == transaction.Applied && closes(it.msg):
			r.setAside(it, nil)
		case o.Result == transaction.Applied:
			open = append(open, it)
		case o.Result == transaction.Waiting:
			out = c.wait(out, it, o)
		default:
			r.setAside(it, errOf(o))
		}
	}
	return open, out
}

// errOf is the refusal of an outcome, as an error that is nil where there is none.
func errOf(o transaction.Outcome) error {
	if o.Err == nil {
		return nil
	}
	return o.Err
}

// wait puts an item among those that wait for their kernel chain, and says so the first time.
func (c *core) wait(out []effect, it *item, o transaction.Outcome) []effect {
	if o.Remaining != nil {
		it.msg = *o.Remaining
	}
	if !it.waits {
		out = append(out, doWait{it})
	}
	it.waits = true
	c.waiting = append(c.waiting, it)
	c.run.seq = slices.DeleteFunc(slices.Clone(c.run.seq), func(o *item) bool { return o == it })
	return out
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
	if it := r.groups[0][r.txn.Source(index)]; !it.done {
		return it
	}
	return nil
}
