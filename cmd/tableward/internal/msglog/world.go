// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"context"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// World is the kernel that a log is replayed on, and what the log has others do to it.
type World interface {
	actors.Dataplane
	// Info says which kernel it is, and what that takes.
	Info() dataplane.Info
	// Load is restore input that somebody else applies.
	Load(v rules.IPVersion, input []byte) error
	// Replace makes a table hold what save text says, and nothing else.
	Replace(id rules.TableID, saveText string) error
	AddSet(Set) error
	DropSet(Set) error
	// Save returns a table as save text without counters: built-in chains first, then by name.
	Save(id rules.TableID) (string, error)
}

// simWorld is the simulator.
type simWorld struct{ *dataplane.Sim }

func (w simWorld) Replace(id rules.TableID, saveText string) error {
	return w.ReplaceTable(id, saveText)
}

func (w simWorld) AddSet(s Set) error {
	w.Sim.AddSet(s.IPVersion, s.Name)
	return nil
}

func (w simWorld) DropSet(s Set) error {
	w.RemoveSet(s.IPVersion, s.Name)
	return nil
}

func (w simWorld) Save(id rules.TableID) (string, error) { return w.Sim.Save(id), nil }

// faulty is a World in which operations fail as the log says.
type faulty struct {
	World
	faults faults
}

// Restore implements actors.Dataplane.
func (w faulty) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	if err := w.faults.next(id, phaseOf(input), input); err != nil {
		return err
	}
	return w.World.Restore(ctx, id, input)
}

// Read implements actors.Dataplane.
func (w faulty) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if err := w.faults.next(id, "read", nil); err != nil {
		return rules.Snapshot{}, err
	}
	return w.World.Read(ctx, id, chains...)
}
