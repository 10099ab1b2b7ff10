// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tableward/tableward/rules"
)

// trial is one Try.
//
// What is learnt of a rule holds for the whole trial: that it is taken, or refused, at some
// place. Verdicts are worked out from that between rounds, when no worker runs. So they do
// not depend on which worker was the first.
type trial struct {
	k     *Kernel
	tools toolset
	id    rules.TableID

	names map[string]bool   // user chains that exist in the end
	items []*item           // in the order of the batch
	units []*unit           // in the order of their first rule
	edges map[string][]edge // what each chain holds that counts for who reaches whom
	hooks []string          // built-in chains that have edges, in the order of the bits of places
	bad   []badName
	live  liveSets // if a rule names a set

	begin    time.Time
	budget   time.Duration
	answered atomic.Bool // some unit has its answer
	probes   atomic.Int64

	ctx    context.Context // of the tasks; cancelled when one has failed
	cancel context.CancelFunc
	wg     sync.WaitGroup // workers beside the first
	mu     sync.Mutex     // guards queue and err
	queue  []task
	err    error
}

// places are where a rule is tried: a bit for each built-in chain that reaches it, and these.
type places uint16

const (
	unreached places = 1 << 15 // where nothing reaches it
	hidden    places = 1 << 14 // legacy: in its built-in chain, behind the end
)

// item is a rule of the batch, or a chain without rules.
type item struct {
	order   int
	chain   string
	index   int // -1 for a chain without rules
	text    string
	rule    rules.Rule
	unit    *unit
	skipped string // why it is never tried

	need places // where it has to be taken
	done places // where it was
}

// unit is rules that stand and fall together.
type unit struct {
	id    int
	items []*item
	bads  []bad
	fault *bad // why it is out, nil as long as it is not
	stop  bool // it was refused somewhere in this round
}

// bad is a refusal that was met.
type bad struct {
	item  *item  // whose rule it is, nil if that is not known
	chain string // instead: a chain whose name it is
	at    places
	re    *RestoreError
}

// badName is a chain's name that the tool refuses.
type badName struct {
	chain string
	re    *RestoreError
}

// edge is what of a chain's content counts for who reaches whom.
type edge struct {
	item *item // nil for what is around
	jump string
}

func newTrial(k *Kernel, tools toolset, id rules.TableID, b Batch) *trial {
	t := &trial{
		k: k, tools: tools, id: id, budget: b.Budget,
		names: map[string]bool{}, edges: map[string][]edge{},
	}
	own := slices.Concat(b.Chains, b.Kernel)
	for _, c := range slices.Concat(own, b.Around) {
		t.exists(c.Name)
	}
	for _, c := range b.Around {
		for _, r := range c.Rules {
			t.exists(r.Jump())
		}
	}
	units := map[int]*unit{}
	for i, c := range own {
		for j, r := range c.Rules {
			t.add(units, b.Unit, &item{chain: c.Name, index: j, text: r.String(), rule: r})
		}
		if len(c.Rules) == 0 && i < len(b.Chains) {
			t.add(units, b.Unit, &item{chain: c.Name, index: -1})
		}
	}
	t.connect(b)
	return t
}

func (t *trial) exists(name string) {
	if name != "" && !t.builtin(name) {
		t.names[name] = true
	}
}

func (t *trial) builtin(name string) bool { return rules.IsBuiltin(t.id.Name, name) }

func (t *trial) add(units map[int]*unit, of func(string, int) int, it *item) {
	it.order = len(t.items)
	t.items = append(t.items, it)
	if it.index >= 0 && suspect(it.text) && !probeable(it.rule) {
		it.skipped = "it would reach beyond a scratch namespace, or needs an object that one cannot have"
	}
	var u *unit
	id := 0
	if of != nil {
		id = of(it.chain, it.index)
		u = units[id]
	}
	if u == nil {
		u = &unit{id: id}
		units[id] = u
		t.units = append(t.units, u)
	}
	it.unit = u
	u.items = append(u.items, it)
}

// suspect tells whether probeable has to be asked, which takes the rule apart.
func suspect(text string) bool {
	for _, s := range []string{"IDLETIMER", "LED", "RATEEST", "CT", "nfacct", "rateest", "--object-pinned", "\\"} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// target returns the chain that a rule leads to, "" if it leads to none: in a table with a
// chain of an extension's name that chain is meant.
func (t *trial) target(r rules.Rule) string {
	if t.names[r.Target()] {
		return r.Target()
	}
	return ""
}

// connect notes what counts for who reaches whom. In a built-in chain what is around comes
// first, in any other last.
func (t *trial) connect(b Batch) {
	around := map[string][]edge{}
	for _, c := range b.Around {
		seen := map[string]bool{}
		for _, r := range c.Rules {
			if jump := r.Jump(); jump != "" && !seen[jump] {
				seen[jump] = true
				around[c.Name] = append(around[c.Name], edge{jump: jump})
			}
		}
		if t.builtin(c.Name) {
			t.edges[c.Name] = around[c.Name]
			t.hooks = append(t.hooks, c.Name)
		}
	}
	for _, it := range t.items {
		if it.index < 0 {
			continue
		}
		if t.builtin(it.chain) && !slices.Contains(t.hooks, it.chain) {
			t.hooks = append(t.hooks, it.chain)
		}
		t.edges[it.chain] = append(t.edges[it.chain], edge{it, t.target(it.rule)})
	}
	for name, es := range around {
		if !t.builtin(name) {
			t.edges[name] = append(t.edges[name], es...)
		}
	}
}

// ends tells whether a rule ends its chain for every packet.
func (it *item) ends() bool {
	target, bare := strings.CutPrefix(it.text, "-j ")
	return bare && rules.IsVerdict(target)
}

// asked are the places where it is still to be tried.
func (it *item) asked() places {
	if it.skipped != "" {
		return 0
	}
	return it.need &^ it.done
}

// open tells whether there is something left to ask of a unit.
func (u *unit) open() bool {
	return u.fault == nil && !u.stop && slices.ContainsFunc(u.items, func(it *item) bool { return it.asked() != 0 })
}

// open are the units of which there is something left to ask.
func open(units []*unit) []*unit {
	return slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return !u.open() })
}

// refuse notes a refusal, after which nothing more is asked of the unit in this round.
func (t *trial) refuse(u *unit, it *item, at places, re *RestoreError) {
	u.bads = append(u.bads, bad{item: it, at: at, re: re})
	u.stop = true
	t.answered.Store(true)
}

// settle works out which units are out by what is known now, and who reaches whom without
// them. A rule that is refused where nothing reaches it reaches nobody; but what is reached
// through a rule that is refused at a hook only, and is refused there itself, is at fault too.
func (t *trial) settle() {
	for _, u := range t.units {
		u.stop = false
		for i := range u.bads {
			if b := &u.bads[i]; u.fault == nil && b.at == unreached {
				u.fault = b
			}
		}
	}
	for again := true; again; {
		t.reach()
		again = false
		for _, u := range t.units {
			if u.fault == nil {
				u.fault = u.applies()
				again = again || u.fault != nil
			}
		}
	}
}

// applies returns the first refusal that was met where the unit is reached now.
func (u *unit) applies() *bad {
	for i := range u.bads {
		b := &u.bads[i]
		hit := b.item != nil && b.item.need&b.at != 0
		if b.item == nil {
			hit = slices.ContainsFunc(u.items, func(it *item) bool { return it.need&b.at != 0 })
		}
		if hit {
			return b
		}
	}
	return nil
}

// verdicts are the answer.
func (t *trial) verdicts() []Verdict {
	around := t.loops()
	at := map[*item]Verdict{}
	for _, it := range t.items {
		switch {
		case it.skipped != "":
			at[it] = Verdict{Index: it.index, Skipped: it.skipped}
		case it.unit.fault == nil && it.asked() != 0:
			at[it] = Verdict{Index: it.index, Untried: true}
		}
	}
	for _, u := range t.units {
		if u.fault != nil && u.fault.chain == "" {
			it, v := t.faulty(u)
			at[it] = v
		}
	}
	for _, b := range t.bad {
		v := Verdict{Index: -1, Err: refusal(b.re, "")}
		i := slices.IndexFunc(t.items, func(it *item) bool { return it.chain == b.chain })
		if i < 0 {
			v.Chain = b.chain
			around = append(around, v)
			continue
		}
		at[t.items[i]] = v
	}
	var out []Verdict
	for _, it := range t.items {
		if v, found := at[it]; found {
			v.Chain, v.Unit = it.chain, it.unit.id
			out = append(out, v)
		}
	}
	return append(out, around...)
}

// faulty is the verdict on a unit that is out, and the rule that it is about.
func (t *trial) faulty(u *unit) (*item, Verdict) {
	it, v, text := u.fault.item, Verdict{}, ""
	if it == nil {
		it, v.Index = u.items[0], -1
	} else {
		v.Index, text = it.index, it.text
	}
	if u.fault.at != unreached {
		v.Hook = t.hookOf(it, u.fault.at)
	}
	v.Err = refusal(u.fault.re, text)
	return it, v
}

// refusal is an error without what is true of the scratch block alone.
func refusal(re *RestoreError, text string) *RestoreError {
	e := *re
	e.Reason = ownReason(re)
	e.Class, e.Line, e.Text, e.Lines, e.apart = Rejected, 0, text, nil, false
	return &e
}
