// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// cleanup repairs as a Refresh does and, unless grace is open, sweeps when the batch is
// planned: a later message of the batch may still write or need an orphan.
func (t *Txn) cleanup(snap *rules.Snapshot) {
	t.refresh(snap)
	t.sweeping = t.sweeping || !t.grace
}

// orphansToDelete returns the orphans that an earlier read than the newest had shown, less
// those that somebody else reaches: these are pinned, and so is all that they jump to,
// since they keep their content. With unhooked, a rule of a built-in chain does not count: it
// goes with the orphan.
func (t *Txn) orphansToDelete(unhooked bool) []string {
	if !t.sweeping {
		return nil
	}
	newest := t.s.reads + t.reads
	sweep := map[string]bool{}
	for name := range t.s.special {
		if c := t.get(name); t.orphan(c) && c.candidate != 0 && c.candidate < newest {
			sweep[name] = true
		}
	}
	var pinned []string
	for name := range sweep {
		for source := range t.strangers.sources(name) {
			if !sweep[source] && !(unhooked && t.hookOnly(source, name)) {
				pinned = append(pinned, name)
				break
			}
		}
	}
	for len(pinned) > 0 {
		name := pinned[len(pinned)-1]
		pinned = pinned[:len(pinned)-1]
		if !sweep[name] {
			continue
		}
		delete(sweep, name)
		c := t.edit(name)
		c.pinned = true
		pinned = append(pinned, c.strange...)
	}
	return slices.Sorted(maps.Keys(sweep))
}

// hookOnly tells whether source is a built-in chain whose jump to name can be taken out. An
// earlier run of ours put such a rule there: nobody else hooks up a chain of ours and leaves
// it to us. In a stranger's own chain a jump to ours is his, and pins.
func (t *Txn) hookOnly(source, name string) bool {
	c := t.get(source)
	return c.builtin && !slices.Contains(c.hidden, name)
}

// unhook takes the rules of built-in chains out that lead to orphans which can go then, or to
// deleted chains that are back, and those of kernel chains that an earlier run left.
func (t *Txn) unhook() {
	t.sweepLeftovers()
	for _, name := range append(t.orphansToDelete(true), t.comeBack()...) {
		for source := range t.strangers.sources(name) {
			if c := t.get(source); c.builtin {
				c = t.edit(source)
				c.unhook = append(slices.Clip(c.unhook), name)
				t.touch(source)
			}
		}
	}
}

// comeBack returns the deleted chains that somebody has brought back, of those that the batch
// looks at. Nothing led to them when they were deleted, so that he has brought back what leads
// to them now as well, as who restores a table does that he saved earlier. To leave it would
// drop what comes that way.
func (t *Txn) comeBack() []string {
	var out []string
	for _, name := range t.queue {
		if t.s.buried[name] && t.get(name).exists() && t.get(name).content == Condemned && t.needs.len(name) == 0 {
			out = append(out, name)
		}
	}
	return out
}
