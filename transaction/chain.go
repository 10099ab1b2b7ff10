// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

// Content says what the kernel's chain is believed to hold.
type Content uint8

// The contents of a chain.
const (
	Absent    Content = iota // no such chain
	Foreign                  // somebody else's: built in, or a chain that is not ours
	Earlier                  // ours by its name, written before this run
	Stub                     // the stub's rule, because something of ours jumps to it
	Override                 // what its owner wants instead of the stub's rule
	Condemned                // deleted by its owner, its name cannot go yet
	Ours                     // what its owner wrote
)

var contentWords = [...]string{"absent", "foreign", "earlier", "stub", "override", "condemned", "ours"}

// String returns the word used in output.
func (c Content) String() string { return contentWords[c] }

// chain is all that is known of one chain: the wish and the belief. A chain in State is
// never changed in place: a Txn changes a copy.
type chain struct {
	name    string
	builtin bool
	ours    bool // by its prefix, by the configuration, or because a message wrote it

	// The wish.
	wanted bool
	rules  []rules.Rule // what the owner wants; nil when not wanted
	owned  bool         // owner is meaningful
	owner  string
	broken bool // the kernel refused to take rules back after a stranger broke the chain
	spoken bool // in this run the owner has written or deleted it: no longer Earlier

	put []rules.Rule // what the transaction puts in, once it is planned

	// The belief.
	content   Content
	isRead    bool              // lines has the content; else written has it, or saved
	lines     []rules.SavedRule // as read; never sent when Err is set
	written   []rules.Rule      // as sent
	isSaved   bool              // saved has the content, as an earlier run left it: not parsed
	saved     []string
	digest    uint64   // of the content, as a scan has it; 0: not known
	sent      bool     // as a plan has it, and not verified yet
	blind     bool     // the content was only scanned: neither lines nor written has it
	found     []uint64 // digests of the rules of a blind chain, and
	want      []uint64 // those that the wish has, where they were found out
	policy    string   // of a built-in chain
	needs     []string // jumps that keep a chain alive: of Ours and Override, and of listed rules; sorted
	strange   []string // jumps of Foreign and Earlier content; sorted
	hidden    []string // jumps of rules that were read and cannot be taken over as rules
	candidate uint64   // number of the read that first showed it as an orphan; 0: none
	pinned    bool     // an orphan that a stranger's rule reaches

	// Of kernel chains only.
	lists        map[string]*ownerList
	brokenRules  map[string]bool // listed rules that the kernel did not take back, by text
	wantedPolicy string          // "" none
	policyOwner  string
	leftPolicy   string       // set and released again in this transaction: it stays as it was set
	rows         []row        // what the chain holds after the batch so far; nil: what was read
	unhook       []string     // orphans whose jumps go
	removed      []rules.Rule // withdrawn and not worked into rows yet; every copy goes, once
	leftover     []ListedRule // listed by an earlier run, as long as grace and the next Cleanup have not come
	left         uint64       // number of the read that first showed the chain with them
}

// exists tells whether the kernel has the chain.
func (c *chain) exists() bool { return c != nil && c.content != Absent }

// ownerList is what one owner lists in one kernel chain.
type ownerList struct {
	priority          int
	top, bottom, bans []rules.Rule
	placed            []Edit // InsertNear, InsertBefore and InsertAfter, in order
}

func (l *ownerList) clone() *ownerList {
	return &ownerList{
		priority: l.priority, top: slices.Clone(l.top), bottom: slices.Clone(l.bottom), bans: slices.Clone(l.bans),
		placed: slices.Clone(l.placed),
	}
}

// empty tells whether the owner has nothing left in the chain.
func (l *ownerList) empty() bool { return len(l.top)+len(l.bottom)+len(l.bans)+len(l.placed) == 0 }

// jumpsOf returns the chains that rs jump to, sorted, each once.
func (s *State) jumpsOf(rs []rules.Rule) []string {
	var out []string
	for _, r := range rs {
		if name := s.jump(r); name != "" {
			out = append(out, name)
		}
	}
	if len(out) < 2 {
		return out
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// jump is rules.Rule.Jump, with the extensions that only this host has taken out.
func (s *State) jump(r rules.Rule) string {
	name := r.Jump()
	if name != "" && !r.IsGoto() && s.extensions[name] {
		return ""
	}
	return name
}
