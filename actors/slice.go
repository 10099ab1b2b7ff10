// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

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

// longChain is how many rules one block of a first load has on nft of a chain that has more:
// the tool puts the target of each jump into a list in order.
const longChain = 500

// piece is a part of a block: the lines of its plan from one to another.
type piece struct{ from, to int }

// cutLong cuts a part of a first load that has a long chain into pieces that are sent one
// after the other: nothing reaches the chain before all of it is there.
func (c *core) cutLong(plan *transaction.Plan) bool {
	r := c.run
	r.pieces, r.piece = nil, piece{}
	// What is already reached, or was before somebody broke it, is never seen in half.
	if r.slices == 0 || c.state.Backend() != string(dataplane.NFT) || plan.Indexed || len(r.txn.Repairs()) > 0 {
		return false
	}
	rest, long, of := 0, 0, map[string]int{}
	for i, l := range plan.Modify.Lines {
		if l.Command != rules.Append {
			rest = i + 1 // all that declares comes first
			continue
		}
		of[l.Chain]++
		long = max(long, of[l.Chain])
	}
	if long <= longChain {
		return false
	}
	for from := 0; from < len(plan.Modify.Lines); {
		to := min(max(from, rest)+longChain, len(plan.Modify.Lines))
		r.pieces = append(r.pieces, piece{from, to})
		from = to
	}
	r.record.Cuts += len(r.pieces) - 1
	return true
}

// sendPiece sends the next piece.
func (c *core) sendPiece() []effect {
	r := c.run
	r.piece, r.pieces = r.pieces[0], r.pieces[1:]
	block := r.txn.Plan().Modify
	block.Lines = block.Lines[r.piece.from:r.piece.to]
	return []effect{doRestore{rules.AppendRestore(nil, block), phaseModify, false, 0}}
}

// pieceFailed returns the error of a piece as one of the whole block. Pieces that came before
// are in the kernel: what is there is looked at before the next plan.
func (c *core) pieceFailed(err error) error {
	r := c.run
	from := r.piece.from
	if r.piece == (piece{}) {
		return err
	}
	r.pieces, r.piece = nil, piece{}
	if from == 0 {
		return err
	}
	c.state.Unknown(r.txn)
	c.stale = true
	r.fresh = false
	var re *dataplane.RestoreError
	if !errors.As(err, &re) || re.Line == 0 {
		return err
	}
	whole := *re
	whole.Line += from
	whole.Lines = nil
	for _, l := range re.Lines {
		l.Line += from
		whole.Lines = append(whole.Lines, l)
	}
	return &whole
}
