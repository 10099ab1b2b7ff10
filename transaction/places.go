// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// ErrPlace says that a target or match is not allowed in this table, or at a hook that reaches the rule.
var ErrPlace = errors.New("not allowed there")

// Place is where a rule stands, as far as the kernel minds: reached from a built-in chain, in
// it (Direct), or reached from none (no Hook).
type Place struct {
	Hook   string
	Direct bool
}

// Sample is a rule of which nothing is known at its place.
type Sample struct {
	Rule  rules.Rule
	Kind  string // rules.Rule.Kind of it
	Place Place
	// Message is the index of the message that put it there, as Txn.Source takes it; -1 when it
	// was there before.
	Message int
}

// kindAt names what is proven once and for all.
type kindAt struct {
	kind  string
	place Place
}

// textAt names what was found out for a rule of the batch.
type textAt struct {
	rule  string
	place Place
}

// Prove says that the kernel takes rules of a kind at a place.
func (s *State) Prove(kind string, p Place) { s.proven[kindAt{kind, p}] = true }

// Refuse says that the kernel refuses a rule at a place, and why; without a Hook it refuses
// it anywhere. Pass says that it takes it. Both hold until Forget.
func (s *State) Refuse(rule string, p Place, err *Error) { s.refusals[textAt{rule, p}] = err }

// Pass says that the kernel takes a rule at a place; see Refuse.
func (s *State) Pass(rule string, p Place) { s.passed[textAt{rule, p}] = true }

// Forget drops what Refuse and Pass have said: an ipset or a module may come at any time.
func (s *State) Forget() {
	empty(&s.sound)
	empty(&s.kinds)
	empty(&s.refusals)
	empty(&s.passed)
}

// empty clears a map, and gives its room back if that is large.
func empty[K comparable, V any](m *map[K]V) {
	const large = 1000
	if len(*m) > large {
		*m = map[K]V{}
		return
	}
	clear(*m)
}

// Unproven returns a rule of each kind that the batch puts where no rule of that kind is
// known to be taken, in the order in which they were met. All of them are returned of kinds
// that some are asked for by name.
func (t *Txn) Unproven(all map[string]bool) []Sample {
	t.Plan()
	var out []Sample
	seen := map[kindAt]bool{}
	for _, s := range t.samples {
		if !seen[s.kindAt] || all[s.kind] {
			seen[s.kindAt] = true
			message := -1
			if w := t.writersOf(s.chain, s.rule); len(w) > 0 {
				message = w[len(w)-1].message
			}
			out = append(out, Sample{Rule: s.rule, Kind: s.kind, Place: s.place, Message: message})
		}
	}
	return out
}

// unproven is a rule of a chain, at a place where its kind is not proven.
type unproven struct {
	chain *chain
	rule  rules.Rule
	kindAt
}

// judgePlaces refuses rules that the kernel does not take where they stand. A rule that a
// jump of another message makes reachable from a hook where it is not allowed is a conflict.
func (t *Txn) judgePlaces() {
	j := placeJudge{t: t, hooks: map[string]rules.Hooks{}}
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		if c := t.chains[name]; len(c.put) > 0 {
			j.chain(c, c.put, j.hooksOf(name))
		}
	}
	j.newlyReached()
}

// placeJudge is one judgement of a batch.
type placeJudge struct {
	t     *Txn
	hooks map[string]rules.Hooks // after the batch
}

// hooksOf returns the built-in chains that reach a chain after the batch.
func (j *placeJudge) hooksOf(name string) rules.Hooks {
	h, known := j.hooks[name]
	if !known {
		h = reachedFrom(name, j.t.whole().sources)
		j.hooks[name] = h
	}
	return h
}

// reachedFrom returns the built-in chains from which there is a way to a chain.
func reachedFrom(name string, sources func(string) iter.Seq[string]) rules.Hooks {
	h := rules.HookOf(name)
	if h != 0 {
		return h
	}
	seen := map[string]bool{name: true}
	todo := []string{name}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for from := range sources(at) {
			if hook := rules.HookOf(from); hook != 0 {
				h |= hook
			} else if !seen[from] {
				seen[from] = true
				todo = append(todo, from)
			}
		}
	}
	return h
}

// chain judges rules of one chain at the hooks given.
func (j *placeJudge) chain(c *chain, rs []rules.Rule, hooks rules.Hooks) {
	places := placesOf(c, hooks)
	from, to := 0, len(rs) // of which nothing is known
	if was := j.t.s.chains[c.name]; was.taken() && hooks == reachedFrom(c.name, j.t.s.sources) {
		from, to = span(was.written, rs)
	}
	for i, r := range rs {
		if p, err := j.refusal(c, r, hooks, places); err != nil {
			j.refuse(c, r, p, err)
		} else if j.t.s.cfg.Kinds && i >= from && i < to {
			j.sample(c, r, places)
		}
	}
}

// taken tells whether the kernel holds the rules of ours that a chain was written with.
func (c *chain) taken() bool {
	return c.exists() && c.content == Ours && !c.blind && !c.isRead && !c.isSaved
}

// refusal returns why a rule is not taken in a chain that these hooks reach, and where.
func (j *placeJudge) refusal(c *chain, r rules.Rule, hooks rules.Hooks, places []Place) (Place, *Error) {
	t := j.t
	for _, ref := range rules.RefusalsOf(t.s.cfg.Backend, t.s.cfg.Table, r) {
		bad := ref.Reached & hooks
		if c.builtin {
			bad = ref.Direct & hooks
		}
		if !ref.Table && bad == 0 {
			continue
		}
		e := &Error{Column: ref.Column, Err: ErrPlace, Advice: ref.Advice}
		if bad != 0 {
			e.Hook = bad.Names()[0]
		}
		switch {
		case ref.Table:
			e.Reason = fmt.Sprintf("%s is not allowed in table %s", ref.Feature, t.s.cfg.Table.Name)
			return Place{}, e
		case c.builtin:
			e.Reason = ref.Feature + " is not allowed in " + e.Hook
		default:
			e.Reason = ref.Feature + " is not allowed in what is reached from " + e.Hook
		}
		return Place{e.Hook, c.builtin}, e
	}
	if len(t.s.refusals) == 0 {
		return Place{}, nil
	}
	if err := t.s.refusals[textAt{rule: r.String()}]; err != nil {
		return Place{}, err
	}
	for _, p := range places {
		if err := t.s.refusals[textAt{r.String(), p}]; err != nil {
			return p, err
		}
	}
	return Place{}, nil
}

// sample notes where nothing is known of a rule's kind.
func (j *placeJudge) sample(c *chain, r rules.Rule, places []Place) {
	s := j.t.s
	kind := s.kindOf(r)
	for _, p := range places {
		if k := (kindAt{kind, p}); !s.proven[k] && !s.passed[textAt{r.String(), p}] {
			j.t.samples = append(j.t.samples, unproven{c, r, k})
		}
	}
}

// kindOf is the rule's kind, worked out once for the batch, which may be planned several times.
func (s *State) kindOf(r rules.Rule) string {
	kind, known := s.kinds[r.String()]
	if !known {
		kind = r.Kind()
		s.kinds[r.String()] = kind
	}
	return kind
}

// placesOf are the places where a chain's rules stand that these hooks reach.
func placesOf(c *chain, hooks rules.Hooks) []Place {
	if hooks == 0 {
		return []Place{{}}
	}
	var out []Place
	for _, name := range hooks.Names() {
		out = append(out, Place{name, c.builtin})
	}
	return out
}

// refuse refuses the messages because of which a rule stands where it is not taken.
func (j *placeJudge) refuse(c *chain, r rules.Rule, p Place, err *Error) {
	t := j.t
	writers := t.writersOf(c, r)
	if len(writers) > 0 && t.failed[writers[0].message] != nil {
		return // refused already: the rest is judged without it
	}
	var candidates []int
	for _, w := range writers {
		candidates = append(candidates, w.message)
	}
	if p.Hook != "" && !p.Direct {
		candidates = append(candidates, t.labels(t.above(c.name))...)
	}
	slices.Sort(candidates)
	candidates = slices.Compact(candidates)
	set := minimalSet(candidates, func(in func(int) bool) bool {
		if len(writers) > 0 && !slices.ContainsFunc(writers, func(w culprit) bool { return in(w.message) }) {
			return false
		}
		return p.Hook == "" || p.Direct || subgraph{t, in}.path(p.Hook, c.name) != nil
	})
	if slices.ContainsFunc(set, func(m int) bool { return t.failed[m] != nil }) {
		return
	}
	path := subgraph{t, func(m int) bool { return slices.Contains(set, m) }}.path(p.Hook, c.name)
	way := ""
	if len(path) > 1 {
		way = ": " + strings.Join(path, " -> ")
	}
	again := Error{Table: t.s.cfg.Table, Chain: c.name, Rule: r.String(), Hook: err.Hook}
	for _, i := range set {
		e := *err
		e.Command = again.Reproduce(t.s.cfg.Backend)
		e.Table, e.ID, e.Owner = t.s.cfg.Table, t.msgs[i].ID, t.msgs[i].Owner
		e.Chain, e.Rule, e.Reason = c.name, r.String(), err.Reason+way
		if !slices.ContainsFunc(writers, func(w culprit) bool { return w.message == i }) {
			at := t.onPath(path, i)
			e.Chain, e.Rule, e.Column, e.Advice = at.chain, at.rule, 0, ""
			e.Hook = ""
			e.Reason = fmt.Sprintf("this jump makes rule %q of chain %s reachable: %s%s", r, c.name, err.Reason, way)
		}
		for _, other := range set {
			if other != i {
				e.With = append(e.With, t.msgs[other].ID)
			}
		}
		t.fail(i, &e)
	}
}

// onPath is what a message put into a path.
func (t *Txn) onPath(path []string, message int) culprit {
	for i := range len(path) - 1 {
		for _, c := range t.putIn(path[i], path[i+1]) {
			if c.message == message {
				return c
			}
		}
	}
	return culprit{message: message}
}

// writersOf returns the messages of the batch that put a rule into a chain, in order; none
// when it is there by what came before.
func (t *Txn) writersOf(c *chain, r rules.Rule) []culprit {
	if i, ok := t.writer[key{kind: 'c', chain: c.name}]; ok && c.wanted {
		return []culprit{{i, c.name, r.String()}}
	}
	if i, ok := t.writer[key{kind: 'o', chain: c.name}]; ok && c.content == Override {
		return []culprit{{i, c.name, r.String()}}
	}
	if c.content != Foreign {
		return nil
	}
	var out []culprit
	for i, m := range t.msgs {
		if b, ok := m.Body.(EditRules); ok && b.Chain == c.name {
			for _, e := range b.Edits {
				if e.Op < Remove && (e.Rule.String() == r.String() || slices.Contains(t.s.canonOf(e.Rule), r.String())) {
					out = append(out, culprit{i, c.name, e.Rule.String()})
					break
				}
			}
		}
	}
	return out
}

// above are the jumps on all ways to a chain.
func (t *Txn) above(name string) []jump {
	var out []jump
	seen := map[string]bool{name: true}
	for todo := []string{name}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for from := range t.whole().sources(at) {
			out = append(out, jump{from, at})
			if !seen[from] {
				seen[from] = true
				todo = append(todo, from)
			}
		}
	}
	return out
}

// path returns a shortest way from a built-in chain to a chain, ends included, nil when there
// is none.
func (g subgraph) path(hook, name string) []string {
	if hook == "" {
		return nil
	}
	down := map[string]string{name: ""}
	for todo := []string{name}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		if at == hook {
			var path []string
			for ; at != ""; at = down[at] {
				path = append(path, at)
			}
			return path
		}
		from := slices.Sorted(g.sources(at))
		for _, source := range from {
			if _, seen := down[source]; !seen {
				down[source] = at
				todo = append(todo, source)
			}
		}
	}
	return nil
}

// newlyReached judges the rules of chains that the batch does not write and that new jumps
// make reachable from hooks which did not reach them before.
func (j *placeJudge) newlyReached() {
	todo := slices.Sorted(maps.Keys(j.t.newEdges))
	grown := map[string]rules.Hooks{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		for _, to := range j.below(name) {
			if _, seen := grown[to]; seen {
				continue
			}
			grown[to] = j.hooksOf(to) &^ reachedFrom(to, j.t.s.sources)
			if grown[to] != 0 {
				j.reached(to, grown[to])
				todo = append(todo, to)
			}
		}
	}
}

// below are the chains that a chain may have made reachable from more hooks: those of its
// new jumps, or all that it jumps to when more hooks reach it than before.
func (j *placeJudge) below(name string) []string {
	hooks := j.hooksOf(name)
	if hooks == 0 {
		return nil
	}
	next := j.t.next(name)
	base := j.t.s.chains[name]
	if base == nil || hooks != reachedFrom(name, j.t.s.sources) {
		return next
	}
	return slices.DeleteFunc(slices.Clone(next), func(to string) bool {
		return contains(base.needs, to) || contains(base.strange, to)
	})
}

func (j *placeJudge) reached(name string, hooks rules.Hooks) {
	if c := j.t.get(name); c != nil && len(c.put) == 0 && !c.builtin {
		j.chain(c, j.t.contentOf(c), hooks)
	}
}

// sources yields the chains that jump to one, in no order, perhaps twice.
func (s *State) sources(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, x := range [...]index{s.needs, s.strangers} {
			for from := range x[name] {
				if !yield(from) {
					return
				}
			}
		}
	}
}

// contentOf returns the rules that are known to be ours in a chain.
func (t *Txn) contentOf(c *chain) []rules.Rule {
	switch c.content {
	case Ours:
		return c.rules
	case Override:
		rs, _ := t.overrideOf(c.name)
		return rs
	}
	return nil
}
