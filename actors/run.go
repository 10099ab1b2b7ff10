// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"slices"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// run is one batch on its way through the kernel.
type run struct {
	batch   []*item   // as it was taken
	groups  [][]*item // what is still to be tried; the first is being tried
	seq     []*item   // all of the batch, in order, once it has been refused
	partial bool      // a group lacks something of the batch that is still undone

	// The try under way.
	fresh    bool     // the kernel has been read for it
	looks    int      // that somebody disturbed
	busy     bool     // the table never rests: only single chains are looked at
	halved   bool     // of a refresh a half of the repairs was left undone
	rest     bool     // and the other half has come in
	shakes   int      // refusals that were put down to somebody else
	unseen   []string // chains that were only scanned and whose rules have been asked for
	moves    int      // plans that somebody has overtaken
	noEdits  bool     // too many were: chains are written as a whole
	pulse    uint64   // as of which the chains asked for are right; 0: that of the whole table
	asked    []string
	learned  bool // what the tool reads back has been asked for
	txn      *transaction.Txn
	readBack bool // what was written is to be read back
	outcomes []transaction.Outcome
	sent     []byte
	err      *dataplane.RestoreError // why the kernel refused the block sent last
	refused  []byte                  // the block that the kernel refused before it was read again

	gone     []transaction.Message // refused by the kernel
	deletes  [][]string            // names that the delete block in flight and those after it delete
	why      map[*item]error
	deferred []*item // of a split batch: judged last, when all the rest is in
	last     bool    // the deferred ones are being tried, together
	single   bool    // and now one by one

	sliced    bool            // a first load has been looked for
	pieces    []piece         // of the block that is being sent, still to be sent after this one
	piece     piece           // that is being sent; without lines: the block as a whole
	before    uint64          // the pulse before the first of them
	slices    int             // parts of a first load that are still to come before the rest
	byLine    bool            // a line of an error has been believed once
	hunt      bool            // of suspects: they are tried before they are sent
	suspects  int             // so many
	resent    bool            // a refusal without a word has been asked for again
	searched  bool            // the batch has been searched away from the live table
	putOff    bool            // and the search did not get to all of it in time
	failed    map[string]bool // kinds that a rule was refused of
	trial     *trial          // what is being tried
	spent     time.Duration   // on trials
	narrowing *narrowing      // for what fails only together
	record    BatchRecord
	open      bool // the record's last step is under way
}

// split tells whether the batch has been taken apart.
func (r *run) split() bool { return r.seq != nil }

func messages(items []*item) []transaction.Message {
	out := make([]transaction.Message, len(items))
	for i, it := range items {
		out[i] = it.msg
	}
	return out
}

// attempt tries the first group: read if need be, plan, write.
func (c *core) attempt() []effect {
	r := c.run
	for len(r.groups) > 0 && len(r.groups[0]) == 0 {
		r.groups = r.groups[1:]
	}
	if len(r.groups) == 0 {
		return c.afterGroups()
	}
	if r.single {
		r.groups[0] = r.besideLanded(r.groups[0])
	}
	msgs := messages(r.groups[0])
	if !r.fresh && (c.stale || slices.ContainsFunc(r.groups[0], needsRead)) {
		return c.look()
	}
	if ask := c.askUnseen(msgs); ask != nil {
		return []effect{ask}
	}
	if !r.learned {
		if rs := c.state.Unlearned(msgs); len(rs) > 0 {
			return []effect{doCanon{rs}}
		}
	}
	c.state.Edits(c.eyes.able && c.eyes.edits && !r.noEdits)
	r.txn, r.outcomes = c.state.Propose(msgs, r.gone...)
	if r.unseats() {
		return c.judgeLast()
	}
	if try := c.nextTry(); try != nil {
		return try
	}
	return c.proposed()
}

// proposed writes what was planned, of which all has been tried that is to be.
func (c *core) proposed() []effect {
	r := c.run
	if c.slice() {
		return c.attempt()
	}
	plan := r.txn.Plan()
	if len(plan.Modify.Lines) == 0 {
		r.refused = nil
		return c.commit()
	}
	r.sent = rules.AppendRestore(nil, plan.Modify)
	if r.refused != nil && string(r.refused) == string(r.sent) {
		return c.isolate()
	}
	r.refused = nil
	if c.cutLong(plan) {
		return c.sendPiece()
	}
	return []effect{doRestore{r.sent, phaseModify, plan.Frees, c.pulseFor(plan)}}
}

// askUnseen returns what has the rules read of chains that were only scanned, when the batch is
// about them; nil when nothing is missing. A table is read as a whole when that did not help,
// and a rule would be placed among rules that are not known.
func (c *core) askUnseen(msgs []transaction.Message) effect {
	r := c.run
	names := c.state.Unseen(msgs)
	switch {
	case len(names) == 0 || !c.eyes.able:
		return nil
	case !slices.Equal(names, r.unseen):
		r.unseen = names
		return doClose{doubts: transaction.Doubts{Text: names}, asked: names}
	case slices.ContainsFunc(r.groups[0], func(it *item) bool {
		b, edits := it.msg.Body.(transaction.EditRules)
		return edits && !it.done && slices.Contains(names, b.Chain)
	}):
		return doRead{}
	}
	return nil
}

// needsRead tells whether a message can only be planned against what the kernel holds now:
// rules of kernel chains are placed among those of strangers. A message that waits for its
// kernel chain has no read made for it: it goes along with those of others.
func needsRead(it *item) bool {
	_, edits := it.msg.Body.(transaction.EditRules)
	return edits && !it.waits && !it.done || looksAround(it.msg)
}

func (c *core) onRead(e readDone) []effect {
	r := c.run
	if r == nil {
		return nil
	}
	if r.readBack {
		r.readBack = false
		if e.err != nil {
			return c.nextGroup()
		}
		c.state.LearnWritten(e.snap)
		out := c.tellDrifts(c.state.Observe(e.snap))
		return append(out, c.nextGroup()...)
	}
	if errors.Is(e.err, dataplane.ErrIncompatible) {
		return c.goBlind(e.err)
	}
	if e.err != nil {
		return c.trouble(e.err)
	}
	drifts := c.state.Observe(e.snap)
	c.eyes.pulse, c.eyes.open = 0, true
	c.eyes.edits, c.eyes.asked = e.edits, true
	if e.scan != nil {
		c.state.Digests(*e.scan)
		c.eyes.pulse = e.scan.Pulse
	}
	c.stale, r.fresh, r.learned = false, true, false
	r.pulse, r.asked = 0, nil
	out := c.tellDrifts(drifts)
	return append(out, c.attempt()...)
}

// goBlind goes on without a read of a table that holds something which its tool cannot show:
// whole chains of ours can be written all the same. What has to be placed among the rules of
// others, or is about the table as it is, cannot. The next batch tries to read again.
func (c *core) goBlind(err error) []effect {
	r := c.run
	r.fresh = true
	var out []effect
	var rest []*item
	for _, it := range r.groups[0] {
		switch {
		case it.done || !needsRead(it):
			rest = append(rest, it)
		case looksAround(it.msg):
			out = c.conclude(out, it, Unavailable, err)
		default:
			out = c.answer(out, it, Unavailable, err)
			it.parked = true
			c.parked = append(c.parked, it)
			r.seq = slices.DeleteFunc(slices.Clone(r.seq), func(o *item) bool { return o == it })
		}
	}
	r.groups[0] = rest
	return append(out, c.attempt()...)
}

func (c *core) onCanon(e canonDone) []effect {
	c.noCanon = e.canons == nil
	for i, r := range e.asked {
		var canon rules.Canon
		if e.canons != nil {
			canon = e.canons[i]
		}
		c.state.Learn(r.String(), canon)
	}
	if c.run == nil {
		return nil
	}
	c.run.learned = true
	return c.attempt()
}

func (c *core) onRestore(e restoreDone) []effect {
	r := c.run
	if r == nil {
		return nil
	}
	if len(r.deletes) > 0 {
		return c.onDelete(e.err)
	}
	if e.moved {
		return c.lookAtPlan()
	}
	if e.err == nil {
		c.backoff.Reset()
		if r.piece.from == 0 {
			r.before = e.pulse
		}
		if len(r.pieces) > 0 {
			return c.sendPiece()
		}
		r.piece = piece{}
		return c.committed(r.before)
	}
	e.err = c.pieceFailed(e.err)
	var re *dataplane.RestoreError
	refused := errors.As(e.err, &re) && (re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere)
	if !refused {
		if re == nil || re.Class == dataplane.Unknown {
			c.state.Unknown(r.txn)
			c.lookAgain()
		}
		return c.trouble(e.err)
	}
	if c.overtaken(re) {
		return c.lookAtPlan()
	}
	r.err = re
	// What was read may have been changed before the block was sent, or meanwhile.
	shaken := e.shaken || e.pulse != 0 && c.eyes.pulse != 0 && e.pulse != c.eyes.pulse
	taken := shaken && c.takenAway(re)
	if taken && r.shakes >= mostLooks {
		c.stale = true
		return c.rest() // somebody does that again and again: nobody is blamed for it
	}
	if shaken && r.shakes < mostLooks && (taken || re.Class == dataplane.Rejected || r.shakes == 0) {
		// Somebody has written meanwhile, and may have taken away what a message jumps to.
		// (On legacy a refusal without a line counts as such a change itself.)
		r.shakes++
		r.fresh, r.learned, r.refused = false, false, nil
		c.stale = true
		return c.look()
	}
	if r.refused == nil && !r.fresh && !r.split() && mayBeStale(re) {
		// The kernel may not be what we believe: somebody may have deleted what a message
		// jumps to. Nobody is blamed before that has been looked at.
		r.refused = r.sent
		c.stale = true
		return c.look()
	}
	return c.isolate()
}

// lookAgain has the next batch repair what the table shows then: a message of a block that
// the kernel has perhaps taken may be refused when it is tried again.
func (c *core) lookAgain() {
	if !slices.ContainsFunc(c.run.batch, func(it *item) bool { return it.internal }) {
		c.sendSelf("after an unknown outcome")
	}
}

// sendSelf puts a refresh into the mail that nobody waits for, unless there is one.
func (c *core) sendSelf(why string) {
	if slices.ContainsFunc(c.mail.queue, func(it *item) bool { return it.internal && it.answered && looksAround(it.msg) }) {
		return
	}
	refresh := &item{msg: transaction.Message{ID: why, Body: transaction.Refresh{}}, internal: true, answered: true}
	c.arrived++
	c.pieces++
	refresh.seq, refresh.piece, refresh.came = c.arrived, c.pieces, c.now
	c.mail.add(c.now, refresh)
}

// trouble is a failure that is no message's fault.
func (c *core) trouble(err error) []effect {
	var re *dataplane.RestoreError
	if !errors.As(err, &re) {
		c.stale = true
		return c.rest()
	}
	switch re.Class {
	case dataplane.Unavailable:
		c.stale = true
		return c.park(err)
	case dataplane.TooLarge:
		return c.tooLarge(re)
	case dataplane.Unknown:
		c.stale = true
		if re.CountersLost {
			return append([]effect{doLost{err}}, c.rest()...)
		}
	}
	return c.rest()
}

// park answers a batch that the environment has no place for, and keeps it as wished.
func (c *core) park(err error) []effect {
	var out []effect
	for _, it := range c.run.undone() {
		out = c.answer(out, it, Unavailable, err)
		if !looksAround(it.msg) {
			it.parked = true
			c.parked = append(c.parked, it)
		}
	}
	return c.end(out)
}

// committed goes on after the kernel has taken a block.
func (c *core) committed(before uint64) []effect {
	txn := c.run.txn
	out := c.commit()
	c.noteWritten(txn, before)
	return out
}

// commit takes over what the kernel has taken, answers, and goes on to the deletes.
func (c *core) commit() []effect {
	r := c.run
	c.state.Commit(r.txn)
	r.rest = r.rest || r.halved && len(r.txn.Plan().Modify.Lines) > 0
	r.readBack = c.noCanon && len(r.txn.Plan().Modify.Lines) > 0
	out := c.repaired(c.settle())
	if names := r.txn.Plan().Deletes(); len(names) > 0 {
		r.deletes = [][]string{names}
		return append(out, c.sendDelete())
	}
	return append(out, c.nextGroup()...)
}

// settle gives the answers of a group that is in the kernel, in order.
func (c *core) settle() []effect {
	r := c.run
	var out []effect
	for i, it := range r.groups[0] {
		switch o := r.outcomes[i]; o.Result {
		case transaction.Applied:
			it.landed = true
			out = c.conclude(out, it, Applied, nil)
		case transaction.Superseded:
			out = c.conclude(out, it, Superseded, nil)
		case transaction.Waiting:
			if !it.done {
				out = c.wait(out, it, o)
			}
		case transaction.Rejected, transaction.Conflict:
			if c.missesSuspects(it, o) {
				continue
			}
			if r.partial && !r.last {
				r.setAside(it, o.Err)
				continue
			}
			result := Rejected
			if o.Result == transaction.Conflict {
				result = Conflict
			}
			out = c.conclude(out, it, result, o.Err)
		}
	}
	return out
}

func (c *core) nextGroup() []effect {
	r := c.run
	if r.readBack {
		return []effect{doRead{}}
	}
	r.groups = r.groups[1:]
	r.fresh, r.learned, r.refused = false, false, nil
	if c.mustYield() {
		return c.putOffRest()
	}
	c.nextSlice()
	return c.attempt()
}

// mustYield tells whether a batch that is taken apart on the live table has had its time, and
// others wait.
func (c *core) mustYield() bool {
	r := c.run
	return r.err != nil && r.partial && !r.last && !c.trier && len(c.mail.queue) > 0 && c.now.Sub(r.record.Begin) > tryBudget
}

// putOffRest leaves all that is undone of a batch for later.
func (c *core) putOffRest() []effect {
	r := c.run
	for _, it := range r.undone() {
		it.off, r.putOff = true, true
		c.suspects = append(c.suspects, it)
	}
	return c.end(nil)
}

// afterGroups tries what was set aside while a batch was taken apart: with all that is in
// the kernel in its place of the order, so that a late message overwrites nothing newer.
func (c *core) afterGroups() []effect {
	r := c.run
	if len(r.deferred) == 0 || r.last {
		return c.end(nil)
	}
	r.last = true
	r.groups = [][]*item{r.besideLanded(r.deferred)}
	r.deferred = nil
	return c.attempt()
}
