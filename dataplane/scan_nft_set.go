// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// lookup notes a set that is to be read: one in which a verdict is looked up, or one without a
// name of its own, which is a part of the rule.
func (s *nftScan) lookup(attrs []byte) error {
	at, err := findAttributes(attrs, unix.NFTA_LOOKUP_SET, unix.NFTA_LOOKUP_DREG)
	if err != nil {
		return err
	}
	set := cString(at[0])
	verdict := len(at[1]) == 4 && binary.BigEndian.Uint32(at[1]) == 0 // NFT_REG_VERDICT
	if verdict || anonymous(set) {
		s.reading.lookups = append(s.reading.lookups, nftLookup{len(s.content.rules), set})
	}
	return nil
}

// anonymous tells whether nft gave a set its name: "__set%d" or "__map%d".
func anonymous(set string) bool { return strings.HasPrefix(set, "__") }

// readLookups reads the sets that rules look something up in.
func (s *nftScan) readLookups() error {
	for _, c := range s.order {
		if len(c.lookups) == 0 {
			continue
		}
		jumps := content{jumps: c.Jumps}
		for _, l := range c.lookups {
			elements, to, err := s.elements(l.set)
			if err != nil {
				return err
			}
			jumps.jumps = append(jumps.jumps, to...)
			if anonymous(l.set) {
				c.Digests[l.rule] = withElements(c.Digests[l.rule], elements)
			}
		}
		c.Digest, c.Jumps = digestOfRules(c.Digests), jumps.jumpsTo()
		if !s.named {
			c.Digests = nil
		}
	}
	return nil
}

// withElements is the digest of a rule with the elements of a set of its own.
func withElements(rule uint64, elements []string) uint64 {
	all := content{buf: binary.NativeEndian.AppendUint64(nil, rule)}
	for _, e := range elements {
		all.text(e)
	}
	return digestOf(all.buf)
}

// elements returns the elements of a set in the form in which they are compared, sorted, and
// the chains to which they jump.
func (s *nftScan) elements(set string) (elements, jumps []string, err error) {
	err = s.dump(func() (uint64, error) {
		elements, jumps = nil, nil
		s.nl.begin(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, s.family)
		s.nl.add(unix.NFTA_SET_ELEM_LIST_TABLE, s.id.Name)
		s.nl.add(unix.NFTA_SET_ELEM_LIST_SET, set)
		err := s.ask(unix.NFT_MSG_NEWSETELEM, func(attrs []byte) error {
			at, err := findAttributes(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
			if err != nil {
				return err
			}
			list := attributes{rest: at[0]}
			for list.next() {
				e, to, err := element(list.data)
				if err != nil {
					return err
				}
				elements = append(elements, e)
				if to != "" {
					jumps = append(jumps, to)
				}
			}
			return list.err
		})
		slices.Sort(elements)
		var all content
		for _, e := range elements {
			all.text(e)
		}
		return digestOf(all.buf), err
	})
	return elements, jumps, err
}

const nftaSetElemKeyEnd = 10

// element returns what is compared of an element, and the chain to which it jumps, if it does.
func element(attrs []byte) (text, to string, err error) {
	var e content
	a := attributes{rest: attrs}
	for a.next() {
		switch a.kind {
		case unix.NFTA_SET_ELEM_DATA:
			if to, err = jumpOf(a.data); err != nil {
				return "", "", err
			}
		case unix.NFTA_SET_ELEM_KEY, unix.NFTA_SET_ELEM_FLAGS, nftaSetElemKeyEnd:
		default:
			continue // what changes: timeouts, expressions
		}
		e.number(uint32(a.kind))
		e.field(a.data)
	}
	return string(e.buf), to, a.err
}
