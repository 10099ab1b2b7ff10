// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watchNFT tells of commits until ctx ends.
func (k *Kernel) watchNFT(ctx context.Context, notify func(Change)) error {
	p := &k.pulse
	if err := p.count(k); err != nil {
		return err
	}
	// After the other socket, which decides what is ours and so must have had all that this
	// one gets.
	fd, err := openCommits(k.ns, p.buffer)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "netlink")
	defer f.Close()
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) }) // a socket has deadlines
	defer stop()
	if p.begun != nil {
		p.begun()
	}
	tell := func(data []byte) {
		if c, ok := parseCommit(data); ok && !p.isOwn(c.gen) {
			notify(Change{Generation: uint64(c.gen), PID: c.pid, Command: commandLine(c.pid, c.comm), At: time.Now()})
		}
	}
	buf := make([]byte, maxCommit)
	for {
		n, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			tell(buf[:n])
			continue
		case !errors.Is(err, unix.ENOBUFS):
			return fmt.Errorf("netlink: %w", err)
		}
		// The kernel goes on leaving messages out, and says so no more, until all that came
		// before have been read.
		for n, err := unix.Read(fd, buf); err != unix.EAGAIN && ctx.Err() == nil; n, err = unix.Read(fd, buf) {
			if err == nil {
				tell(buf[:n])
			}
		}
		notify(Change{Generation: p.latest(k), At: time.Now()})
	}
}

// count begins to count commits, if that has not begun.
func (p *pulses) count(k *Kernel) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nftOpen(k)
}

// latest returns the generation, 0 if the kernel will not say.
func (p *pulses) latest(k *Kernel) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	gen, err := p.generation(k)
	if err != nil {
		return 0
	}
	return uint64(gen)
}
