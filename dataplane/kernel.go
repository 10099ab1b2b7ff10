// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tableward/tableward/rules"
)

// Options configure a Kernel. The zero Options are the production defaults.
type Options struct {
	Backend Backend // which tools to use; "" lets NewKernel choose
	// NetNS is the network namespace to work in: a name below /run/netns, or a path with a
	// slash in it. "" is the one that the process runs in.
	NetNS string
	// LockFile is the xtables lock, which is shared with all other users of the legacy tools;
	// "" is $XTABLES_LOCKFILE or else /run/xtables.lock. The nft tools have no lock.
	LockFile string
	// LockWait is how long a write waits for the lock: 10 s by default. Where we must leave
	// the lock to the tool it is rounded to whole seconds, 1 s at least, because that is all
	// that the tools understand.
	LockWait time.Duration
	// StateDir is the folder of the locks by which a table has one writer, made when it does
	// not exist. "" is /run/tableward for root, else tableward in $XDG_RUNTIME_DIR, else
	// tableward-UID in the temporary folder.
	StateDir string
	// BaseDeadline and LineDeadline bound one run of a tool: the first for the run, the
	// second for each line of its input. 10 s and 2 ms by default.
	BaseDeadline time.Duration
	LineDeadline time.Duration
	// ToolDir is the folder of the tools; "" looks along PATH, /usr/sbin and /sbin.
	ToolDir string
}

func (o Options) withDefaults() Options {
	if o.LockWait <= 0 {
		o.LockWait = 10 * time.Second
	}
	if o.BaseDeadline <= 0 {
		o.BaseDeadline = 10 * time.Second
	}
	if o.LineDeadline <= 0 {
		o.LineDeadline = 2 * time.Millisecond
	}
	return o
}

// Kernel writes to a real kernel by the iptables tools, of which one is kept open for each
// table while there is work, and reads it by them, or without them: see Scan, Pulse and Watch.
// The backend is chosen once and never changed.
//
// A Kernel is safe for concurrent use, but keeps no order: one table's blocks must be
// written by one caller, one after the other. From its first Restore of a table to Close it
// is the only Kernel, in whatever process, that may write that table of its network
// namespace; the others get ErrTableHeld.
//
// Legacy tools share a lock. A Kernel takes it itself and gives the tool a private file to
// lock instead, if the tool shows when the Kernel is made that it honours XTABLES_LOCKFILE;
// else the tool is told how long to wait.
type Kernel struct {
	opts    Options
	backend Backend
	tools   map[rules.IPVersion]toolset
	missing map[rules.IPVersion]error
	info    Info
	ns      *namespace

	wg    sync.WaitGroup // tools that have given their answer and are still ending
	canon canonizer

	noScratch noScratch
	rooms     rooms
	live      liveTools
	pulse     pulses

	tables tableLocks
	lock   *xtablesLock
	dir    string // of our own, "" until there is need of one; removed by Close
	stats  counters
}

// NewKernel looks for the tools and chooses the backend. An error is a *MissingError or a
// *RestoreError of class Unavailable that names what is absent. Absent IPv6 tools are no
// error here: each operation on IPv6 returns one.
func NewKernel(ctx context.Context, o Options) (*Kernel, error) {
	o = o.withDefaults()
	if o.Backend != "" && o.Backend != NFT && o.Backend != Legacy {
		return nil, fmt.Errorf("unknown backend %q: nft or legacy", o.Backend)
	}
	ns, err := openNamespace(o.NetNS)
	if err != nil {
		return nil, unavailable(err)
	}
	k := &Kernel{opts: o, ns: ns, lock: newXtablesLock(o.realLockFile())}
	ns.started = k.pulse.started
	err = k.choose(ctx)
	if err == nil && k.backend == Legacy {
		err = k.testLocking(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Info describes the backend in use.
func (k *Kernel) Info() Info { return k.info }

// Close ends Watch, waits for tools that are still ending, and gives tables and namespaces
// back. No other operation may be running.
func (k *Kernel) Close() error {
	k.pulse.close()
	k.live.close(k)
	k.closeScanner()
	k.rooms.close()
	k.wg.Wait()
	err := errors.Join(k.canon.close(), k.tables.close(), k.lock.close(), k.ns.close())
	if k.dir != "" {
		err = errors.Join(err, os.RemoveAll(k.dir))
	}
	return err
}

// Restore applies one block of restore input, from *table to COMMIT, without flushing the
// table. It returns nil only if the tool has said that it came past COMMIT.
//
// The first Restore of a table makes the Kernel its writer; a *TableHeldError below the
// *RestoreError says that another one is.
func (k *Kernel) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	t, err := k.toolset(id)
	if err != nil {
		return err
	}
	if err := k.ns.check(); err != nil {
		return err
	}
	if err := k.Hold(id); err != nil {
		return err
	}
	re := k.locked(ctx, t, func() *RestoreError {
		// The wait may have been long.
		if err := k.ns.check(); err != nil {
			return err
		}
		k.stats.runs.Add(1)
		k.pulse.begin(k, id)
		re := k.restoreLive(ctx, t, id, input)
		k.pulse.end(k, t, id, re)
		return re
	})
	if re = k.explain(re); re != nil {
		re.CountersLost = re.Class == Unknown && k.backend == Legacy
		return re
	}
	return nil
}

// restore runs the restore tool with start.
func (k *Kernel) restore(ctx context.Context, t toolset, start starter, lockFile string, input []byte) *RestoreError {
	lines := bytes.Count(input, []byte("\n"))
	limit := k.opts.BaseDeadline + time.Duration(lines)*k.opts.LineDeadline
	args := []string{"--noflush", "--verbose"}
	if k.backend == Legacy {
		args = append(args, k.waitArgs(t)...)
		if !t.ownLock {
			limit += k.opts.LockWait
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errDeadline)
	defer cancel()
	r := run{
		path: t.restore, args: args, env: environ(lockFile), start: start,
		patient: k.backend == Legacy, wg: &k.wg,
	}
	r.stdin = make([]byte, 0, len(input)+64)
	r.stdin = append(r.stdin, input...)
	// A marker within an open table would be echoed although nothing was applied. Without a
	// marker the tool can only refuse.
	if closed(input) {
		r.marker = newMarker()
		if n := len(input); n > 0 && input[n-1] != '\n' {
			r.stdin = append(r.stdin, '\n') // a marker glued to COMMIT would spoil the block
		}
		r.stdin = append(append(r.stdin, r.marker...), '\n')
	}
	return r.restore(ctx, input)
}

// closed tells whether the last line that is not a comment is COMMIT, or there is none.
func closed(input []byte) bool {
	for len(input) > 0 {
		i := bytes.LastIndexByte(input, '\n') + 1
		line := input[i:]
		input = input[:max(i-1, 0)]
		if len(line) > 0 && line[0] != '#' {
			return string(line) == "COMMIT"
		}
	}
	return true
}

// toolset returns the tools for a table, or why there are none.
func (k *Kernel) toolset(id rules.TableID) (toolset, error) {
	if err := id.Validate(); err != nil {
		return toolset{}, unavailable(err)
	}
	if err := k.missing[id.IPVersion]; err != nil {
		return toolset{}, unavailable(err)
	}
	return k.tools[id.IPVersion], nil
}

func unavailable(err error) *RestoreError {
	return &RestoreError{Class: Unavailable, ExitCode: -1, Reason: err.Error(), Err: err}
}
