// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// planDeletes names the chains that can go: condemned ones that nothing reaches, and the
// orphans that a Cleanup of this batch sweeps. All are emptied before any is deleted, so
// that chains which jump to each other go together.
func (t *Txn) planDeletes() {
	names := t.orphansToDelete(false)
	for name, c := range t.chains {
		if c.content == Condemned && t.needs.len(name) == 0 && t.strangers.len(name) == 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	names = slices.Compact(names)
	t.plan.Delete = DeleteBlock(t.s.cfg.Table, names)
}

// DeleteBlock returns the block that deletes chains, whatever they hold and however they
// jump to each other.
func DeleteBlock(id rules.TableID, names []string) rules.Block {
	b := rules.Block{IPVersion: id.IPVersion, Table: id.Name}
	for _, name := range names {
		b.Lines = append(b.Lines, rules.Line{Command: rules.Declare, Chain: name, Policy: "-"})
	}
	for _, name := range names {
		b.Lines = append(b.Lines, rules.Line{Command: rules.DeleteChain, Chain: name})
	}
	return b
}

// Deletes returns the chains that the delete block deletes, sorted.
func (p *Plan) Deletes() []string {
	var names []string
	for _, l := range p.Delete.Lines {
		if l.Command == rules.DeleteChain {
			names = append(names, l.Chain)
		}
	}
	return names
}
