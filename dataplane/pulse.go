// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tableward/tableward/rules"
)

// Pulse returns a number, never 0, that stays the same as long as nobody but this Kernel has
// changed the table, as far as the kernel tells that cheaply. It only ever goes up; what it
// was says nothing about the pulse of another table or of another Kernel. The cost is a few
// microseconds.
//
// A Restore that ended with nil or with a refused line does not change it. After an unknown
// outcome, and on legacy after a refusal that no line can be blamed for, it has changed: such
// a block may have been applied.
//
// On nft every commit in the network namespace that is not of a tool which this Kernel ran for
// a Restore changes it, whatever the table and the family. A tool in whose place stands a
// script that runs another process is not known as ours. A commit of another table's Restore
// that is just being made may be taken for somebody else's.
//
// On legacy there are two signs. One is that number of entries, size, hooks or underflows of
// the table are not what they were after our last write, or at the last Pulse: an edit that
// leaves all of them as they are is not seen, nor is one made without the lock while a Restore
// of the table is under way. The other is that somebody has opened and closed the xtables lock
// file, which is made if it does not exist: who writes to any table of any namespace that
// shares the file, and also who only lists one. Where the file system does not support
// inotify, or the file cannot be opened, there is only the first sign. A tool that does not
// lock the file that we name closes the real one itself, so there each Restore changes it.
//
// The error is a *RestoreError, as that of Scan.
func (k *Kernel) Pulse(ctx context.Context, id rules.TableID) (uint64, error) {
	if _, err := k.toolset(id); err != nil {
		return 0, err
	}
	if err := k.ns.check(); err != nil {
		return 0, err
	}
	n, err := uint64(0), context.Cause(ctx)
	if err == nil {
		n, err = k.pulse.of(k, id)
	}
	if err != nil {
		return 0, scanError(ctx, id, err)
	}
	return n, nil
}

// pulses tells the changes of others from our own.
//
// Every part of a pulse only goes up. One that was taken back, because a change turned out to
// be ours, could be reached again by a change that is not.
type pulses struct {
	mu     sync.Mutex // guards the rest
	base   uint64     // what all pulses begin with
	unsure uint64     // Restores after which nothing is sure
	blocks int        // Restores under way
	tools  []*os.Process
	reader *reader // nil until it is needed
	nft    nftPulse
	legacy legacyPulse

	watches watches

	// for tests
	buffer int           // of netlink sockets, in bytes; 0 is the default of the kernel
	tick   time.Duration // between two looks of Watch on legacy; 0 is a second
	begun  func()        // called when Watch will miss nothing any more
}

// of returns a table's pulse.
func (p *pulses) of(k *Kernel, id rules.TableID) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.base == 0 {
		// Whoever compares the pulses of two Kernels by mistake shall find them different.
		p.base = uint64(time.Now().UnixNano())
	}
	var n uint64
	var err error
	if k.backend == NFT {
		n, err = p.nftChanges(k)
	} else {
		n, err = p.legacyChanges(k, id)
	}
	return p.base + p.unsure + n, err
}

// started is told of each process that is started in the namespace.
func (p *pulses) started(proc *os.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	p.tools = append(p.tools, proc)
}

// forget drops the tools that have ended: their process ids may be given to others.
func (p *pulses) forget() {
	// What they have committed must be known as ours before.
	p.drain()
	p.tools = slices.DeleteFunc(p.tools, func(proc *os.Process) bool {
		return errors.Is(proc.Signal(syscall.Signal(0)), os.ErrProcessDone)
	})
}

// own tells whether a process is a tool that may be working for a Restore.
func (p *pulses) own(pid int) bool {
	return p.blocks > 0 && slices.ContainsFunc(p.tools, func(proc *os.Process) bool { return proc.Pid == pid })
}

// begin is called before a block is given to a tool: with the xtables lock held, if that is
// ours to hold. What others have done until then is noticed here, so that it is not taken for
// what the block does.
func (p *pulses) begin(k *Kernel, id rules.TableID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	p.blocks++
	if k.backend == Legacy {
		p.legacyBegin(k, id)
	}
}

// end is called when the tool has answered, with the lock still held.
func (p *pulses) end(k *Kernel, t toolset, id rules.TableID, re *RestoreError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.backend == Legacy {
		p.legacyEnd(k, id)
	}
	p.drain()
	p.blocks--
	if re != nil && (re.Class == Unknown || k.backend == Legacy && re.Class == RejectedSomewhere) ||
		k.backend == Legacy && !t.ownLock {
		p.unsure++
	}
}

// drain takes in what the kernel has told until now.
func (p *pulses) drain() {
	p.nftDrain()
	p.legacyDrain()
}

// asking returns what the kernel is asked by.
func (p *pulses) asking(k *Kernel) *reader {
	if p.reader == nil {
		p.reader = &reader{ns: k.ns, inet: -1, inet6: -1}
	}
	return p.reader
}

// close ends what watches and gives back what is kept.
func (p *pulses) close() {
	p.watches.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reader != nil {
		p.reader.close()
		p.reader = nil
	}
	p.nft.close()
	p.legacy.close()
}
