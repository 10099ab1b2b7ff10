// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	sets     map[setKey]bool // true: made, false: could not be made
}

// newScratch makes a scratch namespace: as root, or as root of a new user namespace.
func newScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "tableward-scratch-")
	if err != nil {
		return nil, err
	}
	s := &scratch{dir: dir, lockFile: filepath.Join(dir, "xtables.lock"), sets: make(map[setKey]bool)}
	if s.ns, err = newNamespace(); err == nil {
		return s, nil
	}
	if errors.Is(err, unix.EPERM) {
		var herr error
		if s.holder, herr = newHolder(); herr == nil {
			return s, nil
		}
		err = errors.Join(err, herr)
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
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

// makeSets creates the sets that a rule names, empty, and tells whether they are there. The
// type does not matter to what is read back.
func (s *scratch) makeSets(ctx context.Context, k *Kernel, v rules.IPVersion, r rules.Rule) bool {
	family := "inet"
	if v == rules.IPv6 {
		family = "inet6"
	}
	for _, name := range r.Sets() {
		key := setKey{v, name}
		made, asked := s.sets[key]
		if !asked {
			if ipset := k.opts.find("ipset"); ipset != "" {
				run := run{
					path: ipset, args: []string{"create", "-exist", name, "hash:ip", "family", family},
					env: environ(""), start: s.start, wg: &k.wg,
				}
				o := run.run(ctx)
				made = o.exit == 0 && o.err == nil
			}
			s.sets[key] = made
		}
		if !made {
			return false
		}
	}
	return true
}

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
