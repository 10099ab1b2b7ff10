// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// Config is what does not change during the life of a State. The zero value of all but
// Table is a runtime without prefix, without grace, on a kernel without a limit of depth.
type Config struct {
	Table rules.TableID
	// Prefixes of our chains; each ends in '-', '_', '.' or ':'. Without any, each chain
	// that a message writes is ours, and each absent chain may become a stub.
	Prefixes []string
	// OwnChains are ours whatever their name.
	OwnChains []string
	// Grace is open at the start: nothing of an earlier run is stubbed or deleted.
	Grace bool
	// Owners are those whose InSync messages end grace.
	Owners []string
	// MaxDepth is the longest nest of chains below a built-in chain; 0 is no limit.
	MaxDepth int
	// Backend says whose rules hold for where a target or match may stand: "nft" or "legacy",
	// as rules.RefusalsOf has them; "" judges nothing of the kind.
	Backend string
	// Kinds has Unproven return what nobody knows the kernel to take; without it what the
	// kernel refuses shows when it does.
	Kinds bool
	// Extensions are targets of this host beyond those that package rules knows.
	Extensions []string
}

// Validate reports a Config that cannot work.
func (c Config) Validate() error {
	if err := c.Table.Validate(); err != nil {
		return err
	}
	for _, p := range c.Prefixes {
		if p == "" || !strings.ContainsAny(p[len(p)-1:], "-_.:") {
			return fmt.Errorf("prefix %q must end in one of - _ . :, so that it cannot cut a name in two", p)
		}
	}
	return nil
}

// State is what one table should hold (the wishes) and what it is believed to hold (from
// reads and from blocks that the kernel took). It is not safe for concurrent use.
//
// Invariants, held by Check:
//
//  1. needs and strangers are the exact reverse of the chains' jumps.
//  2. A wanted chain is ours, has an owner, and is not a kernel chain.
//  3. What a chain jumps to exists, unless a read showed otherwise.
//  4. A chain is a Stub or an Override only when it is not wanted and something needs it.
//  5. A rule is in one list of one owner at most once, and never both listed and banned.
//  6. Our chains do not jump in a circle.
//  7. Only a kernel chain has lists or a policy.
type State struct {
	cfg        Config
	extensions map[string]bool
	own        map[string]bool
	wrote      map[string]bool // names without prefix that a message of this run wrote: ours for its life
	chains     map[string]*chain
	special    map[string]struct{} // chains that each refresh looks at
	needs      index               // who of ours jumps to a chain
	strangers  index               // whose foreign or earlier content jumps to a chain
	overrides  map[string][]rules.Rule
	inSync     map[string]bool
	grace      bool
	reads      uint64              // number of reads observed
	dirty      map[string]struct{} // chains that a read showed to differ from the wishes
	canon      map[string]rules.Canon
	broken     map[string]bool        // chains with something that the kernel did not take back
	made       map[string]bool        // chains that a plan of unknown outcome has perhaps created
	unsure     map[string]bool        // chains that such a plan has perhaps written
	buried     map[string]bool        // chains that were deleted, and must not come back
	edits      bool                   // indexed edits may be planned
	loaded     map[string]*SavedChain // what an earlier run left, until the table has been seen
	proven     map[kindAt]bool
	sound      map[string]bool   // rules of the batch that were checked
	kinds      map[string]string // kinds of rules of the batch, by text
	refusals   map[textAt]*Error // of the batch
	passed     map[textAt]bool   // of the batch
}

// NewState returns the State of a table of which nothing has been read yet; call Observe
// before the first plan.
func NewState(cfg Config) (*State, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &State{
		cfg: cfg, grace: cfg.Grace,
		extensions: toSet(cfg.Extensions), own: toSet(cfg.OwnChains), wrote: map[string]bool{},
		chains: map[string]*chain{}, special: map[string]struct{}{}, needs: index{}, strangers: index{},
		overrides: map[string][]rules.Rule{}, inSync: map[string]bool{},
		dirty: map[string]struct{}{}, canon: map[string]rules.Canon{}, broken: map[string]bool{},
		sound: map[string]bool{}, kinds: map[string]string{}, made: map[string]bool{}, unsure: map[string]bool{}, buried: map[string]bool{},
		proven: map[kindAt]bool{}, refusals: map[textAt]*Error{}, passed: map[textAt]bool{},
	}
	for _, name := range rules.BuiltinChains(cfg.Table.Name) {
		s.chains[name] = &chain{name: name, builtin: true, content: Foreign, isRead: true}
	}
	return s, nil
}

// set puts a chain in, or a changed copy in its place.
func (s *State) set(c *chain) {
	s.chains[c.name] = c
	if c.special() {
		s.special[c.name] = struct{}{}
	} else {
		delete(s.special, c.name)
	}
}

// special tells whether each refresh looks at the chain.
func (c *chain) special() bool {
	return len(c.lists) > 0 || len(c.leftover) > 0 || c.content == Condemned || c.content == Earlier
}

func (s *State) unset(name string) {
	delete(s.chains, name)
	delete(s.special, name)
}

func toSet(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}

// Table returns the table that the State is about.
func (s *State) Table() rules.TableID { return s.cfg.Table }

// Backend is Config.Backend.
func (s *State) Backend() string { return s.cfg.Backend }

// Grace tells whether grace is open.
func (s *State) Grace() bool { return s.grace }

// Own makes names ours whatever their prefix, as Config.OwnChains does, from now on.
func (s *State) Own(names ...string) {
	for _, name := range names {
		s.own[name] = true
		base := s.chains[name]
		if base == nil || base.builtin || base.content != Foreign || len(base.lists) > 0 {
			continue
		}
		c := *base
		c.ours, c.content = true, Earlier
		s.set(&c)
	}
}

// hasPrefix tells whether name begins with a prefix of ours.
func (s *State) hasPrefix(name string) bool {
	return slices.ContainsFunc(s.cfg.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// oursByName tells whether a chain that is found under name is ours.
func (s *State) oursByName(name string) bool { return s.own[name] || s.hasPrefix(name) }

// mayBeOurs tells whether an absent chain may be created as a stub.
func (s *State) mayBeOurs(name string) bool {
	return len(s.cfg.Prefixes) == 0 || s.wrote[name] || s.oursByName(name)
}

// canonOf returns what the tool reads back for r, or its own text where that is not known.
func (s *State) canonOf(r rules.Rule) []string {
	if c := s.canon[r.String()]; len(c) > 0 {
		return c
	}
	return []string{r.String()}
}

// Begin starts a transaction. Many may be begun; at most one of those begun since the last
// Commit, Observe or Deleted may be committed.
func (s *State) Begin() *Txn {
	return &Txn{
		s: s, grace: s.grace,
		needs: newIndexTxn(s.needs), strangers: newIndexTxn(s.strangers),
	}
}

// Commit makes the wishes of a planned transaction those of the State, and what its plan
// writes what the kernel is believed to hold. Call it when the kernel has taken the plan's
// modify block, or when that block is empty.
func (s *State) Commit(t *Txn) {
	t.Plan()
	for name, c := range t.chains {
		c.rows, c.unhook, c.leftPolicy, c.put = nil, nil, "", nil
		if c.spoken && !s.oursByName(name) {
			s.wrote[name] = true
		}
		if c.wanted || c.content == Stub || c.content == Override {
			delete(s.buried, name)
		}
		if c.content == Absent && !c.wanted && len(c.lists) == 0 {
			s.unset(name)
		} else {
			s.set(c)
		}
		if !t.stillDirty[name] {
			delete(s.dirty, name)
		}
	}
	for name := range t.stillDirty {
		s.dirty[name] = struct{}{}
	}
	t.needs.commit()
	t.strangers.commit()
	for name, o := range t.overrides {
		if o.Remove {
			delete(s.overrides, name)
		} else {
			s.overrides[name] = o.Rules
		}
	}
	for owner := range t.inSync {
		s.inSync[owner] = true
	}
	s.grace = t.grace
	s.reads += t.reads
}

// Unknown says that nobody knows whether the kernel has taken a plan. The chains that it
// creates are ours when the next read shows them, whatever their names.
func (s *State) Unknown(t *Txn) {
	for _, name := range slices.Concat(t.Plan().Rewritten, t.Plan().Stubs) {
		if !s.chains[name].exists() {
			s.made[name] = true
		}
	}
	for name := range t.chains {
		s.unsure[name] = true
	}
}

// Edits says whether a chain that holds what it is known to hold may be changed rule by rule,
// by index: whether the tool can do it, and whether who sends the plan makes sure that nobody
// else has changed the table since; see Plan.Indexed.
func (s *State) Edits(may bool) { s.edits = may }

// mostBuried bounds how many deleted chains are remembered.
const mostBuried = 100_000

// Deleted says that the kernel has deleted chains of a plan's delete block.
func (s *State) Deleted(names ...string) {
	for _, name := range names {
		c := s.chains[name]
		if c == nil || c.wanted || c.builtin {
			continue
		}
		for _, target := range c.needs {
			s.needs.set(target, name, false)
		}
		for _, target := range c.strange {
			s.strangers.set(target, name, false)
		}
		s.unset(name)
		delete(s.dirty, name)
		if len(s.buried) < mostBuried {
			s.buried[name] = true
		}
	}
}

// Broken says that the kernel does not take back what a plan would have repaired with a
// line: its set has gone, say. A chain keeps what it holds, or is a stub where it is gone; an
// override makes way for the stub's rule; a rule of a kernel chain stays out. That ends when
// the owner writes it again, or when Mend has it tried again.
func (s *State) Broken(line rules.Line) {
	base := s.chains[line.Chain]
	if base == nil {
		return
	}
	c := *base
	if c.content == Foreign {
		c.brokenRules = maps.Clone(c.brokenRules)
		if c.brokenRules == nil {
			c.brokenRules = map[string]bool{}
		}
		c.brokenRules[line.Rule.String()] = true
	} else {
		c.broken = true
		s.dirty[c.name] = struct{}{}
	}
	s.broken[c.name] = true
	s.chains[c.name] = &c
}

// Mend has what is Broken tried again by the next plan that looks at it.
func (s *State) Mend() {
	for name := range s.broken {
		if base := s.chains[name]; base != nil {
			c := *base
			c.broken, c.brokenRules = false, nil
			s.chains[name] = &c
		}
	}
	clear(s.broken)
}

// Pinned says that the kernel refused to delete a chain: somebody we do not see reaches it.
func (s *State) Pinned(name string) {
	if c := s.chains[name]; c != nil {
		c := *c
		c.pinned = true
		s.chains[name] = &c
	}
}

// Named returns the chains whose content is one of those given, sorted.
func (s *State) Named(contents ...Content) []string {
	var out []string
	for name, c := range s.chains {
		if slices.Contains(contents, c.content) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Dirty tells whether a chain was found to differ from the wishes and is not repaired.
func (s *State) Dirty(name string) bool {
	_, dirty := s.dirty[name]
	return dirty
}

// Stubs returns the chains that are stubs, sorted.
func (s *State) Stubs() []string { return s.Named(Stub, Override) }

// Condemned returns the chains that were deleted by their owner and are still there, sorted.
func (s *State) Condemned() []string { return s.Named(Condemned) }

// PinnedChains returns the orphans that cannot go because a stranger's rule reaches them.
func (s *State) PinnedChains() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		if c := s.chains[name]; c.pinned && c.content == Earlier {
			out = append(out, name)
		}
	}
	return out
}

// ContentOf returns what the chain is believed to hold.
func (s *State) ContentOf(name string) Content {
	if c := s.chains[name]; c != nil {
		return c.content
	}
	return Absent
}
