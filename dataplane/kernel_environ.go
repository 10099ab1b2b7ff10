// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const lockVariable = "XTABLES_LOCKFILE="

// environ is the environment of a tool: plain English, and the lock file if one is given.
func environ(lockFile string) []string {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG=") || strings.HasPrefix(v, "LANGUAGE=") ||
			lockFile != "" && strings.HasPrefix(v, lockVariable) {
			continue
		}
		env = append(env, v)
	}
	env = append(env, "LC_ALL=C")
	if lockFile != "" {
		env = append(env, lockVariable+lockFile)
	}
	return env
}

// testLocking finds out which of the tools lock the file that we name. Who does not would
// wait for the lock that we hold, for as long as we wait for it.
func (k *Kernel) testLocking(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "tableward-")
	if err != nil {
		return unavailable(fmt.Errorf("no place for a lock file: %w", err))
	}
	k.dir = dir
	for v, t := range k.tools {
		t.ownLock, t.noWait = k.locking(ctx, t, filepath.Join(dir, "missing", "lock"))
		k.tools[v] = t
	}
	return nil
}

// refusesWait is what a tool says that knows no -w: getopt of glibc, of musl, or its own words.
var refusesWait = regexp.MustCompile(`(?:invalid|unknown|unrecognized) option\b.*\bw(?:ait)?\b`)

// locking tells how a legacy tool locks. One that locks the file that we name says so if that
// file cannot be made. Should it lock another one, it finds a table that does not exist, and
// nothing has happened either. A tool that refuses -w is from before 1.6.2, which brought
// both the option and the lock to restore: there is no lock that it could wait for.
func (k *Kernel) locking(ctx context.Context, t toolset, impossible string) (ownLock, noWait bool) {
	ctx, cancel := context.WithTimeoutCause(ctx, k.opts.BaseDeadline, errDeadline)
	defer cancel()
	r := run{
		path: t.restore, args: []string{"--noflush", "-w", "1"}, env: environ(impossible),
		start: k.ns.enter, stdin: []byte("*tableward-probe\n"), wg: &k.wg,
	}
	o := r.run(ctx)
	e := Classify(o.exit, o.stderr, nil)
	if o.err != nil || e == nil {
		return false, false
	}
	if refusesWait.MatchString(o.stderr) {
		return true, true
	}
	return e.ExitCode == 4 && e.Class == Unavailable && strings.Contains(e.Reason, impossible), false
}

// locked calls f under the xtables lock, where there is one and it is ours to take. All
// that f does with the tool is one critical section for everybody who takes the lock.
func (k *Kernel) locked(ctx context.Context, t toolset, f func() *RestoreError) *RestoreError {
	if !t.ownLock {
		return f()
	}
	begin := time.Now()
	release, err := k.lock.take(ctx, k.opts.LockWait)
	k.stats.waited(time.Since(begin))
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// toolLockFile is the file that a tool is told to lock: ours alone while we hold the real
// lock, else the real one.
func (k *Kernel) toolLockFile(t toolset) string {
	if t.ownLock {
		return filepath.Join(k.dir, "xtables.lock")
	}
	return k.opts.LockFile
}

// waitArgs are the words by which a legacy tool is told to wait for its lock. With a number
// it sets an alarm that it forgets, and that ends it while it waits for input later: exit
// code 0 and nothing said. Without one it waits for ever, which is right for a lock that
// nobody else has.
func (k *Kernel) waitArgs(t toolset) []string {
	switch {
	case t.noWait:
		return nil
	case t.ownLock:
		return []string{"-w"}
	}
	// Two words, and a whole number: any other form waits for ever or is refused by some
	// release of the tools.
	return []string{"-w", itoa(int(max(k.opts.LockWait.Round(time.Second), time.Second) / time.Second))}
}

// Stats counts what a Kernel has done since it was made.
type Stats struct {
	Runs         int64         // tools run on the network namespace, to write or to read
	Probes       int64         // what tools in scratch namespaces were given
	Locks        int64         // how often the xtables lock was waited for, in vain or not
	LockWait     time.Duration // all these waits together
	LastLockWait time.Duration // the wait that ended last
}

// Stats returns the counts. It may be called at any time.
func (k *Kernel) Stats() Stats {
	s := &k.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Runs: s.runs.Load(), Probes: s.probes.Load(),
		Locks: s.locks, LockWait: s.total, LastLockWait: s.last,
	}
}

type counters struct {
	runs, probes atomic.Int64

	mu    sync.Mutex // guards the rest
	locks int64
	total time.Duration
	last  time.Duration
}

func (s *counters) waited(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks++
	s.total += d
	s.last = d
}
