// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// commitWait is how long Pulse waits for the message of a commit that shows in the
	// generation already and may be ours. It is sent at the end of a commit.
	commitWait = 2 * time.Millisecond
	// watchWait is how long Watch does, whom nobody waits for.
	watchWait = 100 * time.Millisecond
)

// nftPulse counts the commits of others in a namespace. A commit is ours if it came by the
// socket of a tool of ours while a Restore was under way. Nothing is concluded from the block:
// "-A Q" and "-F Q" in one block commit nothing, nor does ":Q - [0:0]" of an empty chain.
//
// The port of a socket is the process id of its owner, as long as nobody else has taken it. A
// foreign socket that has taken that of a tool of ours makes us count our commits as foreign,
// beside passing for ours itself: no change of its owner goes unseen for longer than until our
// next commit.
type nftPulse struct {
	open bool
	fd   int
	buf  [maxCommit]byte
	nftCount
}

// nftCount is what has been made of the messages. A generation that has been counted once, be
// it rightly or not, is not counted again.
type nftCount struct {
	known   uint32 // all up to this generation has been counted
	foreign uint64
	seen    uint32                 // generation of the last message
	own     [ownGenerations]uint32 // own generations, each at its place modulo the size
}

// ownGenerations is how many generations Watch may be behind.
const ownGenerations = 1024

// note counts a message.
func (c *nftCount) note(gen uint32, own bool) {
	c.seen = gen
	if own {
		c.own[gen%ownGenerations] = gen
	}
	if behind(gen, c.known) {
		return
	}
	if !own || gen != following(c.known) { // what is between was not told
		c.foreign++
	}
	c.known = gen
}

// shown counts what a generation shows that there was no message of.
func (c *nftCount) shown(gen uint32) {
	if !behind(gen, c.known) {
		c.foreign++
		c.known = gen
	}
}

func (c *nftCount) isOwn(gen uint32) bool { return gen != 0 && c.own[gen%ownGenerations] == gen }

// behind tells whether a generation is not later than another one. They wrap around.
func behind(gen, other uint32) bool { return int32(gen-other) <= 0 }

// following is the generation after another one: 0 is left out.
func following(gen uint32) uint32 { return max(gen+1, 1) }

// nftOpen begins to count.
func (p *pulses) nftOpen(k *Kernel) error {
	n := &p.nft
	if n.open {
		return nil
	}
	fd, err := openCommits(k.ns, p.buffer)
	if err != nil {
		return err
	}
	gen, err := p.generation(k)
	if err != nil {
		unix.Close(fd)
		return err
	}
	n.open, n.fd, n.known, n.seen = true, fd, gen, gen
	return nil
}

// generation asks for the generation.
func (p *pulses) generation(k *Kernel) (uint32, error) {
	r := p.asking(k)
	if err := r.openNetlink(); err != nil {
		return 0, err
	}
	gen, err := r.nl.generation()
	if err != nil {
		k.wg.Go(r.close) // see maxIdleReaders
		p.reader = nil
	}
	return uint32(gen), err
}

// nftChanges returns how often others have changed something.
func (p *pulses) nftChanges(k *Kernel) (uint64, error) {
	if err := p.nftOpen(k); err != nil {
		return 0, err
	}
	gen, err := p.generation(k)
	if err != nil {
		return 0, err
	}
	p.nftDrain()
	for end := time.Now().Add(commitWait); p.blocks > 0 && !behind(gen, p.nft.known) && time.Now().Before(end); p.nftDrain() {
		p.nft.wait()
	}
	p.nft.shown(gen)
	return p.nft.foreign, nil
}

// nftDrain takes in the messages that have come.
func (p *pulses) nftDrain() {
	n := &p.nft
	for n.open {
		size, err := unix.Read(n.fd, n.buf[:])
		switch {
		case err == unix.EINTR, err == unix.ENOBUFS: // the generations show that something is missing
			continue
		case err != nil:
			return
		}
		if c, ok := parseCommit(n.buf[:size]); ok {
			n.note(c.gen, p.own(int(c.port)))
		}
	}
}

// wait waits for a message, for a millisecond.
func (n *nftPulse) wait() {
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}, 1) // at worst it does not wait
}

// isOwn tells whether a commit was ours, of which a message has come to another socket.
func (p *pulses) isOwn(gen uint32) bool {
	for end := time.Now().Add(watchWait); ; p.nft.wait() {
		p.mu.Lock()
		p.nftDrain()
		told, own := behind(gen, p.nft.seen), p.nft.isOwn(gen)
		p.mu.Unlock()
		if told || time.Now().After(end) {
			return own
		}
	}
}

func (n *nftPulse) close() {
	if n.open {
		unix.Close(n.fd)
		n.open = false
	}
}
