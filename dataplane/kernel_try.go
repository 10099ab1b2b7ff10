// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"time"

	"github.com/tableward/tableward/rules"
)

// Batch is what a table would hold of somebody's messages: the final state, whatever the way
// to it. Chains are named once in all three lists together, but for Kernel and Around, which
// may name the same.
type Batch struct {
	Chains []rules.Chain // with their whole content
	Kernel []rules.Chain // rules that are put into built-in and foreign chains
	// Around are other chains, built-in ones too: those that reach the ones above and those
	// that these reach. Only their jumps count; a chain that they jump to exists.
	Around []rules.Chain

	// Budget is how long there may be new probes; 0 is no limit. What nothing is known of by
	// then is Untried. At least one unit gets its answer, however short the time.
	Budget time.Duration
	// Unit says which rules of Chains and Kernel stand and fall together, as those of one
	// message: rules of which it says the same. When one of them is refused nothing is asked
	// of the others any more. It is asked with index -1 for a chain of Chains without rules.
	// If it is nil each rule stands by itself.
	Unit func(chain string, index int) int
	// Whole has the batch loaded as one block, to see whether its rules fail together that are
	// taken one by one. There are no verdicts then; the error is ErrTogether if it is refused.
	Whole bool
}

// Verdict is what there is to say of one rule of a batch.
type Verdict struct {
	Chain string
	// Index counts the rules of Chain as the Batch has them, from 0. -1 is the chain itself:
	// its name is refused, or it cannot be hooked up although no rule is at fault alone. It is
	// also a unit of which it is known only that it is refused; Chain is then that of its first
	// rule.
	Index int
	Unit  int // what Batch.Unit says of it, 0 without one
	// Hook is the built-in chain from which the rule is refused, "" if it is refused anywhere.
	Hook string
	// Skipped says why the rule was not tried and never will be, in which case Err is nil.
	Skipped string
	// Untried tells that the time was over before the rule's turn came; Err is nil.
	Untried bool
	// Err has the rule's text and the tool's words. It is of class Rejected and has no Line.
	Err *RestoreError
}

// Trial is what came of trying a batch.
type Trial struct {
	Verdicts []Verdict // in the order of the batch; none of what would be taken
	// Probes is how often a scratch namespace was given a block, or several that follow each
	// other.
	Probes int
	Took   time.Duration
}

// Check is Try for those who want the verdicts alone.
func (k *Kernel) Check(ctx context.Context, id rules.TableID, b Batch) ([]Verdict, error) {
	t, err := k.Try(ctx, id, b)
	return t.Verdicts, err
}

// Try loads the rules of a batch in scratch network namespaces and returns a verdict for each
// that is refused or was not tried, in the order of the batch; none means that the kernel
// would take it all. It writes nothing to the live namespace, and reads from it only which
// ipsets there are. A rule of a set that does not exist there is refused; where that cannot
// be found out the set is taken to exist.
//
// Each rule is tried among its unit's, or with a few others, first where nothing reaches it,
// which shows what is refused wherever it stands; then reached from the built-in chains that
// would reach it in the table. A jump is tried with an empty chain as its target. So the verdict on a unit does
// not depend on the others, but for which built-in chains reach it, which is worked out from
// all that are not refused. What the kernel asks of the table as a whole is worked out too:
// that there is no loop, and no more chains in a row than Info says. Then the rule of the
// built-in chain is named, in the words that the kernel would have.
//
// Of a unit that is refused one rule is named, whichever was met first. So n units that are
// all refused take about 2n probes at most. A legacy tool does not say what the kernel
// refuses: there the rule of a unit is found by halves, and once 2n probes are made, or the
// time is over, the unit alone is named.
//
// A Kernel keeps some scratch namespaces, with a tool running in each, for the next Try. It
// uses several at once, and is safe for concurrent use.
//
// The error is ErrNoScratch, or a *RestoreError when the tools could not be run.
func (k *Kernel) Try(ctx context.Context, id rules.TableID, b Batch) (Trial, error) {
	if b.Whole {
		return k.tryWhole(ctx, id, b)
	}
	begin := time.Now()
	tools, err := k.toolset(id)
	if err != nil {
		return Trial{}, err
	}
	r, err := k.newRoom()
	if err != nil {
		return Trial{}, err
	}
	t := newTrial(k.backend, id, b)
	t.k, t.tools, t.begin = k, tools, begin
	if err := t.run(ctx, r); err != nil {
		return Trial{}, err
	}
	return Trial{Verdicts: t.verdicts(), Probes: int(t.probes.Load()), Took: time.Since(begin)}, nil
}
