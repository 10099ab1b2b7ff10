// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/tableward/tableward/rules"
)

var errCutShort = errors.New("what was read has no whole table in it")

// ErrIncompatible says that a table holds what only nft can show, so that it cannot be
// read. iptables-nft-save prints a comment then, and ends with exit code 0; 1.8.9 writes to
// such a table all the same. It is the cause of a *RestoreError of class Unavailable.
var ErrIncompatible = errors.New("the table holds rules that only nft can show")

// Read reads a table: without names all chains in full; with names at least those, in full,
// but for one that does not exist. On nft the result may have no others then: few chains are
// listed one by one, which costs two to four milliseconds for each, whatever the size of the
// table, and works beside chains that only nft can show. Elsewhere the others are there with
// Digest and Jumps, without their rules.
//
// A table is never taken to be empty or absent because it was not printed: whatever has not
// come with its name and its COMMIT is an error, of class Unknown, or Unavailable if the tool
// named the reason. Generation and Pulse are 0 if they were not the same before and after.
func (k *Kernel) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	t, err := k.toolset(id)
	if err != nil {
		return rules.Snapshot{}, err
	}
	if err := k.ns.check(); err != nil {
		return rules.Snapshot{}, err
	}
	if snap, ok := k.readNamed(ctx, t, id, chains); ok {
		return snap, nil
	}
	pulse := k.pulseNow(ctx, id)
	k.stats.runs.Add(1)
	before := k.generation()
	saved, re := k.save(ctx, t, k.ns.enter, k.opts.LockFile, id.Name)
	if re = k.explain(re); re != nil {
		return rules.Snapshot{}, re
	}
	snap := rules.Snapshot{Table: id, Chains: make(map[string]rules.SavedChain, len(saved.Chains))}
	// A commit in between leaves open which generation was read.
	if after := k.generation(); after == before {
		snap.Generation = after
	}
	snap.Pulse = k.steadyPulse(ctx, id, pulse)
	for _, c := range saved.Chains {
		if len(chains) > 0 && !slices.Contains(chains, c.Name) {
			c.Full, c.Rules = false, nil
		}
		snap.Chains[c.Name] = c
	}
	return snap, nil
}

// generation returns the kernel's generation, 0 where it has none or will not say.
func (k *Kernel) generation() uint64 {
	if k.backend != NFT {
		return 0
	}
	gen, err := k.scanGeneration()
	if err != nil {
		return 0
	}
	return gen
}

// save runs the save tool for one table. The tools print every table that they can reach
// with its built-in chains, touched or not, so what is not printed was not read.
func (k *Kernel) save(ctx context.Context, t toolset, start starter, lockFile, table string) (rules.SavedTable, *RestoreError) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.opts.BaseDeadline, errDeadline)
	defer cancel()
	pr, pw := io.Pipe()
	type parsed struct {
		set *rules.Ruleset
		err error
	}
	done := make(chan parsed, 1)
	k.wg.Go(func() {
		set, err := rules.ParseSave(pr)
		// Whatever the parser left must still be read, or the tool would hang.
		_, _ = io.Copy(io.Discard, pr)
		done <- parsed{set, err}
	})
	r := run{path: t.save, args: []string{"-t", table}, env: environ(lockFile), start: start, stdout: pw, wg: &k.wg}
	o := r.run(ctx)
	pw.Close()
	p := <-done
	switch {
	case o.err != nil:
		return rules.SavedTable{}, runError(o)
	case o.exit != 0:
		return rules.SavedTable{}, Classify(o.exit, o.stderr, nil)
	case p.err != nil:
		return rules.SavedTable{}, &RestoreError{Class: Unknown, Stderr: o.stderr, Reason: p.err.Error(), Err: p.err}
	case slices.Contains(p.set.Incompatible, table):
		e := unavailable(ErrIncompatible)
		e.Reason = "table " + table + " cannot be read: it holds rules that only nft can show"
		return rules.SavedTable{}, e
	}
	i := slices.IndexFunc(p.set.Tables, func(t rules.SavedTable) bool { return t.Name == table && t.Complete })
	if i < 0 {
		return rules.SavedTable{}, &RestoreError{Class: Unknown, Stderr: o.stderr, Reason: errCutShort.Error(), Err: errCutShort}
	}
	return p.set.Tables[i], nil
}
