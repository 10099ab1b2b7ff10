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
	backend Backend
	id      rules.TableID
	k       *Kernel // nil in a Sim
	tools   toolset

	names map[string]bool   // user chains that exist in the end
	items []*item           // in the order of the batch
	units []*unit           // in the order of their first rule
	edges map[string][]edge // what each chain holds that counts for who reaches whom
	hooks []string          // built-in chains that have edges, in the order of the bits of places
	bad   []badName
	live  liveSets         // if a rule names a set
	kinds map[kind][]*item // legacy: the rules of each kind

	begin    time.Time
	budget   time.Duration
	answered atomic.Bool // some unit has its answer
	found    atomic.Bool // some unit is refused, be it not known for which rule
	over     bool        // there was no time for all
	naming   bool        // the rules of units that are refused are looked for
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
	reached          = ^(unreached | hidden)
)

// item is a rule of the batch, or a chain without rules.
type item struct {
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
	fault *bad   // why it is out, nil as long as it is not
	met   places // where it was refused in this round
	whole *unit  // the unit that this one stands for, if it is not one of the batch
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

func newTrial(backend Backend, id rules.TableID, b Batch) *trial {
	t := &trial{
		backend: backend, id: id, budget: b.Budget,
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

// asked are the places where it is still to be tried. Of a unit that a hook refuses it is
// still asked whether it is refused wherever it stands: then it leads nowhere.
func (it *item) asked() places {
	switch {
	case it.skipped != "", it.unit.met&unreached != 0:
		return 0
	case it.unit.met != 0:
		return it.need &^ it.done & unreached
	}
	return it.need &^ it.done
}

// open tells whether there is something left to ask of a unit.
func (u *unit) open() bool {
	return u.fault == nil && slices.ContainsFunc(u.items, func(it *item) bool { return it.asked() != 0 })
}

// answered tells whether all of a unit is taken.
func (u *unit) answered() bool {
	if u.whole != nil {
		u = u.whole
	}
	return u.met == 0 && !u.open()
}

// open are the units of which there is something left to ask.
func open(units []*unit) []*unit {
	return slices.DeleteFunc(slices.Clone(units), func(u *unit) bool { return !u.open() })
}

// refuse notes a refusal, after which little more is asked of the unit in this round.
func (t *trial) refuse(u *unit, it *item, at places, re *RestoreError) {
	if it == nil && len(u.items) == 1 {
		it = u.items[0]
	}
	if u.whole != nil {
		u = u.whole
	}
	u.met |= at
	u.bads = append(u.bads, bad{item: it, at: at, re: re})
	t.found.Store(true)
	if it != nil {
		t.answered.Store(true)
	}
}
