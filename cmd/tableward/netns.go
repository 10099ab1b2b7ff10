// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// legacyTableInUse tells whether the legacy tables of a network namespace include one. To
// read it would make it, and its hooks.
func legacyTableInUse(netns string, id rules.TableID) bool {
	name := "ip_tables_names"
	if id.IPVersion == rules.IPv6 {
		name = "ip6_tables_names"
	}
	data, err := readProcNet(netns, name)
	return err == nil && slices.Contains(strings.Fields(string(data)), id.Name)
}

// readProcNet reads a file below /proc/net of a network namespace, "" for our own.
func readProcNet(netns, name string) ([]byte, error) {
	path := "/proc/thread-self/net/" + name
	if netns == "" {
		return os.ReadFile(path)
	}
	if !strings.Contains(netns, "/") {
		netns = "/run/netns/" + netns
	}
	ns, err := os.Open(netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var data []byte
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread ends here
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			data, err = os.ReadFile(path)
		}
	}()
	<-done
	return data, err
}
