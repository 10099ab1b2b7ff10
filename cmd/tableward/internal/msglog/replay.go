// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"slices"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// patience is how long what is pending is tried after the last line of a log.
const patience = 10 * time.Minute

// Replay plays a log on the simulator. The error is an *Error: about what the log has
// somebody else do to the kernel, when the kernel refuses that.
func Replay(l *Log) (*Transcript, error) {
	return ReplayOn(l, simWorld{dataplane.NewSim(l.Header.Backend)})
}

// ReplayOn plays a log on a World of the log's backend.
func ReplayOn(l *Log, w World) (*Transcript, error) {
	p := newPlayer(l, w)
	if err := p.play(); err != nil {
		return nil, err
	}
	return &p.out, nil
}

// player is one replay.
type player struct {
	log     *Log
	world   World
	machine *actors.Machine
	faults  faults
	tables  []rules.TableID // that the log or a seed touched
	now     time.Duration
	out     Transcript
}

func newPlayer(l *Log, w World) *player {
	p := &player{log: l, world: w, faults: faults{}}
	h := l.Header
	p.machine = actors.NewMachine(actors.MachineConfig{
		Dataplane: faulty{w, p.faults},
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{
				Prefixes: h.Prefixes, Grace: h.Grace, Owners: h.Owners, MaxDepth: w.Info().MaxDepth,
				Backend: w.Info().Kernel(),
			}
		},
		Observe: func(e actors.Event) { p.out.add(e) },
	})
	return p
}

func (p *player) play() error {
	if err := p.seed(); err != nil {
		return err
	}
	for _, e := range p.log.Entries {
		if err := p.entry(e); err != nil {
			return err
		}
	}
	p.machine.Settle()
	p.machine.Advance(p.now + patience)
	p.machine.Stop()
	return p.final()
}

func (p *player) final() error {
	p.out.Final = map[string]string{}
	for _, id := range p.tables {
		text, err := p.world.Save(id)
		if err != nil {
			return err
		}
		p.out.Final[id.String()] = text
	}
	return nil
}

func (p *player) seed() error {
	if err := each(p.log.Header.Sets, p.world.AddSet); err != nil {
		return &Error{1, 1, err.Error()}
	}
	for _, s := range p.log.Header.Seed {
		p.touch(s.IPVersion, tablesOf(s.Restore)...)
		if err := p.world.Load(s.IPVersion, []byte(s.Restore)); err != nil {
			return &Error{s.line, s.column, "the kernel refuses the seed: " + err.Error()}
		}
	}
	return nil
}

func (p *player) entry(e Entry) error {
	if e.At > p.now {
		p.machine.Settle()
		p.machine.Advance(e.At)
		p.now = e.At
	}
	if e.Kernel != nil {
		p.machine.Settle() // what stands above it is a batch of its own
		if err := p.kernel(e.Kernel); err != nil {
			return &Error{e.line, e.column, "the kernel refuses this: " + err.Error()}
		}
		return nil
	}
	if err := p.message(e.Message); err != nil {
		return &Error{e.line, e.column, err.Error()}
	}
	return nil
}

func (p *player) message(m *Message) error {
	if _, everywhere := m.Body.(transaction.InSync); everywhere {
		p.machine.InSync(m.Message)
		return nil
	}
	p.touch(m.Table.IPVersion, m.Table.Name)
	if m.Refused != nil {
		// The runtime's callers make rules of text before they send anything.
		p.out.add(actors.Event{At: p.now, Table: m.Table, Kind: actors.EventAnswer, Answer: &actors.Answer{
			ID: m.ID, Owner: m.Owner, Table: m.Table, Kind: m.Body.Kind(), Result: actors.Rejected, Err: m.Refused,
		}})
		return nil
	}
	return p.machine.Send(m.Table, m.Message)
}

func (p *player) kernel(k *Kernel) error {
	id := rules.TableID{IPVersion: k.IPVersion, Name: k.Table}
	switch {
	case len(k.AddSets) > 0:
		return each(k.AddSets, p.world.AddSet)
	case len(k.DropSets) > 0:
		return each(k.DropSets, p.world.DropSet)
	case k.Fail != nil:
		p.faults.add(id, *k.Fail)
	case k.Holds != "":
		p.touch(k.IPVersion, k.Table)
		return p.world.Replace(id, k.Holds)
	case k.Restore != "":
		p.touch(k.IPVersion, tablesOf(k.Restore)...)
		return p.world.Load(k.IPVersion, []byte(k.Restore))
	}
	return nil
}

func (p *player) touch(v rules.IPVersion, names ...string) {
	for _, name := range names {
		if id := (rules.TableID{IPVersion: v, Name: name}); !slices.Contains(p.tables, id) {
			p.tables = append(p.tables, id)
		}
	}
}

func each(sets []Set, do func(Set) error) error {
	for _, s := range sets {
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}
