// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// nftScan is one attempt at reading a table of nf_tables.
type nftScan struct {
	*reader
	ctx    context.Context
	id     rules.TableID
	family byte
	gen    uint64
	names  setNames
	named  bool // the chains were named

	chains map[string]*nftChain
	order  []*nftChain

	// of the chain whose rules are read
	reading *nftChain
	content content
	last    uint64 // handle of the rule that was read last
}

// nftChain is a chain as it has been read.
type nftChain struct {
	rules.SavedChain
	lookups []nftLookup
}

// nftLookup is a set in which a rule looks a verdict up, or that is the rule's alone.
type nftLookup struct {
	rule int // its place, from 0
	set  string
}

// scanNFT reads a table once. The error is errChanged if somebody committed meanwhile.
func (r *reader) scanNFT(ctx context.Context, id rules.TableID, names []string) (rules.Snapshot, error) {
	if err := r.openNetlink(); err != nil {
		return rules.Snapshot{}, err
	}
	s := &nftScan{
		reader: r, ctx: ctx, id: id, family: unix.NFPROTO_IPV4, names: r.setsOf(), named: len(names) > 0,
		chains: make(map[string]*nftChain),
	}
	if id.IPVersion == rules.IPv6 {
		s.family = unix.NFPROTO_IPV6
	}
	err := s.run(names)
	var broken *brokenError
	if errors.As(err, &broken) {
		r.broken = true
	}
	if err != nil {
		return rules.Snapshot{}, err
	}
	snap := rules.Snapshot{Table: id, Chains: make(map[string]rules.SavedChain, len(s.chains)), Generation: s.gen}
	for name, c := range s.chains {
		snap.Chains[name] = c.SavedChain
	}
	s.addUntouched(snap, names)
	return snap, nil
}

func (s *nftScan) run(names []string) error {
	var err error
	if s.gen, err = s.nl.generation(); err != nil {
		return err
	}
	policies := !s.named || slices.ContainsFunc(names, func(name string) bool { return rules.IsBuiltin(s.id.Name, name) })
	settle := policies && s.settled.Load() != s.gen
	if settle {
		if err := s.settle(); err != nil {
			return err
		}
		if s.gen, err = s.nl.generation(); err != nil {
			return err
		}
	}
	if err := s.readChains(names); err != nil {
		return err
	}
	if err := s.readRules(); err != nil {
		return err
	}
	if err := s.readLookups(); err != nil {
		return err
	}
	// Whatever was read between two equal generations is of that one.
	after, err := s.nl.generation()
	if err == nil && after != s.gen {
		err = errChanged
	}
	if err == nil && settle {
		s.settled.Store(s.gen)
	}
	return err
}

// settle waits as netfilter.settle does, but no longer than the caller.
func (s *nftScan) settle() error {
	done := make(chan error, 1)
	nl := s.nl
	s.wg.Go(func() { done <- nl.settle() })
	select {
	case err := <-done:
		return err
	case <-s.ctx.Done():
		// The socket is in use until the other's commit has ended.
		s.nl, s.broken = nil, true
		s.wg.Go(func() {
			<-done
			unix.Close(nl.fd)
		})
		return context.Cause(s.ctx)
	}
}

// ask sends the request that was begun, for messages of this kind.
func (s *nftScan) ask(kind uint16, f func(attrs []byte) error) error {
	return s.nl.ask(func(m nfMessage) error {
		switch {
		case m.kind != kind:
			return errNotUnderstood
		case m.generation != uint16(s.gen):
			return errChanged
		}
		return f(m.attrs)
	})
}

// dump calls f, which dumps a list and returns a digest of it, once more if the list came in
// more than one part. The kernel finds the place of the next part by counting what is in the
// list, and what a commit has not yet added, or has failed to add, counts too. So an entry may
// come twice, or not at all, without a change of the generation.
func (s *nftScan) dump(f func() (uint64, error)) error {
	once, err := f()
	if err != nil || s.nl.parts <= 1 {
		return err
	}
	twice, err := f()
	if err == nil && twice != once {
		err = errChanged
	}
	return err
}
