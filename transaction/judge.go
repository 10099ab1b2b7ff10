// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// fail refuses a message at plan time; the first reason stays.
func (t *Txn) fail(message int, err *Error) {
	if message < 0 {
		return
	}
	if t.failed == nil {
		t.failed = map[int]*Error{}
	}
	if t.failed[message] == nil {
		t.failed[message] = err
	}
}

// Refused returns the messages that Plan found impossible, by index, with the reason. The
// plan of such a batch must not be used; State.Propose leaves them out and plans again.
func (t *Txn) Refused() map[int]*Error {
	t.Plan()
	return t.failed
}

// judge looks at the batch as a whole, once every chain is decided.
func (t *Txn) judge() {
	if len(t.failed) == 0 {
		t.judgeNoStub()
	}
	if len(t.failed) == 0 {
		t.judgeLoops()
	}
	if len(t.failed) == 0 && t.s.cfg.MaxDepth > 0 {
		t.judgeDepth()
	}
	if len(t.failed) == 0 {
		t.judgePlaces()
	}
}

// mayStub tells whether an absent chain can be made a stub. If not, every message of the
// batch that put in a jump to it is refused.
func (t *Txn) mayStub(name string) bool {
	reason, err := t.stubRefusal(name)
	if err == nil {
		return true
	}
	for _, b := range t.blame(name) {
		t.fail(b.message, t.errorf(t.msgs[b.message], err, b.chain, b.rule, "%s", reason))
	}
	return false
}

func (t *Txn) stubRefusal(name string) (string, error) {
	if similar := rules.SimilarTarget(name); similar != "" {
		return "unknown target " + name + "; did you mean " + similar + "?", ErrUnknownTarget
	}
	if rules.IsVerdict(name) || rules.IsExtension(name) || t.s.extensions[name] {
		return "-g " + name + ": " + name + " is not a chain; write -j " + name, ErrUnknownTarget
	}
	if err := rules.CheckChainName(name); err != nil {
		return err.Error(), ErrBadName
	}
	if c := t.get(name); !t.s.mayBeOurs(name) && (c == nil || !c.ours) {
		return "chain " + name + " does not exist and is not ours: it has none of the prefixes " +
			strings.Join(t.s.cfg.Prefixes, " ") + "; write it first, or create it", ErrUnknownTarget
	}
	return "", nil
}

// culprit is a message that put a jump in, with the rule that jumps.
type culprit struct {
	message int
	chain   string
	rule    string
}

// blame returns the messages of the batch because of which something of ours jumps to a
// chain, in order.
func (t *Txn) blame(target string) []culprit {
	var out []culprit
	for source := range t.needs.sources(target) {
		out = append(out, t.blameEdge(source, target)...)
	}
	slices.SortFunc(out, func(a, b culprit) int { return a.message - b.message })
	if len(out) == 0 {
		// No message of the batch wrote the jump: what it needs has gone. Who touched it
		// (a Refresh) cannot repair it.
		if i, ok := t.cause[target]; ok && i >= 0 {
			out = append(out, culprit{message: i, chain: target})
		}
	}
	return out
}

// blameEdge returns the messages of the batch that made source jump to target.
func (t *Txn) blameEdge(source, target string) []culprit {
	if i, ok := t.writer[key{kind: 'c', chain: source}]; ok {
		return []culprit{{i, source, t.jumpTo(t.get(source).rules, target)}}
	}
	if i, ok := t.writer[key{kind: 'o', chain: source}]; ok && t.get(source).content == Override {
		return []culprit{{i, source, t.jumpTo(t.overrides[source].Rules, target)}}
	}
	var out []culprit
	for i, m := range t.msgs {
		b, ok := m.Body.(EditRules)
		if !ok || b.Chain != source {
			continue
		}
		for _, e := range b.Edits {
			if e.Op < Remove && t.s.jump(e.Rule) == target {
				out = append(out, culprit{i, source, e.Rule.String()})
				break
			}
		}
	}
	if i, ok := t.cause[source]; len(out) == 0 && ok && i >= 0 && t.get(source).content == Override {
		rs, _ := t.overrideOf(source) // set before; this batch makes the chain a stub
		out = append(out, culprit{i, source, t.jumpTo(rs, target)})
	}
	return out
}

func (t *Txn) jumpTo(rs []rules.Rule, target string) string {
	for _, r := range rs {
		if t.s.jump(r) == target {
			return r.String()
		}
	}
	return ""
}

// judgeNoStub refuses rules of kernel chains that would lead into a stub where their
// message asked not to.
func (t *Txn) judgeNoStub() {
	for i, m := range t.msgs {
		b, ok := m.Body.(EditRules)
		if !ok || !b.NoStub {
			continue
		}
		for _, e := range b.Edits {
			name := t.s.jump(e.Rule)
			if name == "" || e.Op >= Remove {
				continue
			}
			if c := t.get(name); c == nil || !c.wanted && (c.content == Stub || c.content == Condemned || c.content == Absent) {
				what := "has no content; send it first, or allow a stub"
				if t.refused[name] {
					what = "was rejected"
				}
				t.fail(i, t.errorf(m, ErrDependency, b.Chain, e.Rule.String(), "its chain %s %s", name, what))
			}
		}
	}
}
