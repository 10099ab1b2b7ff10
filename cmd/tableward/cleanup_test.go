// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tableward/tableward/rules"
)

// What run has left goes with cleanup: by its state file all of it, chains without a prefix and
// rules of kernel chains included, and nothing else.
func TestCleanup(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("TABLEWARD_STATE_DIR", t.TempDir()) // a namespace that has ended may have had this one's number
		id := rules.TableID{IPVersion: v, Name: "filter"}
		n.load(t, v, "*filter\n:stranger - [0:0]\n-A INPUT -j stranger\n-A INPUT -p udp -j DROP\nCOMMIT\n")
		want := n.chains(t, id)
		file := filepath.Join(t.TempDir(), "web.rules")
		writeFile(t, file, "*filter\n:web - [0:0]\n:web2 - [0:0]\n-A web2 -j ACCEPT\n-A web -j web2\n-A INPUT -p tcp -m tcp --dport 9 -j DROP\n-I INPUT -j web\nCOMMIT\n")
		a := &app{open: openKernel}
		if r := n.tableward(t, "cleanup"); r.code != exitUsage || !strings.Contains(r.stderr, "a state file") {
			t.Errorf("with nothing to go by: exit status %d\n%s", r.code, r.stderr)
		}
		r := startRun(t, a, append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), file)...)
		r.stderr.wait(t, "ready: 1 owner")
		if held := n.tableward(t, "cleanup"); held.code != exitEnvironment && held.code != exitUsage {
			t.Errorf("beside run: exit status %d\n%s", held.code, held.stderr)
		}
		r.stop(t)
		got := n.tableward(t, "cleanup")
		if got.code != exitOK || !strings.Contains(got.stdout, "2 chains and 2 rules taken away") {
			t.Errorf("exit status %d\n%s%s", got.code, got.stdout, got.stderr)
		}
		wantChains(t, "after cleanup", n.chains(t, id), want)
		if names := n.chainNames(t, id); strings.Contains(names, "web") {
			t.Errorf("left: %s", names)
		}
	})
}

// With a prefix no state file is needed; a chain that a stranger's chain jumps to stays.
func TestCleanupPrefix(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		n.load(t, v, "*filter\n:stranger - [0:0]\n:tw-a - [0:0]\n:tw-b - [0:0]\n-A INPUT -j tw-a\n-A INPUT -j stranger\n-A stranger -j tw-b\n-A tw-b -j DROP\nCOMMIT\n")
		r := n.tableward(t, "cleanup", "--prefix", "tw-")
		if r.code != exitPartly || !strings.Contains(r.stderr, "chain tw-b of "+id.String()+" stays") {
			t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		wantChains(t, "after cleanup", n.chains(t, id), map[string][]string{"INPUT": {"-j stranger"}, "stranger": {"-j tw-b"}, "tw-b": {"-j DROP"}})
	})
}
