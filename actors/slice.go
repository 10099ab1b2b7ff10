// SPDX-License-Identifier: Apache-2.0

package actors

// firstLoadSlice is how many chains one block of a first load has on nft, which takes a block
// in a time that grows with the square of its chains: 100 measured best.
const firstLoadSlice = 100

// slice cuts a batch whose plan is the first load of many chains into parts that land one
// after the other, and the rest: what reaches them comes last. It tells whether it has.
func (c *core) slice() bool {
	r := c.run
	if r.sliced || r.split() || r.partial || c.state.Backend() != "nft" {
		return false
	}
	r.sliced = true
	parts := r.txn.Slices(firstLoadSlice)
	if len(parts) == 0 {
		return false
	}
	all := r.groups[0]
	in := map[*item]bool{}
	var groups [][]*item
	for _, part := range parts {
		var group []*item
		for _, i := range part {
			it := all[r.txn.Source(i)]
			in[it] = true
			group = append(group, it)
		}
		groups = append(groups, group)
	}
	var rest []*item
	for _, it := range all {
		if !in[it] {
			rest = append(rest, it)
		}
	}
	r.seq, r.partial, r.slices = all, true, len(groups)
	r.record.Cuts += len(groups)
	r.groups = append(append(groups, rest), r.groups[1:]...)
	r.fresh = true // as long as nothing has landed
	return true
}

// nextSlice goes on to the next part of a first load. The rest lacks nothing: all that was cut
// off has landed, or was refused.
func (c *core) nextSlice() {
	r := c.run
	if r.slices == 0 {
		return
	}
	r.fresh = true // what was read holds, but for what we have written
	r.searched, r.byLine, r.resent = false, false, false
	if r.slices--; r.slices == 0 && len(r.deferred) == 0 {
		r.partial = false
	}
}
