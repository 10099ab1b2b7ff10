// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tableward/tableward/rules"
)

// Op is an operation of a dataplane.
type Op uint8

// The operations.
const (
	OpRestore Op = iota + 1
	OpRead
	OpCanon
	OpScan
	OpPulse
)

// String returns "restore", "read", "canon", "scan" or "pulse".
func (o Op) String() string {
	switch o {
	case OpRestore:
		return "restore"
	case OpRead:
		return "read"
	case OpCanon:
		return "canon"
	case OpScan:
		return "scan"
	case OpPulse:
		return "pulse"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}

// Call describes an operation that is about to begin, for a Hook.
type Call struct {
	Op    Op
	Table rules.TableID
	Input []byte // OpRestore: the block; must not be changed
}

// Sim is a kernel in memory. It reads restore input line by line as the tools do, with
// their words, exit codes and line numbers, applies a table's block as a whole or not at
// all, and refuses what the kernel behind the chosen backend refuses by structure: absent
// chains and sets, references, loops, depth, hooks of the nat targets. Rules are text
// otherwise, but for two things: a vocabulary of rules of which the tools have said how they
// read back, or why they refuse them; and plain rules, whose parts are put into the tools'
// order and form.
//
// A Sim is safe for concurrent use. Its zero value is not usable; see NewSim.
type Sim struct {
	// Hook is called before each operation, without any lock held. An error that it returns
	// is the operation's answer, and nothing is done. Set it before the first use.
	Hook func(Call) error
	// NoScratch makes Try and Expect return ErrNoScratch, and CanEdit false. Set it before the
	// first use.
	NoScratch bool

	backend Backend
	gen     atomic.Uint64 // changing commits, as nf_tables counts them for a namespace

	mu     sync.Mutex // guards tables and sets
	tables map[rules.TableID]*simTable
	sets   map[setKey]struct{}
}

type setKey struct {
	v    rules.IPVersion
	name string
}

// NewSim returns an empty kernel that behaves like backend: Legacy, else NFT.
func NewSim(backend Backend) *Sim {
	if backend != Legacy {
		backend = NFT
	}
	return &Sim{
		backend: backend,
		tables:  make(map[rules.TableID]*simTable),
		sets:    make(map[setKey]struct{}),
	}
}

// Info describes the simulator.
func (s *Sim) Info() Info {
	return Info{Backend: "sim", Emulates: string(s.backend), MaxDepth: maxDepth(s.backend), Version: simVersion}
}

// Restore applies one block of restore input, without flushing the table.
func (s *Sim) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	if err := s.before(ctx, Call{Op: OpRestore, Table: id, Input: input}); err != nil {
		return err
	}
	s.table(id)
	return s.apply(id.IPVersion, input)
}

// Load applies restore input of one or several tables, past the Hook: what a stranger
// does, or a seed. As with the tools, blocks before a refused one stay applied. To Pulse it is
// a change by somebody else, even if it is refused.
func (s *Sim) Load(v rules.IPVersion, input []byte) error {
	run := simRun{sim: s, v: v, foreign: true}
	return run.answer(input)
}

// ReplaceTable makes the table hold what saveText says, as a stranger's restore without
// --noflush would; to Pulse too.
func (s *Sim) ReplaceTable(id rules.TableID, saveText string) error {
	if err := id.Validate(); err != nil {
		return &RestoreError{Class: Unavailable, Reason: err.Error(), Err: err}
	}
	fresh := newSimTable(s, id)
	run := simRun{sim: s, v: id.IPVersion, only: fresh}
	if err := run.answer([]byte(saveText)); err != nil {
		return err
	}
	t := s.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adopt(fresh)
	t.foreign++
	s.gen.Add(1)
	return nil
}

// Read returns the table as iptables-save would show it, those of its chains in full that are
// named, or all.
func (s *Sim) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if err := s.before(ctx, Call{Op: OpRead, Table: id}); err != nil {
		return rules.Snapshot{}, err
	}
	if err := id.Validate(); err != nil {
		return rules.Snapshot{}, &RestoreError{Class: Unavailable, ExitCode: 1, Reason: err.Error(), Err: err}
	}
	t := s.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	snap := t.snapshot()
	for name, c := range t.chains {
		snap.Chains[name] = c.saved(len(chains) == 0 || slices.Contains(chains, name))
	}
	return snap, nil
}

// Canon returns for each rule its canonical text, nil for one that the tools would refuse.
func (s *Sim) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	if err := s.before(ctx, Call{Op: OpCanon, Table: id}); err != nil {
		return nil, err
	}
	if err := id.Validate(); err != nil {
		return nil, &RestoreError{Class: Unavailable, Reason: err.Error(), Err: err}
	}
	t := s.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]rules.Canon, len(rs))
	for i, r := range rs {
		if sr := t.ruleOf([]byte(r.String())); sr.err == nil && sr.errno == "" {
			out[i] = sr.canon()
		}
	}
	return out, nil
}

// AddSet makes an ipset exist, so that rules may name it.
func (s *Sim) AddSet(v rules.IPVersion, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets[setKey{v, name}] = struct{}{}
}

// RemoveSet removes an ipset. Rules that name it stay; a kernel would refuse.
func (s *Sim) RemoveSet(v rules.IPVersion, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sets, setKey{v, name})
}

func (s *Sim) hasSet(v rules.IPVersion, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.sets[setKey{v, name}]
	return ok
}

// Save returns the table as save text without counters: built-in chains in the tools'
// order, then user chains by name.
func (s *Sim) Save(id rules.TableID) string {
	if !rules.IsTable(id.Name) {
		return ""
	}
	s.mu.Lock()
	t := s.tables[id]
	s.mu.Unlock()
	if t == nil {
		t = newSimTable(s, id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.save()
}

// String returns all tables that were ever touched, IPv4 before IPv6, then by name.
func (s *Sim) String() string {
	s.mu.Lock()
	ids := make([]rules.TableID, 0, len(s.tables))
	for id := range s.tables {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	slices.SortFunc(ids, rules.TableID.Compare)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString("# " + id.String() + "\n" + s.Save(id))
	}
	return b.String()
}

func (s *Sim) before(ctx context.Context, c Call) error {
	if err := ctx.Err(); err != nil {
		return asRestoreError(err)
	}
	if s.Hook == nil {
		return nil
	}
	return s.Hook(c)
}

// table returns the table, which exists from then on; nil if there is no table of that name.
func (s *Sim) table(id rules.TableID) *simTable {
	if !rules.IsTable(id.Name) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[id]
	if t == nil {
		t = newSimTable(s, id)
		s.tables[id] = t
	}
	return t
}

func (s *Sim) apply(v rules.IPVersion, input []byte) error {
	run := simRun{sim: s, v: v}
	return run.answer(input)
}
