// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"slices"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// onDelete goes on after a delete block. It is best effort: what cannot go stays, condemned
// or pinned, and is tried again at the next refresh.
func (c *core) onDelete(err error) []effect {
	r := c.run
	names := r.deletes[0]
	r.deletes = r.deletes[1:]
	var re *dataplane.RestoreError
	errors.As(err, &re)
	switch {
	case err == nil:
		c.state.Deleted(names...)
	case re != nil && (re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere):
		r.deletes = append(c.pin(names, re), r.deletes...)
	default:
		c.stale = c.stale || re == nil || re.Class == dataplane.Unknown
		r.deletes = nil
	}
	if len(r.deletes) > 0 {
		return []effect{c.sendDelete()}
	}
	return c.nextGroup()
}

// pin finds the chain that the kernel refused to delete; what is to be tried next is
// returned. The error's line is that of the chain's delete; without a line, halves.
func (c *core) pin(names []string, re *dataplane.RestoreError) [][]string {
	if len(names) == 1 {
		c.state.Pinned(names[0])
		return nil
	}
	b := transaction.DeleteBlock(c.id, names)
	if i := re.Line - 2; re.Class == dataplane.Rejected && i >= 0 && i < len(b.Lines) {
		name := b.Lines[i].Chain
		c.state.Pinned(name)
		return [][]string{slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })}
	}
	half := len(names) / 2
	return [][]string{names[:half], names[half:]}
}

func (c *core) sendDelete() effect {
	return doRestore{rules.AppendRestore(nil, transaction.DeleteBlock(c.id, c.run.deletes[0])), phaseDelete, true, 0}
}
