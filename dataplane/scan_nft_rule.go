// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// largeScan is from how many chains on a table is read by two at once, on two sockets: most of
// the time goes into the copies that the kernel makes, and into digests.
const largeScan = 500

// readRules reads the rules of the chains that were found, one chain after the other. A dump
// of the whole table takes longer by the square of the number of rules, and most of its parts
// would have to be read twice.
func (s *nftScan) readRules() error {
	var next atomic.Int64
	if len(s.order) < largeScan || runtime.GOMAXPROCS(0) < 2 {
		return s.readFrom(&next)
	}
	if s.beside == nil {
		s.beside = &reader{ns: s.ns, inet: -1, inet6: -1}
	}
	if err := s.beside.openNetlink(); err != nil {
		return s.readFrom(&next)
	}
	o := &nftScan{
		reader: s.beside, ctx: s.ctx, id: s.id, family: s.family, gen: s.gen, names: s.beside.setsOf(), named: s.named,
		order: s.order,
	}
	done := make(chan error, 1)
	go func() { done <- o.readFrom(&next) }()
	err := s.readFrom(&next)
	if other := <-done; err == nil {
		err = other
	}
	if err != nil { // the socket may be the one that is not fit for use any more
		s.beside.close()
		s.beside = nil
	}
	return err
}

// readFrom reads the chains from the next one on that nobody has taken. An error ends it for
// all.
func (s *nftScan) readFrom(next *atomic.Int64) error {
	for i := next.Add(1) - 1; i < int64(len(s.order)); i = next.Add(1) - 1 {
		if err := s.readChain(s.order[i]); err != nil {
			next.Store(int64(len(s.order)))
			return err
		}
		if i%64 == 63 && s.ctx.Err() != nil {
			next.Store(int64(len(s.order)))
			return context.Cause(s.ctx)
		}
	}
	return nil
}

// readChain reads the rules of one chain.
func (s *nftScan) readChain(c *nftChain) error {
	s.reading = c
	err := s.dump(func() (uint64, error) {
		c.lookups, s.last = nil, 0
		s.content.reset()
		s.nl.begin(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, s.family)
		s.nl.add(unix.NFTA_RULE_TABLE, s.id.Name)
		s.nl.add(unix.NFTA_RULE_CHAIN, c.Name)
		err := s.ask(unix.NFT_MSG_NEWRULE, s.addRule)
		return s.content.digest(), err
	})
	if err != nil {
		return err
	}
	c.Digest, c.Jumps = s.content.digest(), s.content.jumpsTo()
	if s.named || len(c.lookups) > 0 {
		c.Digests = s.content.digests()
	}
	return nil
}

// addRule adds a rule to its chain. It names the one before it.
func (s *nftScan) addRule(attrs []byte) error {
	var expressions, userdata []byte
	var handle, before uint64
	a := attributes{rest: attrs}
	for a.next() {
		switch a.kind {
		case unix.NFTA_RULE_HANDLE:
			handle = number64(a.data)
		case unix.NFTA_RULE_POSITION:
			before = number64(a.data)
		case unix.NFTA_RULE_EXPRESSIONS:
			expressions = a.data
		case unix.NFTA_RULE_USERDATA:
			userdata = a.data
		}
	}
	switch {
	case a.err != nil:
		return a.err
	case before != s.last:
		return errChanged // one has come twice, or not at all
	}
	s.last = handle
	return s.rule(expressions, userdata)
}

// number64 returns a number of eight bytes, else 0.
func number64(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(data)
}

// rule adds a rule to the content of the chain that is being read.
func (s *nftScan) rule(expressions, userdata []byte) error {
	s.content.field(userdata)
	a := attributes{rest: expressions}
	for a.next() {
		if err := s.expression(a.data); err != nil {
			return err
		}
	}
	s.content.end()
	return a.err
}

// expression adds an expression: its name and what it holds, without what packets change in
// it.
func (s *nftScan) expression(attrs []byte) error {
	var name, data []byte
	a := attributes{rest: attrs}
	for a.next() {
		switch a.kind {
		case unix.NFTA_EXPR_NAME:
			name = bytes.TrimSuffix(a.data, []byte{0})
		case unix.NFTA_EXPR_DATA:
			data = a.data
		}
	}
	if a.err != nil {
		return a.err
	}
	s.content.field(name)
	switch string(name) {
	case "counter", "last":
		return nil
	case "quota":
		return s.without(data, nftaQuotaConsumed)
	case "match", "target":
		return s.extension(string(name) == "target", data)
	case "immediate":
		if err := s.verdict(data); err != nil {
			return err
		}
	case "lookup":
		if err := s.lookup(data); err != nil {
			return err
		}
	}
	s.content.field(data)
	return nil
}

const nftaQuotaConsumed = 4

// without adds attributes without those of one kind.
func (s *nftScan) without(attrs []byte, kind uint16) error {
	a := attributes{rest: attrs}
	for a.next() {
		if a.kind != kind {
			s.content.number(uint32(a.kind))
			s.content.field(a.data)
		}
	}
	return a.err
}

// The attributes of a match and of a target have the same numbers.
const (
	nftaXTName = 1 // NFTA_MATCH_NAME, NFTA_TARGET_NAME
	nftaXTRev  = 2
	nftaXTInfo = 3
)

func (s *nftScan) extension(target bool, attrs []byte) error {
	var name, info []byte
	var revision uint32
	a := attributes{rest: attrs}
	for a.next() {
		switch a.kind {
		case nftaXTName:
			name = bytes.TrimSuffix(a.data, []byte{0})
		case nftaXTRev:
			if len(a.data) != 4 {
				return errNotUnderstood
			}
			revision = binary.BigEndian.Uint32(a.data)
		case nftaXTInfo:
			info = a.data
		}
	}
	if a.err != nil {
		return a.err
	}
	return s.content.extension(target, string(name), uint8(revision), info, s.names)
}

// verdict notes the chain that an immediate expression jumps or goes to.
func (s *nftScan) verdict(attrs []byte) error {
	a := attributes{rest: attrs}
	for a.next() {
		if a.kind != unix.NFTA_IMMEDIATE_DATA {
			continue
		}
		to, err := jumpOf(a.data)
		if err != nil {
			return err
		}
		if to != "" {
			s.content.jump(to)
		}
	}
	return a.err
}

// jumpOf returns the chain that a value jumps or goes to, "" if it is not such a verdict. No
// other verdict has a chain.
func jumpOf(data []byte) (string, error) {
	at, err := findAttributes(data, unix.NFTA_DATA_VERDICT)
	if err != nil || at[0] == nil {
		return "", err
	}
	at, err = findAttributes(at[0], unix.NFTA_VERDICT_CHAIN)
	if err != nil {
		return "", err
	}
	return cString(at[0]), nil
}
