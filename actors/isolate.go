// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"
	"strings"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// parseError is the exit status of a tool that refused text before it asked the kernel; the
// line that it names then is the line at fault.
const parseError = 2

// mayBeStale tells whether a refusal may come of a kernel that is not what we believe:
// somebody may have deleted what a message jumps to. What a parser says of an option or a
// value is true whatever the table holds; of a set, too.
func mayBeStale(re *dataplane.RestoreError) bool {
	return re.ExitCode != parseError || re.Class != dataplane.Rejected ||
		strings.Contains(re.Reason, "Couldn't load target") ||
		strings.Contains(re.Reason, "exist") && !strings.HasPrefix(re.Reason, "Set ")
}

// isolate goes on after the kernel refused a block; nothing of the block is in the kernel.
// The batch is taken apart until each message at fault has failed by itself, cheapest first:
// by the error's line, once; by a search away from the live table; and where none can be had,
// by the line as often as there is one, then by halves on the live table. What is set aside
// on the way is judged last, beside all that is in the kernel by then, in the order of the
// batch.
func (c *core) isolate() []effect {
	r := c.run
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	if broken := c.broken(r.err.Line, r.err.Reason); broken != nil && r.err.Class == dataplane.Rejected {
		return c.retry(broken)
	}
	if r.last {
		return c.isolateLast()
	}
	byLine := !r.byLine || r.searched || !c.trier
	if suspect := c.suspect(r.err.Line); suspect != nil && r.err.ExitCode == parseError && byLine {
		r.byLine = true
		return c.retry(c.without(suspect))
	}
	if c.trier && byLine && r.err.Apart() {
		if out := c.withoutAll(); out != nil {
			r.byLine = true
			return c.retry(out)
		}
	}
	switch {
	case c.trier && !r.searched:
		return c.search()
	case !c.trier && c.mayResend():
		return c.resend()
	}
	return c.isolateLive()
}

// mayResend tells whether a refusal may be of a moment: a legacy tool names its COMMIT line
// and says no more when somebody who does not share the lock wrote at the same time.
func (c *core) mayResend() bool {
	r := c.run
	return !r.resent && r.err.ExitCode == 1 && r.err.Class == dataplane.RejectedSomewhere && strings.HasPrefix(r.err.Reason, "line ")
}

// resend gives the live table the same block once more.
func (c *core) resend() []effect {
	r := c.run
	r.resent = true
	return []effect{doRestore{r.sent, phaseModify, r.txn.Plan().Frees, c.pulseFor(r.txn.Plan())}}
}

// isolateLive takes a refused group apart on the live table.
func (c *core) isolateLive() []effect {
	r := c.run
	if out := c.breakRepairs(); out != nil {
		return c.retry(out)
	}
	if alone := r.undoneOf(r.groups[0]); len(alone) == 1 {
		return append(c.refuse(nil, alone[0]), c.nextGroup()...)
	}
	if suspect := c.suspect(r.err.Line); suspect != nil {
		return c.retry(c.without(suspect))
	}
	return c.halve()
}

// halve tries a group in two halves, each by itself.
func (c *core) halve() []effect {
	r := c.run
	open, out := c.open()
	if len(open) == 1 && len(r.undoneOf(r.groups[0])) > 1 {
		r.groups[0] = open // it may be what was set aside
		return c.retry(out)
	}
	if len(open) <= 1 {
		for _, it := range open {
			out = c.refuse(out, it)
		}
		return append(out, c.nextGroup()...)
	}
	r.partial = true
	r.record.Cuts++
	half := len(open) / 2
	r.groups = append([][]*item{open[:half:half], open[half:]}, r.groups[1:]...)
	return c.retry(out)
}

// tooLarge remembers what this environment does not take in one block, and tries the batch in
// parts.
func (c *core) tooLarge(re *dataplane.RestoreError) []effect {
	r := c.run
	r.err = re
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	if r.last {
		return c.isolateLast()
	}
	size := 0
	for _, it := range r.groups[0] {
		size += it.msg.Size()
	}
	if half := size / 2; half > 0 && (c.mail.limits.Bytes == 0 || half < c.mail.limits.Bytes) {
		c.mail.limits.Bytes = half
	}
	return c.halve()
}

// retry tries what the first group is now.
func (c *core) retry(out []effect) []effect {
	r := c.run
	r.fresh, r.learned, r.refused = false, false, nil
	return append(out, c.attempt()...)
}

// broken leaves undone what the kernel refused, when it was the repair of a chain or a rule
// that no message of the batch wrote: that is nobody's fault. Otherwise it returns nil. A jump
// is believed at fault only beside a single message: what is refused may be a rule of another
// one, which the jump makes reachable.
func (c *core) broken(n int, reason string) []effect {
	r := c.run
	line, ok := r.txn.Plan().Repair(n)
	if !ok || line.Rule.Jump() != "" && r.err.ExitCode != parseError && len(r.undoneOf(r.groups[0])) > 1 {
		return nil
	}
	return c.breakLine(line, reason, c.run.err)
}

// breakLine: see broken.
func (c *core) breakLine(line rules.Line, reason string, err error) []effect {
	c.state.Broken(line)
	return []effect{doBroken{&transaction.Error{
		Table: c.id, Chain: line.Chain, Rule: line.Rule.String(), Column: columnOf(line.Rule.String(), reason),
		Reason: reason, Err: err,
	}}}
}

// without takes the message that the error's line came from out of its group. A line that the
// tool could not read is at fault for certain; of a refusal by the kernel it is only
// suspected and judged last, by itself.
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
	return out
}

// withoutAll takes out what all the lines of an error came from, since they stand apart: each
// is at fault. It returns nil when one of them leads nowhere.
func (c *core) withoutAll() []effect {
	r := c.run
	var out []effect
	bad := map[*item]bool{}
	all := r.err
	for _, l := range all.Lines {
		if _, line, ok := r.txn.Plan().Origin(l.Line); ok && line.Rule.Jump() != "" {
			r.err = all
			return nil // what is refused may be a rule that the jump makes reachable
		}
		one := *all
		one.Line, one.Text, one.Reason = l.Line, l.Text, l.Reason
		r.err = &one
		if broken := c.broken(l.Line, l.Reason); broken != nil {
			out = append(out, broken...)
		} else if it := c.suspect(l.Line); it != nil && !bad[it] {
			bad[it] = true
			out = c.refuse(out, it)
		}
	}
	r.err = all
	if out == nil {
		return nil
	}
	r.groups[0] = slices.DeleteFunc(slices.Clone(r.groups[0]), func(it *item) bool { return bad[it] })
	return out
}

// closes tells whether a message shuts a door that other messages of its owner open first.
func closes(m transaction.Message) bool {
	b, ok := m.Body.(transaction.SetPolicy)
	return ok && b.Policy == "DROP"
}

// deletes tells whether a message takes chains away.
func deletes(m transaction.Message) bool {
	_, ok := m.Body.(transaction.DeleteChains)
	return ok
}

// refuse concludes an item that the kernel does not take.
func (c *core) refuse(out []effect, it *item) []effect {
	return c.refuseFor(out, it, c.explain(it))
}

func (c *core) refuseFor(out []effect, it *item, why error) []effect {
	c.run.gone = append(c.run.gone, it.msg)
	switch it.msg.Body.(type) {
	case transaction.EndGrace, transaction.InSync:
		// Nobody sends it again, and grace must not stay open for ever.
		c.retries = append(c.retries, &item{msg: it.msg, seq: it.seq, answered: true})
	}
	return c.conclude(out, it, Rejected, why)
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
	if out := c.breakRepairs(); out != nil {
		return c.retry(out)
	}
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
// good beside what is in the other half; a policy DROP waits for all that its owner sends, and
// a delete for who may stop jumping to the chain, which would lead into a stub till then.
func (c *core) open() (open []*item, out []effect) {
	r := c.run
	for i, it := range r.groups[0] {
		switch o := r.outcomes[i]; {
		case o.Result == transaction.Applied && (closes(it.msg) || deletes(it.msg)):
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

// suspect is the message that a line of the block came from, when the error's line can be
// trusted.
func (c *core) suspect(line int) *item {
	r := c.run
	if r.err.Class != dataplane.Rejected {
		return nil
	}
	index, _, ok := r.txn.Plan().Origin(line)
	if !ok {
		return nil
	}
	if it := r.groups[0][r.txn.Source(index)]; !it.done {
		return it
	}
	return nil
}

// breakRepairs goes on after a refresh by itself was refused, and neither a line nor a trial
// says because of what: half of what it brings back is left undone and told, down to one that
// is at fault. In a repair each chain stands alone: the rest is tried again, without those that
// were found.
func (c *core) breakRepairs() []effect {
	r := c.run
	alone := r.undoneOf(r.groups[0])
	if len(alone) != 1 || !looksAround(alone[0].msg) {
		return nil
	}
	lines := r.txn.Repairs()
	switch {
	case len(lines) > 1:
		r.halved = true
	case len(lines) == 1:
		c.guilty = append(c.guilty, lines[0])
		r.rest = r.halved
	}
	var out []effect
	for _, l := range lines[len(lines)/2:] {
		out = append(out, c.breakLine(l, r.err.Reason, r.err)...)
	}
	return out
}
