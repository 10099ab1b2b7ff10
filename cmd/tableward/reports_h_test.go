// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tableward/tableward/rules"
)

// everything is what all tables of both IP versions hold, as saved, less counters, comments,
// and what only tells that a table has been looked at.
func everything(t *testing.T, n namespace) string {
	t.Helper()
	var out strings.Builder
	for _, family := range []string{"iptables-", "ip6tables-"} {
		for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
			cmd := exec.Command("nsenter", "--net="+n.path, family+string(n.backend)+"-save", "-t", table)
			saved, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s%s\n", family, table)
			for line := range strings.Lines(string(saved)) {
				if strings.HasPrefix(line, "-") || strings.HasPrefix(line, ":") && !strings.Contains(line, " ACCEPT [") {
					out.WriteString(regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(line, ""))
				}
			}
		}
	}
	return out.String()
}

// R86: after run and cleanup all tables of both IP versions are as they were before, whatever
// was put into them, marks or not.
func TestR86CleanupLeavesNothing(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("TABLEWARD_STATE_DIR", t.TempDir())
		for _, version := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			n.load(t, version, "*nat\n:LOCAL-NAT - [0:0]\n-A POSTROUTING -j LOCAL-NAT\n-A LOCAL-NAT -o eth0 -j MASQUERADE\nCOMMIT\n*filter\n-A INPUT -i lo -j ACCEPT\n-P FORWARD DROP\nCOMMIT\n")
		}
		before := everything(t, n)
		file := filepath.Join(t.TempDir(), "all.rules")
		writeFile(t, file, `*nat
:egress - [0:0]
:egress-blue - [0:0]
-A egress -p tcp -j egress-blue
-A egress-blue -p tcp -m tcp --dport 80 -j RETURN
-I POSTROUTING -j egress
-A OUTPUT -o lo -p udp -j RETURN
COMMIT
*raw
-A PREROUTING -p udp -m udp --dport 53 -j NOTRACK
COMMIT
*mangle
:marks - [0:0]
-A marks -p tcp -j MARK --set-xmark 0x1/0x1
-A FORWARD -j marks
COMMIT
*filter
:in - [0:0]
-A in -p tcp -m tcp --dport 22 -j ACCEPT
-A in -j DROP
-I INPUT -j in
-A FORWARD -p udp -j DROP
COMMIT
`)
		r := startRun(t, &app{open: openKernel}, append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), file)...)
		r.stderr.wait(t, "ready: 1 owner")
		during := everything(t, n)
		r.stop(t)
		if during == before {
			t.Fatal("nothing was written")
		}
		if got := n.tableward(t, "cleanup"); got.code != exitOK {
			t.Errorf("cleanup: exit status %d\n%s%s", got.code, got.stdout, got.stderr)
		}
		if after := everything(t, n); after != before {
			t.Errorf("after:\n%sbefore:\n%s", after, before)
		}
	})
}
