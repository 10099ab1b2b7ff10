// SPDX-License-Identifier: Apache-2.0

package transaction

import "github.com/tableward/tableward/rules"

// Learn stores what the tool reads back for a rule; nil when that cannot be had. The cache
// is emptied when it is large: what is still of use is asked for again.
func (s *State) Learn(text string, canon rules.Canon) {
	const most = 100_000
	if len(s.canon) >= most {
		empty(&s.canon)
	}
	for i, line := range canon {
		if r, err := rules.ParseRule(line); err == nil {
			canon[i] = r.String() // a tool's habits of quoting do not matter
		}
	}
	s.canon[text] = canon
}

// LearnWritten takes from a read that was made right after a write what the tool reads back
// for the rules that were written, where nothing else could tell. A chain teaches only when
// it holds as many rules as were written, and when each that is not ours is as it was.
func (s *State) LearnWritten(snap rules.Snapshot) {
	for name, read := range snap.Chains {
		c := s.chains[name]
		if c == nil || !read.Full {
			continue
		}
		if c.content == Foreign {
			s.learnLines(s.listedTexts(c), c.lines, read.Rules)
		} else if !c.isRead {
			s.learnWhole(c.written, read.Rules)
		}
	}
}

func (s *State) learnWhole(written []rules.Rule, read []rules.SavedRule) {
	if len(written) != len(read) {
		return
	}
	for i, r := range written {
		if k := lineKey(read[i]); k != "" {
			s.teach(r.String(), k)
		}
	}
}

// learnLines compares a kernel chain as it should be now with how it reads back.
func (s *State) learnLines(ours map[string]bool, believed, read []rules.SavedRule) {
	if len(believed) != len(read) || len(ours) == 0 {
		return
	}
	for i, l := range believed {
		if l.Text != read[i].Text && !ours[lineKey(l)] {
			return
		}
	}
	for i, l := range believed {
		if k := lineKey(read[i]); k != "" && ours[lineKey(l)] {
			s.teach(lineKey(l), k)
		}
	}
}

// teach stores a rule's canon unless it is known.
func (s *State) teach(text, line string) {
	if len(s.canon[text]) == 0 && text != line {
		s.Learn(text, rules.Canon{line})
	}
}

// listedTexts are the texts of the rules that owners list in a kernel chain.
func (s *State) listedTexts(c *chain) map[string]bool {
	texts := map[string]bool{}
	for _, l := range c.lists {
		for _, r := range l.rules() {
			texts[r.String()] = true
		}
	}
	return texts
}
