// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// Result is what becomes of a message once the kernel has taken its batch.
type Result uint8

// The results.
const (
	Applied    Result = iota + 1 // its effect is in the kernel
	Superseded                   // all that it writes, later messages of the batch write
	Rejected                     // its own fault; Err says what
	Conflict                     // fails only together with others; Err.With names them
	Waiting                      // no answer yet: the kernel chain that it is about does not exist
)

// Outcome is the Result of one message.
type Outcome struct {
	Result Result
	Err    *Error // of Rejected and Conflict
	// Remaining replaces a Waiting message of which later messages of the batch write a part:
	// that part must not come when the kernel chain does.
	Remaining *Message
}

// Propose applies messages to a new Txn and plans it, leaving out what cannot be planned,
// until the rest can. The outcomes, one for each message in order, hold once the kernel has
// taken the plan's modify block. What is left out is judged against the rest as it is in
// the end, so an earlier message that another's refusal makes good again is taken. Gone are
// messages of the same batch that were refused before: a policy DROP of their owners is held.
func (s *State) Propose(msgs []Message, gone ...Message) (*Txn, []Outcome) {
	out := make([]Outcome, len(msgs))
	refused := map[string]bool{}
	for _, m := range gone {
		noteRefused(refused, m)
	}
	for {
		t, index := s.try(msgs, out)
		for i, o := range out {
			if o.Err != nil {
				noteRefused(refused, msgs[i])
			}
		}
		t.refused = refused
		failed := t.Refused()
		for i, err := range failed {
			out[index[i]] = refusal(err)
		}
		again := len(failed) > 0
		if !again {
			again = holdPolicies(t, msgs, out, gone)
		}
		if again {
			continue
		}
		for i := range t.msgs {
			out[index[i]].Result = Applied
			if t.superseded(i) {
				out[index[i]].Result = Superseded
			}
		}
		t.overtake(msgs, out)
		t.source = index
		return t, out
	}
}

// try applies each message that is not refused for good, and notes in out what does not go
// in: waiting messages, and refusals that the next round judges anew.
func (s *State) try(msgs []Message, out []Outcome) (*Txn, []int) {
	t := s.Begin()
	index := make([]int, 0, len(msgs))
	for i, m := range msgs {
		if err := out[i].Err; err != nil && !out[i].again() {
			continue
		}
		out[i] = Outcome{}
		if t.waits(m) {
			out[i].Result = Waiting
			continue
		}
		if err := t.Apply(m); err != nil {
			e := *err.(*Error)
			e.early = true
			out[i] = refusal(&e)
			continue
		}
		index = append(index, i)
	}
	return t, index
}

// again tells whether a refusal may be different in the next round: it was made by what
// stood when the message came, and that may have been refused since.
func (o Outcome) again() bool { return o.Err.early }

func refusal(err *Error) Outcome {
	if len(err.With) > 0 {
		return Outcome{Result: Conflict, Err: err}
	}
	return Outcome{Result: Rejected, Err: err}
}

func noteRefused(refused map[string]bool, m Message) {
	if b, ok := m.Body.(RewriteChains); ok {
		for _, c := range b.Chains {
			refused[c.Name] = true
		}
	}
}

// holdPolicies refuses a policy DROP whose owner has another message refused: what was to
// let traffic through is perhaps not there.
func holdPolicies(t *Txn, msgs []Message, out []Outcome, gone []Message) bool {
	bad := map[string]string{}
	for _, m := range gone {
		bad[m.Owner] = m.ID
	}
	for i, o := range out {
		if o.Err != nil {
			bad[msgs[i].Owner] = msgs[i].ID
		}
	}
	held := false
	for i, m := range msgs {
		b, ok := m.Body.(SetPolicy)
		other, refused := bad[m.Owner]
		if ok && refused && b.Policy == "DROP" && out[i].Err == nil {
			out[i] = refusal(t.errorf(m, ErrDependency, b.Chain, "", "the policy is not set, since message %q of the same owner was rejected", other))
			held = true
		}
	}
	return held
}

// waits tells whether a message has to wait for its kernel chain, which is never created.
func (t *Txn) waits(m Message) bool {
	b, ok := m.Body.(EditRules)
	if !ok || b.Kind() != "insert" || t.get(b.Chain).exists() {
		return false
	}
	return !t.s.oursByName(b.Chain) && rules.CheckChainName(b.Chain) == nil
}

// superseded tells whether later messages write all that message i writes.
func (t *Txn) superseded(i int) bool {
	keys, won := 0, 0
	t.msgs[i].eachKey(func(k key) {
		keys++
		if t.writer[k] == i {
			won++
		}
	})
	return keys > 0 && won == 0
}

// overtake finds the waiting messages that need wait no more, since later messages of the
// batch write all that they would: a rule that its owner withdraws must not come when its
// kernel chain does.
func (t *Txn) overtake(msgs []Message, out []Outcome) {
	last := map[key]int{}
	for i, m := range msgs {
		if _, edits := m.Body.(EditRules); edits && out[i].Err == nil {
			m.eachKey(func(k key) { last[k] = i })
		}
	}
	for i, m := range msgs {
		if out[i].Result != Waiting {
			continue
		}
		b := m.Body.(EditRules)
		rest := slices.DeleteFunc(slices.Clone(b.Edits), func(e Edit) bool {
			return last[key{kind: 'r', chain: b.Chain, owner: m.Owner, rule: e.Rule.String()}] != i
		})
		switch {
		case len(rest) == 0:
			out[i].Result = Superseded
		case len(rest) < len(b.Edits):
			b.Edits = rest
			m.Body = b
			out[i].Remaining = &m
		}
	}
}

// Unlearned returns the rules of which the State needs to know what the tool reads back
// before it can plan the messages well: those of kernel chains, and those of chains whose
// content was read and not written. Without that knowledge their own text is used.
func (s *State) Unlearned(msgs []Message) []rules.Rule {
	var out []rules.Rule
	seen := map[string]bool{}
	add := func(r rules.Rule) {
		text := r.String()
		if _, known := s.canon[text]; !known && !seen[text] && !r.IsZero() {
			seen[text] = true
			out = append(out, r)
		}
	}
	for _, m := range msgs {
		switch b := m.Body.(type) {
		case EditRules:
			for _, e := range b.Edits {
				add(e.Rule)
			}
		case RewriteChains:
			for _, want := range b.Chains {
				s.addRead(s.chains[want.Name], want.Rules, add)
			}
		case Refresh, Cleanup:
			for name := range s.dirty {
				if c := s.chains[name]; c != nil && c.wanted {
					s.addRead(c, c.rules, add)
				}
			}
		}
	}
	return out
}

// addRead adds the rules of a chain that was read and holds something else by text.
func (s *State) addRead(c *chain, want []rules.Rule, add func(rules.Rule)) {
	if c == nil || !c.exists() || !c.isRead || len(c.lines) == 0 {
		return
	}
	for _, r := range want {
		add(r)
	}
}
