// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// scratch is a network namespace without a name in which rules can be tried. It has a lock
// file of its own, so that trying never waits for the live tables' writers, nor they for us.
type scratch struct {
	ns       *namespace
	holder   *holder // where only a user namespace of its own allows it
	dir      string
	lockFile string
	sets     map[setKey]setState
	// fewUsers: its user namespace does not know all users, so that the kernel refuses rules
	// that name one.
	fewUsers bool
}

// noScratch remembers why there will never be a scratch namespace.
type noScratch struct {
	mu  sync.Mutex // guards err
	err error
}

// newScratch makes a scratch namespace. Where none can be had the error is ErrNoScratch with
// the reason; only what passes, such as a want of memory, is tried again the next time.
func (k *Kernel) newScratch() (*scratch, error) {
	n := &k.noScratch
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return nil, n.err
	}
	s, err := makeScratch()
	if err == nil {
		return s, nil
	}
	err = fmt.Errorf("%w: %w", ErrNoScratch, err)
	if !passes(err) {
		n.err = err
	}
	return nil, err
}

// makeScratch makes a scratch namespace: as root, or as root of a new user namespace.
func makeScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "tableward-scratch-")
	if err != nil {
		return nil, err
	}
	s := &scratch{dir: dir, lockFile: filepath.Join(dir, "xtables.lock"), sets: make(map[setKey]setState)}
	if s.ns, err = newNamespace(); err == nil {
		s.fewUsers = !knowsAllUsers()
		return s, nil
	}
	if errors.Is(err, unix.EPERM) {
		var herr error
		if s.holder, herr = newHolder(); herr == nil {
			s.fewUsers = true
			return s, nil
		}
		err = fmt.Errorf("%w; %w", err, herr)
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// knowsAllUsers tells whether we are in a user namespace to which every user is mapped.
func knowsAllUsers() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	f := strings.Fields(string(text))
	return err != nil || len(f) == 3 && f[2] == "4294967295" // as the first one has it
}

// judges tells whether what the tools say here of a rule would be true elsewhere.
func (s *scratch) judges(r rules.Rule) bool {
	return !s.fewUsers || !hasWord(r, "--uid-owner") && !hasWord(r, "--gid-owner")
}

// start starts a command in the namespace.
func (s *scratch) start(cmd *exec.Cmd) error {
	if s.holder != nil {
		return s.holder.start(cmd)
	}
	return s.ns.enter(cmd)
}

func (s *scratch) close() error {
	var err error
	if s.holder != nil {
		s.holder.close()
	} else {
		err = s.ns.close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// alive tells whether the namespace can still be entered. A holder may have been killed;
// what nsenter says then must not be taken for words about a rule.
func (s *scratch) alive() bool {
	if s.holder == nil {
		return true
	}
	_, err := os.Readlink(filepath.Join("/proc", itoa(s.holder.cmd.Process.Pid), "ns/net"))
	return err == nil
}

// failure is the error of a run in the scratch namespace that says nothing about a rule.
func (s *scratch) failure(re *RestoreError) error {
	if s.alive() {
		return re
	}
	return &RestoreError{Class: Busy, ExitCode: -1, Stderr: re.Stderr, Reason: errScratchGone.Error(), Err: errScratchGone}
}

var errScratchGone = errors.New("the scratch network namespace has ended")

// holder is a process that keeps a user namespace and a network namespace alive. It reads a
// pipe that we hold, so it ends when we do.
type holder struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	nsenter string
}

func newHolder() (*holder, error) {
	o := Options{}
	cat, nsenter := o.find("cat"), o.find("nsenter")
	if cat == "" {
		return nil, &MissingError{Tool: "cat"}
	}
	if nsenter == "" {
		return nil, &MissingError{Tool: "nsenter"}
	}
	cmd := exec.Command(cat)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Setpgid:     true,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("new user and network namespace: %w", err)
	}
	return &holder{cmd: cmd, stdin: stdin, nsenter: nsenter}, nil
}

// start starts cmd beside the holder. A process with threads, as every Go program is,
// cannot enter a user namespace itself.
func (h *holder) start(cmd *exec.Cmd) error {
	args := []string{h.nsenter, "--preserve-credentials", "-U", "-n", "-t", itoa(h.cmd.Process.Pid), "--", cmd.Path}
	cmd.Args = append(args, cmd.Args[1:]...)
	cmd.Path = h.nsenter
	return cmd.Start()
}

func (h *holder) close() {
	h.stdin.Close()
	_ = h.cmd.Wait() // cat has nothing to fail at
}
