// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

const (
	// scanAttempts is how often a table is read that somebody changes while it is read.
	scanAttempts = 3
	// maxIdleReaders is how many readers wait for the next scan. A socket is kept because the
	// close of one that has spoken to nf_tables waits for the grace period of whatever rules
	// anybody has deleted before.
	maxIdleReaders = 2
	// maxIdleBlob is how many bytes of room for a legacy table a reader keeps meanwhile.
	maxIdleBlob = 16 << 20
)

var (
	// errChanged says that what was read is of two generations.
	errChanged = errors.New("the table changed while it was read")
	// errNotUnderstood says that the kernel's answer has not the form that is known here.
	errNotUnderstood = errors.New("what the kernel answered is not understood")
)

// Scan reads the chains of a table, or those of them that are named, without running a tool:
// their digests, jumps and policies, never their rules, and on nft the generation that all of
// it is of. Of chains that are named there is the digest of each rule too. A chain that does
// not exist is not in the result. Nothing is written, and no lock is taken; a result is of one
// state of the table.
//
// The digest is made of what the kernel holds, so it can be compared with those of Scan and
// Expect, but not with one of Read. It is the same in other processes and after a restart, as
// long as tools and kernel use the same revisions of extensions. Counters are not part of it,
// nor a set's index, which stands for the set's name, nor the name of the chain itself. Rules
// that the tools read back alike may still differ, if they match everything in ways that the
// kernel tells apart: "-i +", or "-p all" in IPv6.
//
// What the tools show as a chain is one: on nft a built-in chain that nobody has touched, and
// no base chain of the table that is not at its place, be it by name, hook, type or priority.
// Of tables that the tools call incompatible the chains are there, expressions that only nft
// can show being part of the digest, and what a verdict map jumps to of the jumps; counters,
// quotas and elements of named sets are not.
//
// The error is a *RestoreError: of class Unavailable where the kernel cannot be asked, so that
// Read must do, and of class Busy where the table never stays unchanged for long enough.
func (k *Kernel) Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if _, err := k.toolset(id); err != nil {
		return rules.Snapshot{}, err
	}
	if err := k.ns.check(); err != nil {
		return rules.Snapshot{}, err
	}
	pulse := k.pulseNow(ctx, id)
	s := k.scanner()
	r := s.take(k.ns)
	snap, err := r.scan(ctx, k.backend, id, chains)
	s.give(r)
	if err != nil {
		return rules.Snapshot{}, scanError(ctx, id, err)
	}
	snap.Pulse = k.steadyPulse(ctx, id, pulse)
	return snap, nil
}

// scanGeneration is the namespace's generation on nft, through a socket that is kept open.
func (k *Kernel) scanGeneration() (uint64, error) {
	s := k.scanner()
	r := s.take(k.ns)
	defer s.give(r)
	if err := r.openNetlink(); err != nil {
		return 0, err
	}
	return r.nl.generation()
}

// scanError says what a failed scan means.
func scanError(ctx context.Context, id rules.TableID, err error) error {
	if ctx.Err() != nil {
		return runError(outcome{exit: -1, err: context.Cause(ctx)})
	}
	e := unavailable(fmt.Errorf("table %s cannot be read from the kernel: %w", id, err))
	if errors.Is(err, errChanged) || passes(err) {
		e.Class = Busy
	}
	if errors.Is(err, unix.EPERM) {
		e.Reason += " (CAP_NET_ADMIN is missing)"
	}
	return e
}

// scanner has what a Kernel keeps for its scans.
type scanner struct {
	mu      sync.Mutex // guards idle
	idle    []*reader
	settled atomic.Uint64 // nft: a generation whose commit has ended
	wg      sync.WaitGroup

	expect expecters
	edits  editors
}

func (s *scanner) take(ns *namespace) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.idle); n > 0 {
		r := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return r
	}
	return &reader{ns: ns, settled: &s.settled, wg: &s.wg, inet: -1, inet6: -1}
}

func (s *scanner) give(r *reader) {
	if cap(r.blob) > maxIdleBlob {
		r.blob = nil
	}
	s.mu.Lock()
	keep := !r.broken && len(s.idle) < maxIdleReaders
	if keep {
		s.idle = append(s.idle, r)
	}
	s.mu.Unlock()
	if !keep {
		s.wg.Go(r.close)
	}
}

// close gives back what is kept. No scan may be running.
func (s *scanner) close() {
	s.mu.Lock()
	for _, r := range s.idle {
		r.close()
	}
	s.idle = nil
	s.mu.Unlock()
	s.expect.close()
	s.wg.Wait()
}

// reader reads tables of one namespace. It is not safe for concurrent use.
type reader struct {
	ns      *namespace
	settled *atomic.Uint64
	wg      *sync.WaitGroup

	nl          *netfilter // nil until it is needed
	inet, inet6 int        // -1 until it is needed
	blob        []byte     // room for the next table
	broken      bool       // not to be used again
	beside      *reader    // reads large tables of nft with this one; nil until it is needed
}

// openNetlink opens the socket to nf_tables. A socket belongs to the namespace that it was
// made in.
func (r *reader) openNetlink() error {
	if r.nl != nil {
		return nil
	}
	fd := -1
	err := r.open(&fd, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err == nil {
		r.nl, err = newNetfilter(fd)
	}
	return err
}

// open makes a socket where there is none.
func (r *reader) open(fd *int, family, kind, protocol int) error {
	if *fd >= 0 {
		return nil
	}
	return r.ns.within(func() error {
		var err error
		if *fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol); err != nil {
			*fd = -1
			return fmt.Errorf("socket: %w", err)
		}
		return nil
	})
}

func (r *reader) close() {
	if r.beside != nil {
		r.beside.close()
	}
	if r.nl != nil {
		unix.Close(r.nl.fd)
	}
	for _, fd := range []int{r.inet, r.inet6} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// scan reads until it has read one state of the table.
func (r *reader) scan(ctx context.Context, b Backend, id rules.TableID, chains []string) (rules.Snapshot, error) {
	scan := r.scanNFT
	if b == Legacy {
		scan = r.scanLegacy
	}
	var snap rules.Snapshot
	err := errChanged
	for i := 0; i < scanAttempts && errors.Is(err, errChanged); i++ {
		if ctx.Err() != nil {
			return rules.Snapshot{}, context.Cause(ctx)
		}
		snap, err = scan(ctx, id, chains)
	}
	return snap, err
}
