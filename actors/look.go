// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// eyes is what a core knows of how it sees its table.
type eyes struct {
	able   bool   // the dataplane is a Scanner
	open   bool   // the table has been read once
	pulse  uint64 // as of which all that is believed is right; 0: none
	failed int    // scans that failed in a row
	edits  bool   // the tool can edit by index
	asked  bool   // which was asked
	took   time.Duration
	looked time.Time
	mend   bool // drift was found, and is to be repaired when the batch is over

	written   map[string]struct{} // chains that were written and not verified
	before    uint64              // the pulse before the first of them was; 0: not known
	verifying bool
	verified  time.Time

	expected map[string]expectation // that could not be compared yet, by chain

	changes  []dataplane.Change // told since the last look
	drifting map[string]Drift   // not repaired yet, by chain
}

// expectation is what a chain with these rules should look like. To find that out of
// thousands of chains takes seconds, and whoever writes meanwhile makes what was seen worthless,
// but not this.
type expectation struct {
	rules []rules.Rule
	saved rules.SavedChain
}

// keepExpected keeps what was found out for the next look.
func (c *core) keepExpected(e closeDone) {
	if !e.moved && e.err == nil {
		c.eyes.expected = nil
		return
	}
	for _, chain := range e.expect {
		if saved, known := e.look.Expected[chain.Name]; known {
			if c.eyes.expected == nil {
				c.eyes.expected = map[string]expectation{}
			}
			c.eyes.expected[chain.Name] = expectation{chain.Rules, saved}
		}
	}
}

// expected returns what is known of these chains already: of those that should hold the very
// same rules, which nobody changes once they are a chain's.
func (c *core) expected(chains []rules.Chain) map[string]rules.SavedChain {
	var known map[string]rules.SavedChain
	for _, chain := range chains {
		e, ok := c.eyes.expected[chain.Name]
		if !ok || len(e.rules) != len(chain.Rules) || len(e.rules) > 0 && &e.rules[0] != &chain.Rules[0] {
			continue
		}
		if known == nil {
			known = map[string]rules.SavedChain{}
		}
		known[chain.Name] = e.saved
	}
	return known
}

const (
	// mostLooks is how often a table is looked at that others change meanwhile, before the
	// slow way is taken.
	mostLooks = 3
	// mostUnverified is how long what was written may stay unverified while mail comes.
	mostUnverified = time.Second
	// mostChanges is how many writers are named.
	mostChanges = 16
)

// Drift is what others have changed of what is ours to keep.
type Drift struct {
	transaction.Drift
	// By names who may have done it, as far as the kernel says so: the writers since the table
	// was last seen to be right.
	By []string
	// Since is when the first of these writes was told, or when the drift was found.
	Since time.Time
	// Took is the time from Since until it was repaired; 0 before that.
	Took time.Duration
}

// String says what, and who.
func (d Drift) String() string {
	s := d.Drift.String()
	if len(d.By) > 0 {
		s += "; written by " + strings.Join(d.By, ", ")
	}
	return s
}

// look sees whether the table is what it is believed to be: by a scan, or by a read where that
// cannot be had.
func (c *core) look() []effect {
	if !c.eyes.able || !c.eyes.open {
		return []effect{doRead{}}
	}
	known := c.eyes.pulse
	if c.stale {
		known = 0
	}
	return []effect{doLook{known: known, first: !c.eyes.asked}}
}

func (c *core) onLook(e lookDone) []effect {
	r := c.run
	if r == nil {
		return nil
	}
	if e.op.first {
		c.eyes.edits, c.eyes.asked = e.edits, true
	}
	if e.err != nil {
		c.eyes.took, c.eyes.looked = max(c.eyes.took, e.took), c.now
		return c.scanFailed(e.err)
	}
	c.eyes.failed = 0
	if e.same {
		if slices.ContainsFunc(r.groups[0], func(it *item) bool { return looksAround(it.msg) }) {
			c.state.LookAgain()
		}
		c.eyes.changes = nil
		c.eyes.looked = c.now
		r.fresh, r.learned = true, false
		return c.attempt()
	}
	if e.op.chains == nil {
		c.eyes.took = e.took
	}
	doubts := c.state.Doubts(e.scan)
	if len(doubts.Expect)+len(doubts.Text) > 0 {
		return []effect{doClose{doubts, &e.scan, e.op.chains, c.expected(doubts.Expect)}}
	}
	return c.seen(transaction.Look{Scan: e.scan, Asked: e.op.chains})
}

func (c *core) onClose(e closeDone) []effect {
	c.keepExpected(e)
	r := c.run
	if r == nil {
		return nil
	}
	if e.err != nil {
		return c.scanFailed(e.err)
	}
	if e.moved {
		if r.looks++; r.looks < mostLooks {
			return []effect{doLook{chains: e.look.Asked}}
		}
		return c.tooBusy(errBusy)
	}
	return c.seen(e.look)
}

// scanFailed takes the slow way, for good when that is all that works.
func (c *core) scanFailed(err error) []effect {
	var re *dataplane.RestoreError
	if errors.As(err, &re) && re.Class == dataplane.Busy {
		return c.tooBusy(err)
	}
	if c.eyes.failed++; c.eyes.failed >= mostLooks {
		c.eyes.able = false
		c.state.Edits(false)
	}
	return []effect{doRead{}}
}

var errBusy = errors.New("others write to the table all the time: it cannot be looked at now")

// tooBusy goes on without a look at a table that never rests for long enough: a look at all of
// it is put off, and whole chains are right whatever stands there. The kernel chains that
// messages put rules into are looked at by themselves, which takes hardly any time; when that
// fails as well, the table is read.
func (c *core) tooBusy(err error) []effect {
	r := c.run
	var out []effect
	var rest []*item
	var names []string
	for _, it := range r.groups[0] {
		if looksAround(it.msg) && !it.done {
			out = c.conclude(out, it, Unavailable, err)
			continue
		}
		rest = append(rest, it)
		if b, ok := it.msg.Body.(transaction.EditRules); ok && needsRead(it) {
			names = append(names, b.Chain)
		}
	}
	r.groups[0] = rest
	r.learned, r.noEdits = false, true
	c.stale, c.eyes.pulse = false, 0
	switch {
	case len(names) == 0:
		r.fresh = true
		return append(out, c.attempt()...)
	case r.busy:
		return append(out, doRead{})
	}
	r.busy = true
	slices.Sort(names)
	names = slices.Compact(names)
	return append(out, doClose{doubts: transaction.Doubts{Text: names}, asked: names})
}

// seen goes on after the table, or what the plan is about, has been looked at.
func (c *core) seen(l transaction.Look) []effect {
	r := c.run
	drifts := c.state.Look(l)
	r.fresh, r.learned = true, false
	if l.Asked == nil {
		c.stale, c.eyes.pulse, c.eyes.looked = false, l.Scan.Pulse, c.now
		r.pulse, r.asked = 0, nil
	} else {
		r.pulse, r.asked = l.Scan.Pulse, l.Asked
	}
	out := c.tellDrifts(drifts)
	return append(out, c.attempt()...)
}

// lookAtPlan looks again at the chains that the plan changes by index: somebody has written.
// When that goes on, whole chains are written, which are right whatever stands there. A rule
// of ours in the middle of a kernel chain has no such way: it is put where it belonged when
// the chain was looked at last, and the next look tells if that was wrong.
func (c *core) lookAtPlan() []effect {
	r := c.run
	if r.moves++; r.moves > mostLooks {
		r.noEdits = true
	}
	return []effect{doLook{chains: r.txn.Plan().ByIndex()}}
}

// overtaken tells whether a block was refused because somebody changed a chain before the tool
// came to the lines that change it by index: that is nobody's fault.
func (c *core) overtaken(re *dataplane.RestoreError) bool {
	r := c.run
	plan := r.txn.Plan()
	if !c.eyes.able || !plan.Indexed || r.moves > mostLooks {
		return false
	}
	if i := re.Line - 2; i >= 0 && i < len(plan.Modify.Lines) {
		l := plan.Modify.Lines[i]
		return l.Command == rules.DeleteIndex || l.Index > 0 && strings.Contains(re.Reason, "Index of ")
	}
	return false
}

// quotedName is a name in the words of a tool: "Chain 'tw-a' does not exist", "Couldn't load
// target `tw-a'".
var quotedName = regexp.MustCompile("['`]([^'` ]+)'")

// takenAway tells whether a block was refused for want of a chain of ours that is believed to
// be there.
func (c *core) takenAway(re *dataplane.RestoreError) bool {
	for _, m := range quotedName.FindAllStringSubmatch(re.Reason, -1) {
		switch c.state.ContentOf(m[1]) {
		case transaction.Absent, transaction.Foreign:
		default:
			return true
		}
	}
	return false
}

// pulseFor is the pulse that the table must have for the plan to be right; 0 is any.
func (c *core) pulseFor(p *transaction.Plan) uint64 {
	r := c.run
	if !p.Indexed || !c.eyes.able || r.noEdits {
		return 0
	}
	const another = 1 // no pulse is 1: what the plan is about is looked at
	pulse := cmp.Or(r.pulse, c.eyes.pulse, another)
	for _, name := range p.ByIndex() {
		if r.pulse != 0 && slices.Contains(r.asked, name) {
			continue
		}
		_, unverified := c.eyes.written[name]
		if r.pulse != 0 || unverified && c.eyes.before != pulse {
			return another
		}
	}
	return pulse
}

// noteWritten remembers what is to be verified.
func (c *core) noteWritten(t *transaction.Txn, before uint64) {
	if !c.eyes.able {
		return
	}
	names := c.state.Written(t)
	if len(names) == 0 {
		return
	}
	if c.eyes.written == nil {
		c.eyes.written, c.eyes.before = map[string]struct{}{}, before
	}
	for _, name := range names {
		c.eyes.written[name] = struct{}{}
	}
}

// idle verifies what was written when there is nothing better to do, or when it has waited for
// long.
func (c *core) idle(out []effect) []effect {
	if c.busy() || len(c.eyes.written) == 0 || c.stopping {
		return out
	}
	if len(c.mail.queue) > 0 && c.now.Sub(c.eyes.verified) < mostUnverified {
		return out
	}
	names := slices.Sorted(maps.Keys(c.eyes.written))
	op := doVerify{chains: names, pulse: c.eyes.before, whole: c.state.Backend() != string(dataplane.Legacy)}
	op.doubts.Expect = c.state.Presumed(names)
	op.known = c.expected(op.doubts.Expect)
	for _, name := range names {
		if c.state.ContentOf(name) == transaction.Foreign {
			op.doubts.Text = append(op.doubts.Text, name)
		}
	}
	op.kernel = op.doubts.Text
	c.eyes.written, c.eyes.before, c.eyes.verifying = nil, 0, true
	return append(out, op)
}

func (c *core) onVerify(e verifyDone) []effect {
	c.eyes.verifying, c.eyes.verified = false, c.now
	if !e.trusted {
		c.keepExpected(e.closed)
	}
	switch {
	case e.closed.err != nil || e.closed.moved:
		return nil // the next look will tell
	case e.trusted:
		c.state.Verify(e.closed.look.Scan, e.op.chains)
		return nil
	}
	drifts := c.state.Look(e.closed.look)
	if e.kernel != nil {
		c.state.Verify(*e.kernel, e.op.kernel)
	}
	return c.tellDrifts(drifts)
}

// tellDrifts tells what others have changed and has it repaired.
func (c *core) tellDrifts(drifts []transaction.Drift) []effect {
	if len(drifts) == 0 {
		return nil
	}
	by, since := c.writers()
	var out []effect
	for _, d := range drifts {
		drift := Drift{Drift: d, By: by, Since: since}
		if c.eyes.drifting == nil {
			c.eyes.drifting = map[string]Drift{}
		}
		if was, still := c.eyes.drifting[d.Chain]; still {
			drift.Since = was.Since
		}
		c.eyes.drifting[d.Chain] = drift
		out = append(out, doDrift{drift})
	}
	c.eyes.mend = true
	if c.run == nil {
		c.mend()
	}
	return out
}

// mend has drift repaired that the batch which found it has not repaired.
func (c *core) mend() {
	if c.eyes.mend && c.eyes.able && len(c.eyes.drifting) > 0 {
		c.sendSelf("repair of drift")
	}
	c.eyes.mend = false
}

// writers names those who have written since the last look, and when the first did.
func (c *core) writers() (by []string, since time.Time) {
	since = c.now
	for _, change := range c.eyes.changes {
		if !change.At.IsZero() && change.At.Before(since) {
			since = change.At
		}
		name := change.Command
		if change.PID != 0 {
			name = fmt.Sprintf("%s (pid %d)", cmp.Or(name, "a process"), change.PID)
		}
		if name != "" && !slices.Contains(by, name) {
			by = append(by, name)
		}
	}
	c.eyes.changes = nil
	return by, since
}

// noteChange remembers who has written.
func (c *core) noteChange(change dataplane.Change) {
	if len(c.eyes.changes) < mostChanges {
		c.eyes.changes = append(c.eyes.changes, change)
	}
}

// repaired tells which drift is no more.
func (c *core) repaired(out []effect) []effect {
	for _, name := range slices.Sorted(maps.Keys(c.eyes.drifting)) {
		if !c.state.Dirty(name) {
			d := c.eyes.drifting[name]
			d.Took = c.now.Sub(d.Since)
			delete(c.eyes.drifting, name)
			out = append(out, doRepaired{d})
		}
	}
	return out
}
