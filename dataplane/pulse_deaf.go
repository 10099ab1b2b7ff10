// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// massBlock is from how many lines on nobody listens while nft is given a block. As long as
// somebody listens the kernel makes a message for each rule that is added or goes, though our
// filter lets none of them through: a third of what a large block takes.
const massBlock = 300

// nftDeaf is the time of such a block. What was committed meanwhile is told by the generation
// alone, which has to be as many commits further as blocks were surely committed.
type nftDeaf struct {
	deaf bool
	sure uint32 // blocks that were committed since
}

// ear is a socket beside the one of the pulse that is told of commits.
type ear struct {
	fd     int
	missed func(gen uint32) // called when others have committed while it was not told
}

// nftDeafen stops listening before a large block. Blocks that are under way may have been
// committed already or not, so then it goes on listening. It tells whether it has stopped.
func (p *pulses) nftDeafen(k *Kernel, lines int) bool {
	n := &p.nft
	if !n.open || n.deaf || lines < massBlock || p.blocks > 0 {
		return false
	}
	if _, err := p.nftChanges(k); err != nil {
		return false
	}
	// The socket that decides what is ours goes last and comes back first: it has been told
	// of all that the others are.
	for _, e := range p.ears {
		_ = listen(e.fd, unix.NETLINK_DROP_MEMBERSHIP) // then it is told, and that is no harm
	}
	if listen(n.fd, unix.NETLINK_DROP_MEMBERSHIP) != nil {
		p.nftHear()
		return false
	}
	n.nftDeaf = nftDeaf{deaf: true}
	return true
}

// nftHear listens again.
func (p *pulses) nftHear() {
	n := &p.nft
	if n.open && listen(n.fd, unix.NETLINK_ADD_MEMBERSHIP) != nil {
		n.close() // it is opened anew, and what has come meanwhile is noticed then
		n.foreign++
	}
	for _, e := range p.ears {
		_ = listen(e.fd, unix.NETLINK_ADD_MEMBERSHIP)
	}
}

// nftUndeafen listens again after a large block, and counts what has come meanwhile.
func (p *pulses) nftUndeafen(k *Kernel) {
	n := &p.nft
	p.nftHear()
	sure := n.sure
	n.nftDeaf = nftDeaf{}
	gen, err := p.generation(k)
	p.nftDrain()
	if err == nil && n.passed(gen, sure) {
		return
	}
	n.foreign++
	if err == nil && !behind(gen, n.known) {
		n.known = gen
	}
	for _, e := range p.ears {
		e.missed(gen)
	}
}

// passed takes in as many commits of ours as were not told, if the generation shows just these.
func (c *nftCount) passed(gen, sure uint32) bool {
	to := c.known
	for range sure {
		to = following(to)
	}
	if to != gen {
		return false
	}
	for c.known != gen {
		c.known = following(c.known)
		c.own[c.known%ownGenerations] = c.known
	}
	return true
}

// commits tells whether nft, when it has taken a block, has surely made one commit of it: a
// rule that is flushed in the block that adds it makes none.
func commits(input []byte) bool {
	first := len(input)
	for _, adds := range [...]string{"\n-A ", "\n-I "} {
		if i := bytes.Index(input[:first], []byte(adds)); i >= 0 {
			first = i
		}
	}
	for _, takes := range [...]string{"\n-F", "\n:", "\n-X", "\n-D"} {
		if bytes.Contains(input[first:], []byte(takes)) {
			return false
		}
	}
	return first < len(input) && bytes.Count(input, []byte("\nCOMMIT")) == 1
}

func listen(fd, how int) error {
	return unix.SetsockoptInt(fd, unix.SOL_NETLINK, how, groupNFTables)
}
