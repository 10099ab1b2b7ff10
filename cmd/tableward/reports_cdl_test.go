// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tableward/tableward/rules"
)

// R109: bytes of a stranger's comment that are no UTF-8, and a locale, change nothing: the table
// is read, our rules go beside it, and all that is printed is UTF-8 and JSON.
func TestR109LatinCommentAndLocale(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("LC_ALL", "de_DE.UTF-8")
		t.Setenv("LANG", "de_DE.UTF-8")
		tool := map[rules.IPVersion]string{rules.IPv4: "iptables-", rules.IPv6: "ip6tables-"}[v] + string(n.backend)
		n.run(t, "", tool, "-A", "INPUT", "-m", "comment", "--comment", "caf\xe9 zu", "-p", "tcp", "-j", "ACCEPT")
		id := rules.TableID{IPVersion: v, Name: "filter"}
		before := n.chains(t, id)["INPUT"]
		file := write(t, "tw.rules", "*filter\n:tw-a - [0:0]\n-A tw-a -p udp -j DROP\n-A tw-a -j nosuch-chain\n-I INPUT -j tw-a\nCOMMIT\n")
		ipv6 := fmt.Sprintf("--ipv6=%t", v == rules.IPv6)
		for _, args := range [][]string{{"diff", ipv6, "-o", "json", file}, {"apply", ipv6, "-o", "json", file}, {"diff", ipv6, file}, {"apply", ipv6, file}} {
			r := n.tableward(t, args[0], args[1:]...)
			if !utf8.ValidString(r.stdout) || !utf8.ValidString(r.stderr) {
				t.Errorf("%q: not UTF-8: %q %q", args, r.stdout, r.stderr)
			}
			if args[2] == "-o" && !json.Valid([]byte(r.stdout)) {
				t.Errorf("%q: not JSON: %s", args, r.stdout)
			}
			if strings.Contains(r.stderr, "panic") || r.code == exitEnvironment {
				t.Errorf("%q: exit status %d\n%s", args, r.code, r.stderr)
			}
		}
		if got := n.chains(t, id)["INPUT"]; len(got) == 0 || got[len(got)-1] != before[0] {
			t.Errorf("INPUT holds %q, had %q", got, before)
		}
	})
}

// R110: a table that is not committed is refused with the line where the next one begins.
func TestR110TableWithoutCommit(t *testing.T) {
	eachSim(t, func(t *testing.T, v rules.IPVersion, w world) {
		file := write(t, "two.rules", "*nat\n:tw-n - [0:0]\n-A tw-n -j RETURN\n*filter\n:tw-a - [0:0]\n-A tw-a -j DROP\nCOMMIT\n")
		r := w.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), file)
		if r.code != exitUsage || !strings.Contains(r.stderr, "refused: "+file+":4:1: table nat not committed before line 4\n*filter\n^\n") {
			t.Errorf("exit status %d\n%s", r.code, r.stderr)
		}
		if got := w.chains(t, rules.TableID{IPVersion: v, Name: "filter"})["tw-a"]; len(got) > 0 {
			t.Errorf("applied: %q", got)
		}
	})
}
