// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Bounds of what is tried away from the live table for one batch: of all of it together, and
// of a trial that comes when that is used up. A message that comes meanwhile waits for no more
// than that and the batch's blocks.
const (
	tryBudget   = 600 * time.Millisecond
	leastBudget = 100 * time.Millisecond
)

// purpose is what a trial is for.
type purpose uint8

const (
	tryKinds  purpose = iota + 1 // one rule of each kind that has not been seen at its hook
	tryRules                     // all rules of the kinds that one was refused of
	trySearch                    // the whole batch
	tryAll                       // the same as one block, when nothing in it is refused by itself
	tryPart                      // a part of it as one block, to find what fails only together
)

// trial is what is being tried.
type trial struct {
	purpose purpose
	samples []transaction.Sample
	places  map[string]transaction.Place // of the chains that samples are put into
	whole   *transaction.Trial
}

// nextTry returns what has to be tried before the planned batch is sent; nil when nothing has.
func (c *core) nextTry() []effect {
	r := c.run
	if !c.trier || r.last || r.partial {
		return nil
	}
	if r.hunt && !r.searched {
		return c.search()
	}
	if r.searched {
		return nil
	}
	samples := r.txn.Unproven(r.failed)
	if len(samples) == 0 {
		return nil
	}
	r.trial = &trial{purpose: tryKinds, samples: samples}
	if len(r.failed) > 0 {
		r.trial.purpose = tryRules
	}
	b := c.sampleBatch(r.trial)
	b.Budget = r.budget()
	return []effect{doTry{b}}
}

// budget is the time for the next trial of a batch; 0 is all that it takes.
func (r *run) budget() time.Duration {
	switch {
	case r.suspects == 1:
		return 0
	case r.hunt:
		return slowHunt
	}
	return max(tryBudget-r.spent, leastBudget)
}

// sampleBatch puts samples where they stand: in a chain reached from their hook, in the
// built-in chain itself, or in a chain that nothing reaches.
func (c *core) sampleBatch(t *trial) dataplane.Batch {
	t.places = map[string]transaction.Place{}
	byChain := map[string][]transaction.Sample{}
	var b dataplane.Batch
	for _, s := range t.samples {
		name := "tableward-kinds"
		switch {
		case s.Place.Direct:
			name = s.Place.Hook
		case s.Place.Hook != "":
			name += "-" + s.Place.Hook
		}
		t.places[name] = s.Place
		byChain[name] = append(byChain[name], s)
	}
	targets := map[string]bool{}
	var order []transaction.Sample
	for _, name := range slices.Sorted(maps.Keys(byChain)) {
		ss := byChain[name]
		// What ends a chain for every packet hides what is behind it from legacy.
		slices.SortStableFunc(ss, func(a, b transaction.Sample) int { return endsLast(a.Rule) - endsLast(b.Rule) })
		chain := rules.Chain{Name: name}
		for _, s := range ss {
			chain.Rules = append(chain.Rules, s.Rule)
			if to := s.Rule.Jump(); to != "" {
				targets[to] = true
			}
		}
		order = append(order, ss...)
		place := t.places[name]
		switch {
		case place.Direct:
			b.Kernel = append(b.Kernel, chain)
		case place.Hook != "":
			b.Around = append(b.Around, rules.Chain{Name: place.Hook, Rules: []rules.Rule{rules.MustParseRule("-j " + name)}})
			fallthrough
		default:
			b.Chains = append(b.Chains, chain)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(targets)) {
		b.Around = append(b.Around, rules.Chain{Name: to})
	}
	t.samples = order
	return b
}

func endsLast(r rules.Rule) int {
	if words, err := rules.SplitWords(r.String()); err == nil && len(words) == 2 && rules.IsVerdict(r.Target()) {
		return 1
	}
	return 0
}

// search tries the whole batch.
func (c *core) search() []effect {
	r := c.run
	r.searched = true
	whole := r.txn.Trial()
	r.trial = &trial{purpose: trySearch, whole: whole}
	b := batchOf(whole)
	unit := map[string]int{}
	b.Unit = func(chain string, index int) int {
		if m := whole.Message(chain, index); m >= 0 {
			return m
		}
		if _, ok := unit[chain]; !ok {
			unit[chain] = -1 - len(unit)
		}
		return unit[chain]
	}
	b.Budget = r.budget()
	return []effect{doTry{b}}
}

func batchOf(t *transaction.Trial) dataplane.Batch {
	return dataplane.Batch{Chains: t.Chains, Kernel: t.Kernel, Around: t.Around}
}

// onTry takes in what came of a trial, and goes on with the batch.
func (c *core) onTry(e tryDone) []effect {
	r := c.run
	if r == nil {
		return nil
	}
	r.spent += e.trial.Took
	if r.hunt {
		c.paceHunt(e.trial.Took)
	}
	switch r.trial.purpose {
	case tryPart:
		return c.triedPart(e)
	case tryAll:
		return c.triedWhole(e)
	}
	switch {
	case errors.Is(e.err, dataplane.ErrNoScratch):
		c.trier = false
	case e.err != nil:
		// Passing trouble. The live table judges by itself.
		r.searched = true
	case r.trial.purpose == trySearch:
		return c.searched(e.trial.Verdicts)
	default:
		return c.triedSamples(e.trial.Verdicts)
	}
	if r.trial.purpose == trySearch && r.err != nil {
		return c.isolateLive()
	}
	return c.attempt()
}

// triedSamples learns from samples of kinds, or from all rules of kinds that failed.
func (c *core) triedSamples(verdicts []dataplane.Verdict) []effect {
	t := c.run.trial
	judged := map[transaction.Place]map[int]dataplane.Verdict{}
	for _, v := range verdicts {
		p := t.places[v.Chain]
		if judged[p] == nil {
			judged[p] = map[int]dataplane.Verdict{}
		}
		judged[p][v.Index] = v
	}
	at := map[transaction.Place]int{}
	untried := map[string]bool{} // kinds of which nothing is known in time
	taken := t.purpose == tryKinds
	for _, s := range t.samples {
		v, refused := judged[s.Place][at[s.Place]]
		at[s.Place]++
		switch {
		case refused && v.Err != nil:
			where := s.Place
			if v.Hook == "" {
				where = transaction.Place{}
			}
			taken = false
			c.state.Refuse(s.Rule.String(), where, c.whyRefused(s.Rule, v))
			if t.purpose == tryKinds {
				c.run.fail(s.Kind)
			}
		case refused && v.Untried:
			taken = false
			untried[s.Kind] = true
			c.notNow(s)
		default:
			// Taken, or nothing that could be tried.
			c.state.Pass(s.Rule.String(), s.Place)
			c.state.Prove(s.Kind, s.Place)
		}
	}
	if t.purpose == tryKinds && len(untried) > 0 {
		for _, s := range c.run.txn.Unproven(untried) {
			if untried[s.Kind] {
				c.notNow(s)
			}
		}
	}
	if taken {
		return c.proposed() // nothing has changed that the plan is made from
	}
	c.dropOff()
	return c.attempt()
}

// notNow leaves a sample for later: its message, or, where no message of the batch wrote it,
// the live table's word.
func (c *core) notNow(s transaction.Sample) {
	if s.Message < 0 {
		c.state.Pass(s.Rule.String(), s.Place)
	} else {
		c.putOff(s.Message)
	}
}

// fail notes that a rule of a kind is refused: all others of it are tried one by one.
func (r *run) fail(kind string) {
	if r.failed == nil {
		r.failed = map[string]bool{}
	}
	r.failed[kind] = true
}

// searched learns which rules of the batch are refused, and tries the rest on the live table.
func (c *core) searched(verdicts []dataplane.Verdict) []effect {
	r := c.run
	whole := r.trial.whole
	found := false
	var out []effect
	for _, v := range verdicts {
		m := whole.Message(v.Chain, max(v.Index, 0))
		switch {
		case v.Untried && m >= 0:
			found = true
			c.putOff(m)
		case v.Err == nil:
		case m < 0:
			found = true
			if line, ok := whole.Line(v.Chain, v.Index); ok {
				out = append(out, c.breakLine(line, v.Err.Reason, v.Err)...)
			}
		case v.Index < 0:
			found = true
			if it := r.groups[0][r.txn.Source(m)]; !it.done {
				out = c.refuseFor(out, it, c.whyChain(it, v))
			}
		default:
			found = true
			line, _ := whole.Line(v.Chain, v.Index)
			c.state.Refuse(line.Rule.String(), placeOf(c.id, v), c.whyRefused(line.Rule, v))
		}
	}
	c.dropOff()
	if !found && r.err != nil {
		if c.asideUntriable(verdicts) {
			return append(out, c.retry(nil)...)
		}
		return append(out, c.tryWhole(whole, tryAll)...)
	}
	r.fresh, r.refused = true, nil
	return append(out, c.attempt()...)
}

// asideUntriable sets the messages aside of which a rule can be tried nowhere but on the live
// table, and tells whether there are some, and others: where nothing that can be tried is at
// fault, it is among them.
func (c *core) asideUntriable(verdicts []dataplane.Verdict) bool {
	r := c.run
	suspects, owners := map[*item]bool{}, map[string]bool{}
	for _, v := range verdicts {
		if m := r.trial.whole.Message(v.Chain, v.Index); v.Skipped != "" && m >= 0 {
			if it := r.groups[0][r.txn.Source(m)]; !it.done {
				suspects[it], owners[it.msg.Owner] = true, true
			}
		}
	}
	var rest []*item
	for _, it := range r.groups[0] {
		if suspects[it] || !it.done && owners[it.msg.Owner] && closes(it.msg) {
			suspects[it] = true
		} else {
			rest = append(rest, it)
		}
	}
	if len(suspects) == 0 || len(r.undoneOf(rest)) == 0 {
		return false
	}
	for _, it := range r.groups[0] {
		if suspects[it] {
			r.setAside(it, nil)
		}
	}
	r.groups[0] = rest
	return true
}

// placeOf is where a verdict has its rule refused.
func placeOf(id rules.TableID, v dataplane.Verdict) transaction.Place {
	if v.Hook == "" {
		return transaction.Place{}
	}
	return transaction.Place{Hook: v.Hook, Direct: rules.IsBuiltin(id.Name, v.Chain)}
}

// whyRefused is the tool's word on a rule; the plan says whose it is.
func (c *core) whyRefused(rule rules.Rule, v dataplane.Verdict) *transaction.Error {
	reason := v.Err.Reason
	if v.Hook != "" {
		reason += " (where it is reached from " + v.Hook + ")"
	}
	return &transaction.Error{Column: columnOf(rule.String(), v.Err.Reason), Reason: reason, Hook: v.Hook, Err: v.Err}
}

// whyChain is the tool's word on a chain's name, or on a message of which no rule is at fault
// alone.
func (c *core) whyChain(it *item, v dataplane.Verdict) *transaction.Error {
	return &transaction.Error{Table: c.id, ID: it.msg.ID, Owner: it.msg.Owner, Chain: v.Chain, Reason: v.Err.Reason, Err: v.Err}
}

// putOff leaves a message of the group for later: what is known to be good goes first.
func (c *core) putOff(message int) {
	r := c.run
	if message < 0 {
		return
	}
	if r.seq == nil {
		r.seq = r.groups[0]
	}
	it := r.groups[0][r.txn.Source(message)]
	if it.done || it.off {
		return
	}
	it.off, r.putOff = true, true
	c.suspects = append(c.suspects, it)
}

// dropOff takes out of the group what is refused or put off, and the policy DROP of an owner
// of whom something is put off.
func (c *core) dropOff() {
	r := c.run
	late := map[string]bool{}
	for _, it := range r.groups[0] {
		if it.off {
			late[it.msg.Owner] = true
		}
	}
	for _, it := range r.groups[0] {
		if late[it.msg.Owner] && closes(it.msg) && !it.done && !it.off {
			it.off = true
			c.suspects = append(c.suspects, it)
		}
	}
	r.groups[0] = slices.DeleteFunc(slices.Clone(r.groups[0]), func(it *item) bool { return it.done && !it.landed || it.off })
}

// missesSuspects puts off a message that is refused perhaps only for want of what has been
// put off; once, so that it has an answer in the end.
func (c *core) missesSuspects(it *item, o transaction.Outcome) bool {
	if len(c.suspects) == 0 || it.done || it.deferred || certain(o.Err) {
		return false
	}
	it.off, it.deferred = true, true
	c.suspects = append(c.suspects, it)
	return true
}
