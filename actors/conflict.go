// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"errors"
	"slices"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

// narrowing finds the smallest part of a group that is refused although each rule of it is
// taken alone: of several such parts the one whose last message comes first. Each question is
// a trial; a part that is refused stays so with more in it.
type narrowing struct {
	items    []*item // what is left to choose from, in order; with set it is refused
	set      []*item // what belongs to the part for certain
	lo, hi   int     // the next member is among items[lo:hi+1]
	checking bool    // set alone is being tried
	why      error   // what the tool said last
}

// ask returns the part to be tried next; nil when set is the answer.
func (n *narrowing) ask() []*item {
	if n.checking {
		return slices.Clone(n.set)
	}
	if n.lo < n.hi {
		return append(slices.Clone(n.items[:(n.lo+n.hi)/2+1]), n.set...)
	}
	n.set = append(n.set, n.items[n.lo])
	n.items = n.items[:n.lo]
	if len(n.items) == 0 {
		return nil
	}
	n.checking = true
	return slices.Clone(n.set)
}

// told takes in whether the part was refused, and returns the next one.
func (n *narrowing) told(refused bool) []*item {
	switch mid := (n.lo + n.hi) / 2; {
	case n.checking && refused:
		return nil
	case n.checking:
		n.checking, n.lo, n.hi = false, 0, len(n.items)-1
	case refused:
		n.hi = mid
	default:
		n.lo = mid + 1
	}
	return n.ask()
}

// narrow begins to look for the messages that fail only together.
func (c *core) narrow(why error) []effect {
	r := c.run
	items := r.undoneOf(r.groups[0])
	r.narrowing = &narrowing{items: items, hi: len(items) - 1, why: why}
	return c.askNarrowing(r.narrowing.ask())
}

func (c *core) askNarrowing(part []*item) []effect {
	if part == nil {
		return c.conflict()
	}
	r := c.run
	slices.SortFunc(part, bySeq)
	txn, _ := c.state.Propose(messages(part), r.gone...)
	return c.tryWhole(txn.Trial(), tryPart)
}

// tryWhole tries a batch as one block.
func (c *core) tryWhole(whole *transaction.Trial, p purpose) []effect {
	c.run.trial = &trial{purpose: p, whole: whole}
	b := batchOf(whole)
	b.Whole = true
	return []effect{doTry{b}}
}

// triedWhole goes on when nothing of a batch that the live table refuses is refused by
// itself: if it is refused together elsewhere too, those are looked for that fail only
// together. Else the live table has the last word: a legacy tool may have failed because
// somebody else wrote at the same time.
func (c *core) triedWhole(e tryDone) []effect {
	switch {
	case errors.Is(e.err, dataplane.ErrTogether):
		return c.narrow(e.err)
	case c.mayResend():
		return c.resend()
	}
	return c.isolateLive()
}

// triedPart goes on with the narrowing.
func (c *core) triedPart(e tryDone) []effect {
	refused := errors.Is(e.err, dataplane.ErrTogether)
	if e.err != nil && !refused {
		c.run.narrowing = nil // passing trouble; the live table judges by itself
		return c.isolateLive()
	}
	if refused {
		c.run.narrowing.why = e.err
	}
	return c.askNarrowing(c.run.narrowing.told(refused))
}

// conflict answers the messages that fail only together, each told of the others, and goes on
// without them.
func (c *core) conflict() []effect {
	r := c.run
	n := r.narrowing
	r.narrowing, r.searched = nil, false
	result := Conflict
	if len(n.set) == 1 {
		result = Rejected
	}
	slices.SortFunc(n.set, bySeq)
	var out []effect
	for _, it := range n.set {
		e := &transaction.Error{Table: c.id, ID: it.msg.ID, Owner: it.msg.Owner, Reason: reasonOf(n.why), Err: n.why}
		e.Chain, e.Rule = onlyRule(it.msg)
		for _, other := range n.set {
			if other != it {
				e.With = append(e.With, other.msg.ID)
			}
		}
		r.gone = append(r.gone, it.msg)
		out = c.conclude(out, it, result, e)
	}
	c.dropOff()
	return append(out, c.attempt()...)
}

func bySeq(a, b *item) int { return cmp.Compare(a.seq, b.seq) }

func reasonOf(err error) string {
	var re *dataplane.RestoreError
	if errors.As(err, &re) {
		return re.Reason
	}
	return err.Error()
}
