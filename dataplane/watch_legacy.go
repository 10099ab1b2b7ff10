// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

const (
	// lockSettle is how long after the first sign of a writer the tables are looked at.
	lockSettle = 50 * time.Millisecond
	// watchTick is how often they are looked at without one.
	watchTick = time.Second

	lockHolder = "a holder of the xtables lock"
)

// watchLegacy tells of changes until ctx ends.
func (k *Kernel) watchLegacy(ctx context.Context, notify func(Change)) {
	p := &k.pulse
	told := p.look(k)
	sights := make(chan sight)
	if w, err := watchLock(k.lock.path, unix.IN_OPEN); err == nil { // else there is the tick
		f := os.NewFile(uintptr(w.fd), "inotify")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.watchLockFile(ctx, w, f, sights)
		}()
		defer func() {
			f.Close()
			<-ended
		}()
	}
	every := p.tick
	if every == 0 {
		every = watchTick
	}
	if p.begun != nil {
		p.begun()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var soon <-chan time.Time
	var seen []sight
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-sights:
			if s.pid > 0 && !slices.ContainsFunc(seen, func(other sight) bool { return other.pid == s.pid }) {
				seen = append(seen, s)
			}
			if soon == nil {
				soon = time.After(lockSettle)
			}
			continue
		case <-soon:
			soon = nil
		case <-tick.C:
		}
		now := p.look(k)
		if now.tell(told, seen, notify) {
			seen = nil
		}
		told = now
	}
}

// looks is how often others have changed what, as far as it was noticed.
type looks struct {
	closes uint64
	tables map[rules.TableID]uint64
}

// look looks at the tables that have had a Pulse or a Restore. One that cannot be read is left
// to those who ask for it.
func (p *pulses) look(k *Kernel) looks {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.legacyOpen(k)
	p.legacyDrain()
	l := looks{closes: p.legacy.closes, tables: make(map[rules.TableID]uint64, len(p.legacy.tables))}
	for id, t := range p.legacy.tables {
		_ = p.legacyLook(k, id, t)
		l.tables[id] = t.foreign
	}
	return l
}

// tell tells what is not as it was. It returns whether somebody has closed the lock file; that
// stands for whatever table.
func (l looks) tell(was looks, seen []sight, notify func(Change)) bool {
	at := time.Now()
	if l.closes != was.closes {
		if len(seen) == 0 {
			seen = []sight{{command: lockHolder}}
		}
		for _, s := range seen {
			notify(Change{PID: s.pid, Command: s.command, At: at})
		}
		return true
	}
	for id, n := range l.tables {
		if before, known := was.tables[id]; known && n != before {
			notify(Change{At: at, IPVersion: id.IPVersion, Table: id.Name})
		}
	}
	return false
}

// sight is who was seen to have the lock.
type sight struct {
	pid     int
	command string
}

// watchLockFile tells when the lock file is opened and closed, and who has the lock then.
func (k *Kernel) watchLockFile(ctx context.Context, w *lockWatch, f *os.File, sights chan<- sight) {
	for {
		n, err := f.Read(w.buf[:])
		if err != nil {
			return
		}
		if s := w.parse(w.buf[:n]); !s.opened && !s.closed {
			continue
		}
		select {
		case sights <- k.holder():
		case <-ctx.Done():
			return
		}
	}
}

// holder is who has the lock, if it is somebody else whom we can see.
func (k *Kernel) holder() sight {
	pid := flockHolder(k.lock.path)
	if pid <= 0 || pid == os.Getpid() || k.pulse.works(pid) {
		return sight{}
	}
	_, line, found := process(pid, "")
	if !found {
		return sight{}
	}
	return sight{pid, line}
}

// works tells whether a process is a tool that may be working for a Restore.
func (p *pulses) works(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own(pid)
}
