// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"maps"
	"slices"

	"github.com/tableward/tableward/rules"
)

// Trial is what has to be tried to know whether the kernel takes a batch: the final state of
// what it puts in, and how that is reached. Loops and depth are the plan's to judge.
type Trial struct {
	Chains []rules.Chain // whole chains that the batch writes
	Kernel []rules.Chain // the rules that it puts into kernel chains
	// Around are the chains above these, with their jumps on the way to them alone, and the
	// chains that these jump to, without rules.
	Around []rules.Chain

	messages map[string][]int
	rules    map[string][]rules.Rule
}

// Line returns a rule of Chains or Kernel as the line that puts it in.
func (r *Trial) Line(chain string, index int) (rules.Line, bool) {
	if of := r.rules[chain]; index >= 0 && index < len(of) {
		return rules.Line{Command: rules.Append, Chain: chain, Rule: of[index]}, true
	}
	return rules.Line{}, false
}

// Message returns the index of the message that the rule of a chain came from, as Source
// takes it; -1 when the plan repairs it and no message of the batch wrote it. Index counts
// the chain's rules in Chains or Kernel.
func (r *Trial) Message(chain string, index int) int {
	if of := r.messages[chain]; index >= 0 && index < len(of) {
		return of[index]
	}
	return -1
}

// Trial returns what there is to try of the batch.
func (t *Txn) Trial() *Trial {
	t.Plan()
	r := &Trial{messages: map[string][]int{}, rules: map[string][]rules.Rule{}}
	var put []string
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		c := t.chains[name]
		if len(c.put) == 0 {
			continue
		}
		put = append(put, name)
		r.messages[name], r.rules[name] = t.messagesOf(c), c.put
		chain := rules.Chain{Name: name, Rules: c.put}
		if c.content == Foreign {
			r.Kernel = append(r.Kernel, chain)
		} else {
			r.Chains = append(r.Chains, chain)
		}
	}
	r.Around = t.surroundings(put)
	return r
}

// messagesOf returns for each rule that the batch puts into a chain the last message that
// did, -1 for none.
func (t *Txn) messagesOf(c *chain) []int {
	of := make([]int, len(c.put))
	for i, r := range c.put {
		of[i] = -1
		if c.content != Foreign && i > 0 {
			of[i] = of[0] // a chain has one writer
		} else if w := t.writersOf(c, r); len(w) > 0 {
			of[i] = w[len(w)-1].message
		}
	}
	return of
}

// surroundings returns the chains above those given, and their targets.
func (t *Txn) surroundings(put []string) []rules.Chain {
	above := map[string]bool{}
	todo := slices.Clone(put)
	for _, name := range put {
		above[name] = true
	}
	jumps := map[string][]string{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		for from := range t.whole().sources(name) {
			jumps[from] = append(jumps[from], name)
			if !above[from] {
				above[from] = true
				todo = append(todo, from)
			}
		}
	}
	for _, name := range put {
		for _, r := range t.get(name).put {
			if to := t.s.jump(r); to != "" && !above[to] {
				jumps[to] = nil
				above[to] = true
			}
		}
	}
	var out []rules.Chain
	for _, name := range slices.Sorted(maps.Keys(jumps)) {
		c := t.get(name)
		if c != nil && len(c.put) > 0 && c.content != Foreign {
			continue // with its whole content
		}
		around := rules.Chain{Name: name}
		targets := jumps[name]
		slices.Sort(targets)
		for _, to := range slices.Compact(targets) {
			if r, err := rules.ParseRule(t.jumpText(to)); err == nil { // a stranger's name may be odd
				around.Rules = append(around.Rules, r)
			}
		}
		out = append(out, around)
	}
	return out
}

// jumpText is a rule that jumps to a chain, whatever the chain's name.
func (t *Txn) jumpText(to string) string {
	option := "-j "
	if rules.IsExtension(to) || t.s.extensions[to] {
		option = "-g "
	}
	return option + string(rules.AppendWord(nil, to))
}
