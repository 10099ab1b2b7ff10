// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace held open. A nil file is the process's own.
type namespace struct {
	path string
	file *os.File
	dev  uint64
	ino  uint64

	started func(*os.Process) // is told of each process that enter starts; nil for nobody
}

// openNamespace opens the namespace of that name or path.
func openNamespace(name string) (*namespace, error) {
	if name == "" {
		var st unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			return nil, fmt.Errorf("network namespace: %w", err)
		}
		return &namespace{dev: st.Dev, ino: st.Ino}, nil
	}
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join("/run/netns", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return &namespace{path: path, file: f, dev: st.Dev, ino: st.Ino}, nil
}

// check compares the namespace behind the name with the one held: our descriptor keeps a
// deleted namespace alive, and what is written there is written for nobody.
func (n *namespace) check() *RestoreError {
	if n.file == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path, &st); err != nil {
		return unavailable(fmt.Errorf("network namespace %s is gone: %w", n.path, err))
	}
	if st.Dev != n.dev || st.Ino != n.ino {
		return unavailable(fmt.Errorf("network namespace %s was made again", n.path))
	}
	return nil
}

func (n *namespace) close() error {
	if n.file == nil {
		return nil
	}
	return n.file.Close()
}

// enter starts cmd in the namespace.
func (n *namespace) enter(cmd *exec.Cmd) error {
	err := n.within(cmd.Start)
	if err == nil && n.started != nil {
		n.started(cmd.Process)
	}
	return err
}

// within calls f on a thread that is in the namespace.
func (n *namespace) within(f func() error) error {
	if n.file == nil {
		return f()
	}
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.path, err)
		}
		return f()
	})
}

// newNamespace makes a network namespace that lives as long as it is held.
func newNamespace() (*namespace, error) {
	var n *namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		var err error
		n, err = openNamespace("/proc/thread-self/ns/net")
		return err
	})
	return n, err
}

// onThread calls f on a thread of its own, which may change its network namespace and is
// brought back afterwards. A thread that cannot be brought back stays locked to a goroutine
// that ends, so it runs nothing else. That is not the usual way, because the first thread
// of a process never ends, and what it is in is what /proc shows of the process.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		err = f()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
		done <- err
	}()
	return <-done
}
