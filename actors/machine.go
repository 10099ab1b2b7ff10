// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"slices"
	"time"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Event is one thing that happened between a table and its dataplane, or one answer: what
// a transcript is made of.
type Event struct {
	At    time.Duration // since the beginning, by the Machine's time; 0 from a Runtime
	Table rules.TableID
	Kind  EventKind
	Input []byte // of EventRestore
	// Delete tells that the restore is best effort.
	Delete bool
	Err    error   // of EventRead, EventRestore and EventBroken
	Answer *Answer // of EventAnswer and EventLate
	Drift  *Drift  // of EventDrift, EventRepaired and EventFought
	Probes int     // of EventTrial: blocks sent to scratch namespaces
}

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of events.
const (
	EventRead         EventKind = iota + 1 // the table was read
	EventRestore                           // a block was sent to the table
	EventAnswer                            // a message was answered
	EventLate                              // a message that had been answered Unavailable is in the kernel, or refused
	EventWaits                             // a message waits for its kernel chain; Answer has its id and no result
	EventBroken                            // what a stranger broke cannot be put back now; Err says what and why
	EventCountersLost                      // a legacy tool was killed at work: rule counters of the table may be zero
	EventGraceTimeout                      // grace ends by its timer
	EventTrial                             // rules were tried away from the live table
	EventDrift                             // somebody has changed what is ours to keep
	EventRepaired                          // that is as it should be again
	EventFought                            // drift comes again and again: it is repaired more slowly
	EventWait                              // a rest begins, since the environment is in passing trouble
)

// MachineConfig is what a Machine needs.
type MachineConfig struct {
	Dataplane Dataplane
	// Table returns the configuration of a table when its first message comes. Table and
	// IPVersion are filled in.
	Table func(rules.TableID) transaction.Config
	// Observe gets each event; it may be nil.
	Observe func(Event)
	// OnBatch gets the record of each batch; it may be nil.
	OnBatch func(BatchRecord)
	// Scan has tables looked at by scans, where the Dataplane is a Scanner. A replay does
	// without: what it is compared with reads.
	Scan bool
}

// Machine drives table actors without goroutines and in virtual time: one table after the
// other, 4 before 6, then by name. It is what replays a message log. Not safe for
// concurrent use.
type Machine struct {
	cfg   MachineConfig
	now   time.Duration
	cores map[rules.TableID]*core
	wakes map[rules.TableID]time.Duration

	inSyncs []transaction.Message
}

// NewMachine returns a Machine whose time is 0.
func NewMachine(cfg MachineConfig) *Machine {
	return &Machine{cfg: cfg, cores: map[rules.TableID]*core{}, wakes: map[rules.TableID]time.Duration{}}
}

// Open makes the actor of a table, if there is none yet. The error is about the
// configuration.
func (m *Machine) Open(id rules.TableID) error {
	_, err := m.core(id)
	return err
}

func (m *Machine) core(id rules.TableID) (*core, error) {
	if c := m.cores[id]; c != nil {
		return c, nil
	}
	cfg := m.cfg.Table(id)
	cfg.Table = id
	cfg.Kinds = cfg.Kinds && canTry(m.cfg.Dataplane)
	c, err := newCore(cfg, 0)
	if err != nil {
		return nil, err
	}
	c.eyes.able = m.scanner() != nil
	m.cores[id] = c
	for _, msg := range m.inSyncs {
		c.step(m.clock(), mail{[]*item{{msg: msg, answered: true}}})
	}
	return c, nil
}

// Tables returns the tables that have an actor, in order.
func (m *Machine) Tables() []rules.TableID {
	ids := make([]rules.TableID, 0, len(m.cores))
	for id := range m.cores {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, rules.TableID.Compare)
	return ids
}

// State returns what is known of a table, nil when it has no actor.
func (m *Machine) State(id rules.TableID) *transaction.State {
	if c := m.cores[id]; c != nil {
		return c.state
	}
	return nil
}

// Send puts a message into a table's mailbox. It is planned by the next Settle.
func (m *Machine) Send(id rules.TableID, msg transaction.Message) error {
	c, err := m.core(id)
	if err != nil {
		return err
	}
	c.step(m.clock(), mail{[]*item{{msg: msg.Clone()}}})
	return nil
}

// InSync sends an InSync message to every table that has an actor, and to those that get one
// later. It has one answer, which comes when the last table has answered.
func (m *Machine) InSync(msg transaction.Message) {
	msg.Body = transaction.InSync{}
	m.inSyncs = append(m.inSyncs, msg)
	ids := m.Tables()
	answer := Answer{ID: msg.ID, Owner: msg.Owner, Kind: msg.Body.Kind(), Result: Applied}
	missing := len(ids)
	if missing == 0 {
		m.emit(Event{Kind: EventAnswer, Answer: &answer})
	}
	for _, id := range ids {
		m.cores[id].step(m.clock(), mail{[]*item{{msg: msg, reply: func(a Answer) {
			if a.Result != Applied {
				answer = a
			}
			if missing--; missing == 0 {
				m.emit(Event{Table: answer.Table, Kind: EventAnswer, Answer: &answer})
			}
		}}}})
	}
}

// Settle runs each table that has mail until it has none, or rests.
func (m *Machine) Settle() {
	for _, id := range m.Tables() {
		m.drive(id, nil)
	}
}

// Advance lets time pass, waking what rests when its rest is over.
func (m *Machine) Advance(to time.Duration) {
	for {
		id, at, ok := m.nextWake()
		if !ok || at > to {
			break
		}
		m.now = at
		delete(m.wakes, id)
		c := m.cores[id]
		m.drive(id, c.step(m.clock(), tick{}))
	}
	m.now = max(m.now, to)
}

func (m *Machine) nextWake() (id rules.TableID, at time.Duration, ok bool) {
	for _, t := range m.Tables() {
		if w, resting := m.wakes[t]; resting && (!ok || w < at) {
			id, at, ok = t, w, true
		}
	}
	return id, at, ok
}

// Stop answers all that has no answer with Unavailable.
func (m *Machine) Stop() {
	for _, id := range m.Tables() {
		m.drive(id, m.cores[id].step(m.clock(), stopNow{}))
	}
	clear(m.wakes)
}

// clock is the virtual time as the core sees it.
func (m *Machine) clock() time.Time { return time.Unix(0, 0).Add(m.now) }

// drive carries effects out, and makes a batch of what is pending, until nothing is left
// to do.
func (m *Machine) drive(id rules.TableID, effects []effect) {
	c := m.cores[id]
	for {
		if len(effects) == 0 {
			if effects = c.begin(m.clock()); len(effects) == 0 {
				return
			}
		}
		next := effects[0]
		effects = effects[1:]
		switch e := next.(type) {
		case doReply:
			if e.item.reply != nil {
				e.item.reply(e.answer)
			} else {
				m.emit(Event{Table: id, Kind: EventAnswer, Answer: &e.answer})
			}
		case doNews:
			m.emit(Event{Table: id, Kind: EventLate, Answer: &e.answer})
		case doWait:
			m.emit(waitEvent(id, c, e))
		case doLost:
			m.emit(Event{Table: id, Kind: EventCountersLost, Err: e.err})
		case doBroken:
			m.emit(Event{Table: id, Kind: EventBroken, Err: e.err})
		case doDrift:
			m.emit(Event{Table: id, Kind: EventDrift, Drift: &e.drift})
		case doRepaired:
			m.emit(Event{Table: id, Kind: EventRepaired, Drift: &e.drift})
		case doRecord:
			if m.cfg.OnBatch != nil {
				m.cfg.OnBatch(e.record)
			}
		case doRest:
			m.emit(Event{Table: id, Kind: EventWait})
			m.wakes[id] = m.now + e.after
		default:
			result := perform(context.Background(), m.cfg.Dataplane, m.scanner(), id, e)
			if ev, ok := record(id, e, result); ok {
				m.emit(ev)
			}
			effects = append(effects, c.step(m.clock(), result)...)
		}
	}
}

// scanner is the Dataplane, if it is to be looked at by scans.
func (m *Machine) scanner() Scanner {
	if sc, ok := m.cfg.Dataplane.(Scanner); ok && m.cfg.Scan {
		return sc
	}
	return nil
}

// waitEvent says that a message has begun to wait.
func waitEvent(id rules.TableID, c *core, e doWait) Event {
	a := c.answerOf(e.item, 0, nil)
	return Event{Table: id, Kind: EventWaits, Answer: &a}
}

// record makes the event of an operation; asking what the tool reads back is none.
func record(id rules.TableID, op effect, result event) (Event, bool) {
	switch op := op.(type) {
	case doRead:
		return Event{Table: id, Kind: EventRead, Err: result.(readDone).err}, true
	case doTry:
		done := result.(tryDone)
		return Event{Table: id, Kind: EventTrial, Err: done.err, Probes: done.trial.Probes}, true
	case doRestore:
		done := result.(restoreDone)
		return Event{
			Table: id, Kind: EventRestore, Input: op.input, Delete: op.phase == phaseDelete, Err: done.err,
		}, !done.moved
	}
	return Event{}, false
}

func (m *Machine) emit(e Event) {
	e.At = m.now
	if m.cfg.Observe != nil {
		m.cfg.Observe(e)
	}
}
