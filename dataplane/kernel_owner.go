// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// ErrTableHeld says that another Kernel writes the table. Every *TableHeldError is one.
var ErrTableHeld = errors.New("the table is held by another process")

// TableHeldError names who writes a table. It is the cause of a *RestoreError of class
// Unavailable.
type TableHeldError struct {
	Table rules.TableID
	PID   int // as its own PID namespace has it; 0 if it cannot be found out
}

// Error returns "table filter is held by pid 12".
func (e *TableHeldError) Error() string {
	if e.PID <= 0 {
		return "table " + e.Table.Name + " is held by another process"
	}
	return fmt.Sprintf("table %s is held by pid %d", e.Table.Name, e.PID)
}

// Is reports whether target is ErrTableHeld.
func (e *TableHeldError) Is(target error) bool { return target == ErrTableHeld }

// tableLocks are the tables that a Kernel has written to. A table has one writer: a plan is
// made against what the writer before has left.
type tableLocks struct {
	mu   sync.Mutex // guards held
	held map[rules.TableID]*os.File
}

// Hold takes the lock of a table, unless it is held already: at the first Restore, or earlier
// by who wants to be sure of being the only writer before there is anything to write. The
// lock is given back by Close. An error is a *RestoreError of class Unavailable, around a
// *TableHeldError where somebody else has the table.
func (k *Kernel) Hold(id rules.TableID) error {
	l := &k.tables
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[id] != nil {
		return nil
	}
	dir, err := k.opts.stateDir()
	if err != nil {
		return unavailable(fmt.Errorf("table %s cannot be held: %w", id.Name, err))
	}
	path := filepath.Join(dir, fmt.Sprintf("net-%d-%d-%s.lock", k.ns.ino, id.IPVersion, id.Name))
	f, err := holdFile(path)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return unavailable(&TableHeldError{Table: id, PID: heldBy(path)})
	case err != nil:
		return unavailable(fmt.Errorf("table %s cannot be held: %w", id.Name, err))
	}
	if l.held == nil {
		l.held = make(map[rules.TableID]*os.File)
	}
	l.held[id] = f
	return nil
}

// close gives all tables back. A file is removed while its lock is held, so that nobody
// can have locked it in the meantime.
func (l *tableLocks) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for id, f := range l.held {
		if err := os.Remove(f.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		unlock(f)
		delete(l.held, id)
	}
	return errors.Join(errs...)
}

// holdFile locks a file without waiting and leaves our process id in it for who comes later.
func holdFile(path string) (*os.File, error) {
	f, err := lockFile(path, os.O_RDWR, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteString(itoa(os.Getpid()) + "\n")
	}
	if err != nil {
		unlock(f)
		return nil, err
	}
	return f, nil
}

// heldBy returns the process that holds a table's file.
func heldBy(path string) int {
	text, err := os.ReadFile(path)
	if pid := atoi(strings.TrimSpace(string(text))); err == nil && pid > 0 {
		return pid
	}
	return flockHolder(path) // it has not come to writing yet
}

// rootStateDir is where root keeps the tables' locks.
const rootStateDir = "/run/tableward"

// stateDir returns the folder of the tables' locks, made if need be.
func (o Options) stateDir() (string, error) {
	if o.StateDir != "" {
		return o.StateDir, os.MkdirAll(o.StateDir, 0o700)
	}
	uid := os.Geteuid()
	if uid == 0 {
		if err := os.Mkdir(rootStateDir, 0o700); err == nil || unix.Access(rootStateDir, unix.W_OK) == nil {
			return rootStateDir, nil
		}
		// Root of a user namespace owns nothing there.
	}
	dir := filepath.Join(os.TempDir(), "tableward-"+itoa(uid))
	if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); runtimeDir != "" {
		dir = filepath.Join(runtimeDir, "tableward")
	}
	return dir, privateDir(dir)
}

// privateDir makes a folder that nobody else can write to, or sees that it is one: the
// temporary folder is everybody's.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a folder that only its owner, user %d, can write to: %w", dir, os.Geteuid(), os.ErrPermission)
	}
	return nil
}
