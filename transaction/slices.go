// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// Slices cuts a first load: it returns the messages, by index, that write nothing but chains
// which the kernel lacks, in parts of about so many chains, so that each part may come as a
// block of its own before the rest of the batch. What is jumped to comes first, messages that
// need each other come in one part, and nothing reaches any of it before the rest is there. It
// returns nil where there is not more than one part's worth: nft takes a block in a time that
// grows with the square of its chains, and one block for everything is simpler.
func (t *Txn) Slices(most int) [][]int {
	t.Plan()
	s := slicer{t: t, writer: map[string]int{}, index: map[int]int{}, low: map[int]int{}, on: map[int]bool{}}
	writes := map[string]int{} // of each chain: how many messages write or delete it
	for _, m := range t.msgs {
		m.eachKey(func(k key) {
			if k.kind == 'c' || k.kind == 'h' {
				writes[k.chain]++
			}
		})
	}
	chains := 0
	for i, m := range t.msgs {
		if b, ok := m.Body.(RewriteChains); ok && t.firstLoad(b, writes) {
			chains += len(b.Chains)
			for _, c := range b.Chains {
				s.writer[c.Name] = i
			}
		}
	}
	if chains <= most {
		return nil
	}
	for i, m := range t.msgs {
		if b, ok := m.Body.(RewriteChains); ok && s.fits(i, b) && s.index[i] == 0 {
			s.visit(i)
		}
	}
	return s.pack(most)
}

// firstLoad tells whether a message writes only chains that the kernel lacks, and that no
// other message of the batch is about.
func (t *Txn) firstLoad(b RewriteChains, writes map[string]int) bool {
	return len(b.Chains) > 0 && !slices.ContainsFunc(b.Chains, func(c rules.Chain) bool {
		return t.s.chains[c.Name].exists() || writes[c.Name] > 1
	})
}

// slicer orders messages by what they jump to (Tarjan's algorithm).
type slicer struct {
	t          *Txn
	writer     map[string]int // of each chain of a first load
	index, low map[int]int
	on         map[int]bool
	stack      []int
	groups     [][]int
}

// fits tells whether a message is of the first load.
func (s *slicer) fits(i int, b RewriteChains) bool {
	return len(b.Chains) > 0 && s.of(b.Chains[0].Name) == i
}

func (s *slicer) of(chain string) int {
	if i, ok := s.writer[chain]; ok {
		return i
	}
	return -1
}

func (s *slicer) visit(i int) {
	s.index[i] = len(s.index) + 1
	s.low[i] = s.index[i]
	s.stack, s.on[i] = append(s.stack, i), true
	for _, c := range s.t.msgs[i].Body.(RewriteChains).Chains {
		for _, to := range s.t.next(c.Name) {
			switch j := s.of(to); {
			case j < 0 || j == i:
			case s.index[j] == 0:
				s.visit(j)
				s.low[i] = min(s.low[i], s.low[j])
			case s.on[j]:
				s.low[i] = min(s.low[i], s.index[j])
			}
		}
	}
	if s.low[i] != s.index[i] {
		return
	}
	at := slices.Index(s.stack, i)
	group := slices.Clone(s.stack[at:])
	s.stack = s.stack[:at]
	for _, j := range group {
		s.on[j] = false
	}
	slices.Sort(group)
	s.groups = append(s.groups, group)
}

// pack puts groups into parts. A group that jumps to a chain which only the rest of the batch
// writes stays with the rest, and so does what jumps to it.
func (s *slicer) pack(most int) [][]int {
	var parts [][]int
	room := 0
	left := map[int]bool{}
	for _, group := range s.groups {
		if s.needsRest(group, left) {
			for _, i := range group {
				left[i] = true
			}
			continue
		}
		n := 0
		for _, i := range group {
			n += len(s.t.msgs[i].Body.(RewriteChains).Chains)
		}
		if room < n || len(parts) == 0 {
			parts, room = append(parts, nil), most
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], group...)
		room -= n
	}
	return parts
}

func (s *slicer) needsRest(group []int, left map[int]bool) bool {
	for _, i := range group {
		for _, c := range s.t.msgs[i].Body.(RewriteChains).Chains {
			for _, to := range s.t.next(c.Name) {
				j := s.of(to)
				if j >= 0 && left[j] {
					return true
				}
				if _, written := s.t.writer[key{kind: 'c', chain: to}]; j < 0 && written && !s.t.s.chains[to].exists() {
					return true
				}
			}
		}
	}
	return false
}
