// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// legacyPulse counts the changes of others in tables of x_tables.
type legacyPulse struct {
	tables map[rules.TableID]*legacyTable
	// lock tells of the lock file once a pulse has been asked for; nil until then, and where
	// there is no watching it.
	lock   *lockWatch
	asked  bool
	closes uint64 // how often somebody has closed the lock file
}

// legacyTable is what is known of a table.
type legacyTable struct {
	info    [infoSize]byte // as of our last write, or the last look
	begun   bool           // there was one
	known   bool           // info could be read then
	writing bool           // a Restore is under way
	foreign uint64
}

func (l *legacyPulse) table(id rules.TableID) *legacyTable {
	t := l.tables[id]
	if t == nil {
		t = &legacyTable{}
		if l.tables == nil {
			l.tables = make(map[rules.TableID]*legacyTable)
		}
		l.tables[id] = t
	}
	return t
}

// legacyOpen begins to watch the lock file.
func (p *pulses) legacyOpen(k *Kernel) {
	l := &p.legacy
	if !l.asked {
		l.asked = true
		l.lock, _ = watchLock(k.lock.path, 0) // without it there is still the other sign
	}
}

// legacyChanges returns how often others have changed the table.
func (p *pulses) legacyChanges(k *Kernel, id rules.TableID) (uint64, error) {
	p.legacyOpen(k)
	p.legacyDrain()
	t := p.legacy.table(id)
	err := p.legacyLook(k, id, t)
	return p.legacy.closes + t.foreign, err
}

// legacyLook compares a table with what is known of it. While we write it, it changes by us.
func (p *pulses) legacyLook(k *Kernel, id rules.TableID, t *legacyTable) error {
	if t.writing {
		return nil
	}
	info, err := p.info(k, id)
	if err == nil && t.begun && (!t.known || info != t.info) {
		t.foreign++
	}
	t.info, t.known, t.begun = info, err == nil, t.begun || err == nil
	return err
}

// info asks for number of entries, size, hooks and underflows of a table.
func (p *pulses) info(k *Kernel, id rules.TableID) (info [infoSize]byte, err error) {
	r := p.asking(k)
	family, level, fd := unix.AF_INET, unix.SOL_IP, &r.inet
	if id.IPVersion == rules.IPv6 {
		family, level, fd = unix.AF_INET6, unix.SOL_IPV6, &r.inet6
	}
	if err := r.openInet(family); err != nil {
		return info, err
	}
	copy(info[:tableNameSize], id.Name)
	if err := getsockopt(*fd, level, soGetInfo, info[:]); err != nil {
		return info, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	return info, nil
}

// legacyDrain takes in what was done to the lock file. We keep it open ourselves. While a block
// of ours is under way nobody else can have written: a foreign writer's close is reported
// before its lock is free. Where the lock is not ours to hold, the end of the block says that
// nothing is sure.
func (p *pulses) legacyDrain() {
	l := &p.legacy
	if l.lock != nil && l.lock.drain().closed && p.blocks == 0 {
		l.closes++
	}
}

func (p *pulses) legacyBegin(k *Kernel, id rules.TableID) {
	t := p.legacy.table(id)
	_ = p.legacyLook(k, id, t) // what could not be read counts as changed
	t.writing = true
}

func (p *pulses) legacyEnd(k *Kernel, id rules.TableID) {
	t := p.legacy.table(id)
	info, err := p.info(k, id)
	t.info, t.known, t.begun, t.writing = info, err == nil, true, false
}

func (l *legacyPulse) close() {
	if l.lock != nil {
		l.lock.close()
		l.lock = nil
	}
}
