// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Pulse is Kernel.Pulse: it changes with what Load and ReplaceTable do to the table, and with
// no Restore.
func (s *Sim) Pulse(ctx context.Context, id rules.TableID) (uint64, error) {
	if err := s.before(ctx, Call{Op: OpPulse, Table: id}); err != nil {
		return 0, err
	}
	if err := id.Validate(); err != nil {
		return 0, unavailable(err)
	}
	t := s.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pulse(), nil
}

// Scan is Kernel.Scan. The digest of a rule is one of its text as Read gives it.
func (s *Sim) Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if err := s.before(ctx, Call{Op: OpScan, Table: id}); err != nil {
		return rules.Snapshot{}, err
	}
	if err := id.Validate(); err != nil {
		return rules.Snapshot{}, unavailable(err)
	}
	t := s.table(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	snap := t.snapshot()
	for name, c := range t.chains {
		if len(chains) == 0 || slices.Contains(chains, name) {
			snap.Chains[name] = c.scanned(len(chains) > 0)
		}
	}
	return snap, nil
}

// Expect is Kernel.Expect. Like Try it loads chains in a simulator of its own, and calls no
// Hook.
func (s *Sim) Expect(ctx context.Context, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error) {
	switch err := id.Validate(); {
	case ctx.Err() != nil:
		return nil, asRestoreError(ctx.Err())
	case err != nil:
		return nil, unavailable(err)
	case s.NoScratch:
		return nil, ErrNoScratch
	}
	out := make(map[string]rules.SavedChain, len(chains))
	for _, c := range chains {
		if saved, ok := s.expect(id, c); ok {
			out[c.Name] = saved
		}
	}
	return out, nil
}

// expect loads one chain. It returns false where the kernel's Expect would leave it out.
func (s *Sim) expect(id rules.TableID, c rules.Chain) (rules.SavedChain, bool) {
	const name = expectPrefix + "0" // not the chain's own: the hook of a built-in one refuses rules
	scratch := NewSim(s.backend)
	heads, lines := ":"+name+" - [0:0]\n", ""
	for _, r := range c.Rules {
		if !probeable(r) {
			return rules.SavedChain{}, false
		}
		for _, set := range r.Sets() {
			scratch.AddSet(id.IPVersion, set)
		}
		if to := r.Jump(); to != "" && !rules.IsBuiltin(id.Name, to) {
			heads += ":" + to + " - [0:0]\n"
		}
		lines += "-A " + name + " " + r.String() + "\n"
	}
	if scratch.apply(id.IPVersion, []byte("*"+id.Name+"\n"+heads+lines+"COMMIT\n")) != nil {
		return rules.SavedChain{}, false
	}
	saved := scratch.table(id).chains[name].scanned(true)
	saved.Name = c.Name
	return saved, true
}

// CanEdit is Kernel.CanEdit: both backends can.
func (s *Sim) CanEdit(ctx context.Context, id rules.TableID) bool {
	return ctx.Err() == nil && id.Validate() == nil && !s.NoScratch
}

// snapshot is what Read and Scan return, without the chains.
func (t *simTable) snapshot() rules.Snapshot {
	snap := rules.Snapshot{Table: t.id, Chains: make(map[string]rules.SavedChain, len(t.chains)), Pulse: t.pulse()}
	if t.sim.backend == NFT {
		snap.Generation = t.sim.gen.Load()
	}
	return snap
}

func (t *simTable) pulse() uint64 { return 1 + t.foreign }

// scanned returns the chain as Scan gives it. Its digest is not that of Read, as the kernel's
// is not.
func (c *simChain) scanned(named bool) rules.SavedChain {
	out := c.saved(false)
	digests := make([]uint64, len(c.rules))
	for i, e := range c.rules {
		digests[i] = e.hash
	}
	out.Digest = digestOfRules(digests)
	if named {
		out.Digests = digests
	}
	return out
}
