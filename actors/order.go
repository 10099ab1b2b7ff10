// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"
)

// undone returns what is neither in the kernel nor refused, in the order in which it came.
func (r *run) undone() []*item {
	all := r.seq
	if all == nil && len(r.groups) > 0 {
		all = r.groups[0]
	}
	return r.undoneOf(all)
}

func (r *run) undoneOf(items []*item) []*item {
	return slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return it.done || it.off })
}

// setAside leaves an item to be judged last; why is the refusal at plan time, if that is what
// it was. From then on a group lacks something, so that what it misses may not be blamed.
func (r *run) setAside(it *item, why error) {
	r.partial = true
	r.deferred = append(r.deferred, it)
	if r.why == nil {
		r.why = map[*item]error{}
	}
	r.why[it] = why
}

// unseats tells whether what is judged last would have been in the way of a message that is
// in the kernel: one owner's chain in place of another's, say. Then it was at fault at its
// place in the order, whatever would be possible now.
func (r *run) unseats() bool {
	for i, it := range r.groups[0] {
		if it.landed && r.outcomes[i].Err != nil {
			return true
		}
	}
	return false
}

// besideLanded returns items and all that is in the kernel already, in the order of the
// batch, so that what is tried late overwrites nothing newer.
func (r *run) besideLanded(items []*item) []*item {
	in := make(map[*item]bool, len(items))
	for _, it := range items {
		in[it] = true
	}
	var out []*item
	for _, it := range r.seq {
		if in[it] || it.landed {
			out = append(out, it)
		}
	}
	return out
}
