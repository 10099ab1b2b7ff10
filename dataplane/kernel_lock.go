// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// defaultLockFile is where the tools have their lock, unless they were built otherwise.
const defaultLockFile = "/run/xtables.lock"

var errLockWait = errors.New("the xtables lock was not had in time")

// xtablesLock is the lock that all legacy tools of a machine share, taken by ourselves: the
// wait is then bounded to the millisecond, ends with a context, and more than one run fits
// under one lock. Network namespaces share it, although their tables have nothing in common.
//
// The wait is a blocking flock. To ask again and again would starve beside programs that
// block. A flock cannot be taken back, so a wait that is given up goes on without us: it
// gives a late lock back at once, and the next one who wants the lock takes the wait over.
// There is never more than one.
//
// A flock belongs to the open file, whoever has a descriptor of it. The tools that run under
// the lock get one, so that no death of ours frees the lock while a tool still writes. The
// file is opened once, for all blocks: a tool that is kept open could not be given another
// one, and who watches the file for being closed is not told of our blocks.
type xtablesLock struct {
	path string
	turn chan struct{} // holds one token: who has it may touch the rest, and has the lock later
	left *lockWait     // a wait that was given up; it has the file
	file *os.File      // nil until there is need of it; another one when its name was given to another
	held *os.File      // the same while we have the lock, else nil
}

func newXtablesLock(path string) *xtablesLock {
	return &xtablesLock{path: path, turn: make(chan struct{}, 1)}
}

// realLockFile is the file that other programs' legacy tools lock.
func (o Options) realLockFile() string {
	if o.LockFile != "" {
		return o.LockFile
	}
	if path := os.Getenv(strings.TrimSuffix(lockVariable, "=")); path != "" {
		return path
	}
	return defaultLockFile
}

// lockWait is one blocking flock under way.
type lockWait struct {
	mu     sync.Mutex // guards the next two
	wanted bool
	over   bool
	done   chan lockResult // gets the one result, which it has room for
}

// lockResult is the file, locked if the wait was wanted at its end.
type lockResult struct {
	file *os.File
	err  error // then there is no file
}

// take returns a function that gives the lock back. The wait ends with ctx and after
// limit: then the error is of class Busy and names the holder where that can be found out.
// A lock file that cannot be opened is Unavailable.
func (l *xtablesLock) take(ctx context.Context, limit time.Duration) (func(), *RestoreError) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLockWait)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, l.busy(ctx)
	}
	w := l.left
	l.left = nil
	if w != nil && !w.adopt() {
		l.file = (<-w.done).file
		w = nil
	}
	if w == nil {
		w = startLockWait(l.file, l.path)
	}
	l.file = nil
	select {
	case r := <-w.done:
		l.file = r.file
		if r.err != nil {
			<-l.turn
			return nil, unavailable(fmt.Errorf("can't open lock file %w", r.err))
		}
		l.held = r.file
		return func() {
			l.held = nil
			release(r.file)
			<-l.turn
		}, nil
	case <-ctx.Done():
	}
	if w.leave() {
		l.left = w
	} else if r := <-w.done; r.err == nil { // it has come at the last moment
		release(r.file)
		l.file = r.file
	}
	<-l.turn
	return nil, l.busy(ctx)
}

// close closes the lock file, as soon as no wait needs it any more. Nobody may be waiting.
func (l *xtablesLock) close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	file, left := l.file, l.left
	l.file, l.left = nil, nil
	if left != nil {
		go func() {
			if r := <-left.done; r.err == nil {
				r.file.Close()
			}
		}()
	}
	if file == nil {
		return nil
	}
	return file.Close()
}

// enterLocked is how a tool is started within locked: it inherits the lock that we hold for
// it, if there is one. Should we be killed, the lock is held until the tool has ended. We
// give it back without a word to the tool, and take it again for its next block.
func (k *Kernel) enterLocked(t toolset) starter {
	if !t.ownLock {
		return k.ns.enter
	}
	held := k.lock.held
	return func(cmd *exec.Cmd) error {
		cmd.ExtraFiles = append(cmd.ExtraFiles, held)
		return k.ns.enter(cmd)
	}
}

// busy says who has the lock.
func (l *xtablesLock) busy(ctx context.Context) *RestoreError {
	e := &RestoreError{Class: Busy, ExitCode: -1, Reason: lockHeld, Err: context.Cause(ctx)}
	if pid := flockHolder(l.path); pid > 0 {
		e.Reason = "the xtables lock is held by " + processName(pid)
	}
	return e
}

// startLockWait begins to wait for the lock of a file, which may be open already.
func startLockWait(f *os.File, path string) *lockWait {
	w := &lockWait{wanted: true, done: make(chan lockResult, 1)}
	go func() {
		f, err := lockOpen(f, path, os.O_RDONLY, unix.LOCK_EX)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
		if !w.wanted && err == nil {
			release(f)
		}
		w.done <- lockResult{f, err}
	}()
	return w
}

// adopt makes a wait that was left wanted again; it fails if the wait is over.
func (w *lockWait) adopt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = !w.over
	return w.wanted
}

// leave gives a wait up; it fails if there is a result to be taken.
func (w *lockWait) leave() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = false
	return !w.over
}

// lockFile opens a file, which it makes if need be, and locks it.
func lockFile(path string, mode, how int) (*os.File, error) { return lockOpen(nil, path, mode, how) }

// lockOpen locks the file of that name: the one that is open, if it still is the one, or
// else the one that it opens instead. The lock counts only while the file has its name:
// another may have been made in its place while we waited.
func lockOpen(f *os.File, path string, mode, how int) (*os.File, error) {
	for {
		if f != nil && !sameFile(f, path) {
			f.Close()
			f = nil
		}
		if f == nil {
			var err error
			if f, err = os.OpenFile(path, mode|os.O_CREATE, 0o600); err != nil {
				return nil, fileError(path, err)
			}
		}
		if err := flock(f, how); err != nil {
			f.Close()
			return nil, fileError(path, err)
		}
		if sameFile(f, path) {
			return f, nil
		}
		unlock(f)
		f = nil
	}
}

// fileError names the file once, whoever reports it.
func fileError(path string, err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// flock is flock(2), past signals.
func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

func sameFile(f *os.File, path string) bool {
	named, err := os.Stat(path)
	if err != nil {
		return false
	}
	held, err := f.Stat()
	return err == nil && os.SameFile(named, held)
}

// release gives a lock back. It is done in so many words: the tools that run under it have
// descriptors of the file, and a process that is just being started has one for a moment.
func release(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // cannot fail for a lock that is held
}

// unlock gives a lock back for good.
func unlock(f *os.File) {
	release(f)
	f.Close()
}

// flockHolder returns the process that took the lock of a file, 0 if it cannot be found.
// It may have ended since: a lock lives on with those who inherited it.
func flockHolder(path string) int {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF; those that wait have "->" first.
		f := strings.Fields(line)
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == file {
			return max(atoi(f[4]), 0)
		}
	}
	return 0
}

// processName returns "pid 12 (name)", without the name if it cannot be read. Of a process
// that has ended it says so: then who inherited the lock from it has it.
func processName(pid int) string {
	if unix.Kill(pid, 0) == unix.ESRCH {
		return fmt.Sprintf("what pid %d left running when it ended", pid)
	}
	name, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "comm"))
	if err != nil {
		return "pid " + itoa(pid)
	}
	return fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(name)))
}
