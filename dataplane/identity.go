// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Identity names the state of the kernel that the Kernel works on: the boot, the network
// namespace, and the tools, whose spelling of a rule changes from release to release. What was
// kept of the tables under another name says nothing about them. It is "" where the boot cannot
// be told.
//
// The number of a namespace that has ended may be given to a new one; its cookie, which kernels
// have since 5.14, is not.
func (k *Kernel) Identity() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("boot %s net %d:%d cookie %d %s %s",
		strings.TrimSpace(string(boot)), k.ns.dev, k.ns.ino, k.ns.cookie(), k.info.Backend, k.info.Version)
}

// cookie is the namespace's number that no other one has until the next boot; 0 where the kernel
// tells none.
func (n *namespace) cookie() uint64 {
	var cookie uint64
	err := n.within(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0
	}
	return cookie
}

// StateDir returns the folder below that of the tables' locks for what is kept of the tables of
// this network namespace. It is not made.
func (k *Kernel) StateDir() (string, error) {
	dir, err := k.opts.stateDir()
	if err != nil {
		return "", fmt.Errorf("folder of the tables' state: %w", err)
	}
	return filepath.Join(dir, fmt.Sprintf("net-%d", k.ns.ino)), nil
}
