// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"context"
	"errors"
	"slices"

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
}

// Verdict is what there is to say of one rule of a batch.
type Verdict struct {
	Chain string
	// Index counts the rules of Chain as the Batch has them, from 0. -1 is the chain itself:
	// its name is refused, or it cannot be hooked up although no rule is at fault alone.
	Index int
	// Hook is the built-in chain from which the rule is refused, "" if it is refused anywhere.
	Hook string
	// Skipped says why the rule was not tried, in which case Err is nil.
	Skipped string
	// Err has the rule's text and the tool's words. It is of class Rejected and has no Line.
	Err *RestoreError
}

// Check loads a batch in a scratch network namespace and returns a verdict for each rule
// that is refused or was not tried, in the order of the batch; none means that the kernel
// would take it all. It writes nothing to the live namespace, and reads from it only which
// ipsets there are. A rule of a set that does not exist there is refused; where that cannot
// be found out the set is taken to exist.
//
// First everything is loaded without being reached, which shows what is refused wherever it
// stands. Then the rules of built-in chains are put in, each beside those before it that were
// taken: what is refused now is refused because of where it is reached from. A loop is
// refused too, but it may not be the rule at fault that is named.
//
// The error is ErrNoScratch, or a *RestoreError when the tools could not be run.
func (k *Kernel) Check(ctx context.Context, id rules.TableID, b Batch) ([]Verdict, error) {
	t, err := k.toolset(id)
	if err != nil {
		return nil, err
	}
	c := newTrial(k, t, id, b)
	defer c.small.close()
	for again := true; again; {
		if again, err = c.round(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(c.verdicts, func(a, b orderedVerdict) int { return cmp.Compare(a.order, b.order) })
	var out []Verdict
	for _, v := range c.verdicts {
		out = append(out, v.Verdict)
	}
	return out, nil
}

// trial is one Check.
type trial struct {
	k     *Kernel
	tools toolset
	id    rules.TableID

	chains   []string // user chains, in the order of their declaration
	items    []*item
	verdicts []orderedVerdict
	small    room // where single rules are tried, made when there is need of it
}

// item is a rule to be loaded.
type item struct {
	order int
	chain string
	index int
	text  string
	rule  rules.Rule
	own   bool // it belongs to the batch and can be at fault
	out   bool // refused or not to be tried: it is loaded no more
}

// orderedVerdict remembers where in the batch its rule stands.
type orderedVerdict struct {
	Verdict
	order int
}

func newTrial(k *Kernel, t toolset, id rules.TableID, b Batch) *trial {
	c := &trial{k: k, tools: t, id: id}
	declared := map[string]bool{}
	declare := func(name string) {
		if name != "" && !declared[name] && !rules.IsBuiltin(id.Name, name) {
			declared[name] = true
			c.chains = append(c.chains, name)
		}
	}
	for _, chain := range slices.Concat(b.Chains, b.Kernel) {
		declare(chain.Name)
		for i, r := range chain.Rules {
			c.items = append(c.items, &item{chain: chain.Name, index: i, text: r.String(), rule: r, own: true})
		}
	}
	seen := map[string]bool{}
	for _, chain := range b.Around {
		declare(chain.Name)
		for _, r := range chain.Rules {
			jump := r.Jump()
			if jump == "" {
				continue
			}
			declare(jump)
			text := "-j " + jump
			if r.IsGoto() {
				text = "-g " + jump
			}
			if line := chain.Name + " " + text; !seen[line] {
				seen[line] = true
				c.items = append(c.items, &item{chain: chain.Name, index: -1, text: text, rule: rules.MustParseRule(text)})
			}
		}
	}
	// nft walks a list of the chains of a block for each line: sorted ones are met soonest.
	slices.Sort(c.chains)
	for i, it := range c.items {
		it.order = i
		if it.own && !probeable(it.rule) {
			c.skip(it, "it would reach beyond a scratch namespace, or needs an object that one cannot have")
		}
	}
	return c
}

// skip takes a rule out without trying it.
func (c *trial) skip(it *item, why string) {
	it.out = true
	c.verdicts = append(c.verdicts, orderedVerdict{Verdict{Chain: it.chain, Index: it.index, Skipped: why}, it.order})
}

// refuse takes a rule out for what the tool said of it.
func (c *trial) refuse(it *item, hook string, re *RestoreError) {
	it.out = true
	index, text := it.index, it.text
	if !it.own {
		index, text = -1, ""
	}
	c.verdicts = append(c.verdicts, orderedVerdict{
		Verdict{Chain: it.chain, Index: index, Hook: hook, Err: refusal(re, text)}, it.order,
	})
}

// refusal is an error without what is true of the scratch block alone.
func refusal(re *RestoreError, text string) *RestoreError {
	e := *re
	e.Reason = ownReason(re)
	e.Class, e.Line, e.Text = Rejected, 0, text
	return &e
}

// remaining are the items that are still in and fit.
func (c *trial) remaining(fits func(*item) bool) []*item {
	var left []*item
	for _, it := range c.items {
		if !it.out && fits(it) {
			left = append(left, it)
		}
	}
	return left
}

func (c *trial) builtin(name string) bool { return rules.IsBuiltin(c.id.Name, name) }

// round loads what is left in a new namespace. It tells whether there has to be another
// one, because rules that others may have hidden behind were taken out.
func (c *trial) round(ctx context.Context) (again bool, err error) {
	var r room
	defer r.close()
	if err := c.open(ctx, &r); err != nil {
		return false, err
	}
	c.judgeSets(r.s)
	for _, it := range c.remaining(func(it *item) bool { return it.own && !r.s.judges(it.rule) }) {
		c.skip(it, "users are not known in this user namespace")
	}
	inner := c.remaining(func(it *item) bool { return !c.builtin(it.chain) })
	// A jump from around cannot end a chain, so it hides nothing from what comes behind it.
	hooked := c.remaining(func(it *item) bool { return c.builtin(it.chain) && !it.own })
	own := c.remaining(func(it *item) bool { return c.builtin(it.chain) && it.own })
	if err := c.load(ctx, &r, inner, ""); err != nil {
		return false, err
	}
	if err := c.load(ctx, &r, own, unreached); err != nil {
		return false, err
	}
	return c.hookUp(ctx, &r, append(hooked, own...))
}

// judgeSets refuses rules of sets that do not exist, and skips those whose sets could not
// be made.
func (c *trial) judgeSets(s *scratch) {
	for _, it := range c.remaining(func(it *item) bool { return len(it.rule.Sets()) > 0 }) {
		for _, name := range it.rule.Sets() {
			switch state := s.sets[setKey{c.id.IPVersion, name}]; {
			case it.out:
			case state.absent:
				c.refuse(it, "", &RestoreError{Class: Rejected, Reason: "set " + name + " does not exist"})
			case !state.made:
				c.skip(it, "set "+name+" cannot be made in a scratch namespace")
			}
		}
	}
}

// run runs one block in a room. An error that is returned says nothing about a rule.
func (c *trial) run(ctx context.Context, r *room, block []byte) (*RestoreError, error) {
	c.k.stats.probes.Add(1)
	return r.judge(c.k.restore(ctx, c.tools, r.s.start, r.s.lockFile, block))
}

// judge tells a refusal from an error that says nothing about a rule.
func (r *room) judge(re *RestoreError) (*RestoreError, error) {
	if re == nil {
		return nil, nil
	}
	switch re.Class {
	case Rejected, RejectedSomewhere, TooLarge:
		if r.s.alive() {
			return re, nil
		}
	}
	return nil, r.s.failure(re)
}

// room is a scratch namespace of one trial; the zero room is not open.
type room struct {
	s     *scratch
	used  int             // rules that were left in it
	hooks map[string]bool // built-in chains with a chain for trying rules
}

func (r *room) close() {
	if r.s != nil {
		_ = r.s.close() // a folder that stays is no reason to throw an answer away
		*r = room{}
	}
}

var errRefusedTogether = errors.New("rules are refused together that are taken one by one")
