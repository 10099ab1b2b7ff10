// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// core is the logic of one table's actor: events in, effects out, no goroutine, no clock,
// no I/O. The actor drives it in production and Machine in a replay, so that there is one
// logic. It asks for at most one operation of the dataplane at a time.
type core struct {
	id    rules.TableID
	state *transaction.State
	stale bool           // what the kernel holds must be read before the next plan
	mail  batcher[*item] // not yet in a batch, in order
	// What goes along with each batch, at its place in the order of arrival, so that what
	// came later wins:
	waiting []*item // for a kernel chain that does not exist
	parked  []*item // answered Unavailable for want of an environment; still wished
	retries []*item // refused, and tried again at each refresh
	arrived uint64
	pieces  uint64
	now     time.Time // as the driver says
	run     *run      // nil when idle
	// noCanon: what the tool reads back cannot be asked; it is learned from a read after
	// each write.
	noCanon  bool
	resting  bool    // in backoff: wakes by a tick
	trier    bool    // rules can be tried away from the live table
	suspects []*item // the search for messages at fault did not get to them in time
	later    []*item // landed, and must stay on top of what is older and held back
	backTo   uint64  // last in order of what was put back into the mail
	hunted   bool    // suspects have been looked for in the last batch: mail goes first now
	chunk    int     // so many suspects are tried at once
	backoff  *backoff.ExponentialBackOff
	eyes     eyes
	stopping bool         // nothing is begun any more
	guilty   []rules.Line // repairs that were refused by themselves, as long as the rest is tried
}

// item is one message on its way to its answer.
type item struct {
	msg      transaction.Message
	seq      uint64       // order of arrival at the table
	came     time.Time    // when it arrived
	piece    uint64       // what was sent together has one number
	internal bool         // of our own making: nobody waits for its answer
	waits    bool         // for its kernel chain
	parked   bool         // was answered Unavailable, and is still wished
	reply    func(Answer) // nil: the runtime's OnAnswer gets it
	answered bool         // it has its answer
	landed   bool         // it was in the kernel; it goes along where an earlier one is tried after it
	done     bool         // nothing is left to try: it is in the kernel, or refused; a parked item is not
	off      bool         // put off: it is among the suspects
	deferred bool         // put off once for want of another that was put off
	step     int          // of its batch's record: the last try that failed with it in
}

// The events of a core. mail may come at any time; the others answer an effect.
type (
	event    interface{ isEvent() }
	mail     struct{ items []*item }
	tick     struct{} // the backoff is over
	readDone struct {
		snap rules.Snapshot
		scan *rules.Snapshot // of the same state of the table; nil where that cannot be had
		err  error
		// edits tells whether the tool can edit by index.
		edits bool
	}
	canonDone struct {
		asked  []rules.Rule
		canons []rules.Canon // nil when it cannot be had
	}
	restoreDone struct {
		err    error
		pulse  uint64 // before the block was sent; 0: not known
		shaken bool   // it was refused, and somebody has written meanwhile
		moved  bool   // it was not sent, since the table is not what it was
	}
	tryDone struct {
		trial dataplane.Trial
		err   error
	}
	// owning makes chain names ours.
	owning struct{ names []string }
	// stopNow answers all that has no answer; nothing is tried any more.
	stopNow struct{}
)

func (mail) isEvent()        {}
func (tick) isEvent()        {}
func (readDone) isEvent()    {}
func (canonDone) isEvent()   {}
func (restoreDone) isEvent() {}
func (tryDone) isEvent()     {}
func (owning) isEvent()      {}
func (stopNow) isEvent()     {}

// The effects of a core. Answers come first in the order in which they are given; an
// operation of the dataplane or a rest is the last.
type (
	effect  interface{ isEffect() }
	doReply struct {
		item   *item
		answer Answer
	}
	doNews    struct{ answer Answer } // what became of a message that had been answered before
	doWait    struct{ item *item }    // it waits for its kernel chain
	doLost    struct{ err error }     // rule counters may be lost
	doBroken  struct{ err error }     // a repair that the kernel refused is left undone
	doRead    struct{}
	doCanon   struct{ rules []rules.Rule }
	doRestore struct {
		input []byte
		phase phase
		frees bool   // the kernel has something to get rid of afterwards
		pulse uint64 // the table's, if the block is not to be sent otherwise; 0: any
	}
	doTry    struct{ batch dataplane.Batch } // away from the live table
	doRest   struct{ after time.Duration }
	doRecord struct{ record BatchRecord } // a batch is over
)

func (doReply) isEffect()   {}
func (doNews) isEffect()    {}
func (doWait) isEffect()    {}
func (doLost) isEffect()    {}
func (doBroken) isEffect()  {}
func (doRead) isEffect()    {}
func (doCanon) isEffect()   {}
func (doRestore) isEffect() {}
func (doRest) isEffect()    {}
func (doTry) isEffect()     {}
func (doRecord) isEffect()  {}

// restOfRepair is the id of the refresh that tries what one before it has left undone.
const restOfRepair = "the rest of a repair"

// phase says what a restore is for; its words are those of a message log's faults.
type phase string

const (
	phaseModify phase = "modify"
	phaseDelete phase = "delete"
)

// Bounds of the rests between tries while the environment is in passing trouble.
const (
	firstRest = 100 * time.Millisecond
	longest   = 5 * time.Second
)

func newCore(cfg transaction.Config, jitter float64) (*core, error) {
	state, err := transaction.NewState(cfg)
	if err != nil {
		return nil, err
	}
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRest), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(longest), backoff.WithRandomizationFactor(jitter),
		backoff.WithMaxElapsedTime(0), // as long as the runtime lives
	)
	return &core{
		id: cfg.Table, state: state, stale: true, backoff: b, trier: cfg.Kinds,
		mail: batcher[*item]{
			size:  func(it *item) int { return it.msg.Size() },
			piece: func(it *item) uint64 { return it.piece },
		},
	}, nil
}

// busy tells whether an event is awaited that the core has asked for.
func (c *core) busy() bool { return c.writing() || c.eyes.verifying }

// writing tells whether a batch is under way, or rests.
func (c *core) writing() bool { return c.run != nil || c.resting }

// step takes one event and returns what is to be done about it. The driver calls begin
// afterwards, when it finds that the core may.
func (c *core) step(now time.Time, e event) []effect {
	c.now = now
	if c.run != nil {
		c.run.done(now, e)
	}
	return c.noted(c.idle(c.handle(e)))
}

// noted has the record of the batch know the operation that is asked for.
func (c *core) noted(out []effect) []effect {
	if n := len(out); n > 0 && c.run != nil {
		c.run.begin(c.now, out[n-1])
	}
	return out
}

func (c *core) handle(e event) []effect {
	switch e := e.(type) {
	case mail:
		c.pieces++
		for _, it := range e.items {
			c.arrived++
			it.seq, it.piece, it.came = c.arrived, c.pieces, c.now
		}
		c.mail.add(c.now, e.items...)
		return nil
	case tick:
		c.resting = false
	case readDone:
		return c.onRead(e)
	case canonDone:
		return c.onCanon(e)
	case restoreDone:
		return c.onRestore(e)
	case tryDone:
		return c.onTry(e)
	case lookDone:
		return c.onLook(e)
	case closeDone:
		return c.onClose(e)
	case verifyDone:
		return c.onVerify(e)
	case owning:
		c.state.Own(e.names...)
	case stopNow:
		return c.giveUp()
	}
	return nil
}

// due returns how long it is until begin may be called; false when the core is busy or
// nothing is pending.
func (c *core) due(now time.Time) (time.Duration, bool) {
	if c.busy() {
		return 0, false
	}
	if after, pending := c.mail.due(now); pending {
		return after, true
	}
	return 0, len(c.suspects) > 0
}

// begin makes one batch of what is pending and starts on it. It does nothing when the core
// is busy, or nothing is pending.
func (c *core) begin(now time.Time) []effect {
	c.now = now
	if c.busy() {
		return nil
	}
	if c.mayHunt() {
		return c.noted(c.hunt())
	}
	batch := c.mail.take()
	if len(batch) == 0 {
		return nil
	}
	c.hunted = false
	mend := slices.ContainsFunc(batch, func(it *item) bool { return looksAround(it.msg) })
	if mend {
		c.state.Mend()
		if !slices.ContainsFunc(batch, func(it *item) bool { return it.msg.ID == restOfRepair && it.internal }) {
			c.guilty = nil
		}
		for _, l := range c.guilty {
			c.state.Broken(l)
		}
		c.parked, c.retries = append(c.parked, c.retries...), nil
	}
	if len(c.waiting)+len(c.parked)+len(c.later) > 0 {
		batch = slices.Concat(c.parked, c.waiting, c.later, batch)
		slices.SortStableFunc(batch, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	}
	c.waiting, c.parked = nil, nil
	c.run = c.newRun(batch)
	return c.noted(c.idle(c.attempt()))
}

// end notes that the batch under way is over, and tells its record.
func (c *core) end(out []effect) []effect {
	if c.run != nil {
		out = c.tellRecord(out)
		c.keepLater(c.run)
		c.hunted = c.hunted || c.run.putOff // who has waited for a search does not wait for a hunt too
		if c.run.hunt {
			c.endHunt()
		}
		if slices.ContainsFunc(c.run.batch, func(it *item) bool { return looksAround(it.msg) }) {
			c.eyes.mend = false // it has repaired what can be
		}
		if c.run.rest {
			c.sendSelf(restOfRepair)
		}
		c.mend()
	}
	c.run = nil
	c.state.Forget()
	c.mail.done(c.now)
	return out
}

// looksAround tells whether a message is about the table as it is rather than about a wish.
func looksAround(m transaction.Message) bool {
	switch m.Body.(type) {
	case transaction.Refresh, transaction.Cleanup:
		return true
	}
	return false
}

// rest puts what has no answer yet back in front of the mail and waits before it is tried
// again, together with what has come meanwhile.
func (c *core) rest() []effect {
	if c.run.hunt {
		c.suspects = append(c.run.undone(), c.suspects...)
	} else {
		back := c.run.undone()
		came := make([]time.Time, len(back))
		for i, it := range back {
			came[i], c.backTo = it.came, max(c.backTo, it.seq)
		}
		c.mail.back(came, back...)
	}
	out := c.end(nil)
	c.resting = true
	return append(out, doRest{after: c.backoff.NextBackOff()})
}

// giveUp answers all that has no answer: the runtime stops.
func (c *core) giveUp() []effect {
	c.stopping, c.eyes.verifying = true, false
	var all []*item
	if c.run != nil {
		all = c.run.undone()
		c.run = nil
	}
	all = slices.Concat(all, c.mail.all(), c.waiting, c.suspects)
	slices.SortStableFunc(all, func(a, b *item) int { return cmp.Compare(a.seq, b.seq) })
	c.waiting, c.parked, c.suspects, c.later, c.resting = nil, nil, nil, nil, false
	var out []effect
	for _, it := range all {
		out = c.answer(out, it, Unavailable, ErrStopped)
	}
	return out
}

// conclude appends the final answer to an item about which nothing is left to do. What had
// been answered Unavailable makes news instead: it has one answer.
func (c *core) conclude(out []effect, it *item, r Result, err error) []effect {
	late := it.parked && !it.done
	err = c.dress(err)
	if c.run != nil && !it.done {
		c.run.noteOutcome(it, r, err)
	}
	it.done = true
	if late {
		return append(out, doNews{c.answerOf(it, r, err)})
	}
	return c.answer(out, it, r, err)
}

// answer appends the answer to an item, unless it has one.
func (c *core) answer(out []effect, it *item, r Result, err error) []effect {
	if it.answered {
		return out
	}
	it.answered = true
	return append(out, doReply{it, c.answerOf(it, r, err)})
}

func (c *core) answerOf(it *item, r Result, err error) Answer {
	return Answer{ID: it.msg.ID, Owner: it.msg.Owner, Table: c.id, Kind: it.msg.Body.Kind(), Result: r, Err: err}
}

// perform carries an operation out and returns the event that answers it. It is the only
// place where the dataplane is called.
func perform(ctx context.Context, dp Dataplane, sc Scanner, id rules.TableID, op effect) event {
	l := looker{ctx, dp, sc, id}
	switch op := op.(type) {
	case doRead:
		return l.read()
	case doLook:
		return l.look(op)
	case doClose:
		return l.close(op)
	case doVerify:
		return l.verify(op)
	case doCanon:
		canons, err := dp.Canon(ctx, id, op.rules)
		if err != nil || len(canons) != len(op.rules) {
			canons = nil
		}
		return canonDone{op.rules, canons}
	case doRestore:
		return l.restore(op)
	case doTry:
		trial, err := dp.(Trier).Try(ctx, id, op.batch)
		return tryDone{trial, err}
	}
	return nil
}

// failRun answers what the batch under way holds, after a panic of our own.
func (c *core) failRun(err error) []effect {
	c.stale, c.eyes.verifying = true, false
	if c.run == nil {
		return nil
	}
	var out []effect
	for _, it := range c.run.undone() {
		out = c.conclude(out, it, Rejected, err)
	}
	return c.end(out)
}
