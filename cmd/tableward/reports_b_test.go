// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// The tests of this file are named by the public bug reports about other writers to the same
// tables: what somebody sees who runs tableward beside them.

// save is what the save tool prints, with counters, without comments.
func (n namespace) save(t *testing.T, v rules.IPVersion, without string) string {
	t.Helper()
	family := "iptables-"
	if v == rules.IPv6 {
		family = "ip6tables-"
	}
	cmd := exec.Command("nsenter", "--net="+n.path, family+string(n.backend)+"-save", "-c")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, without) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// R16: cleanup takes what is ours, by our prefix, and nothing else is touched: what others have
// is the same text before and after, every option and counter of it.
func TestR16CleanupLeavesOthersAsTheyAre(t *testing.T) {
	strangers := map[rules.IPVersion][]string{
		rules.IPv4: {"01-comment-quoting", "02-cni-portmap", "04-kube-filter-firewall", "20-flannel", "31-physdev-mark", "34-multi-address"},
		rules.IPv6: {"28-v6-nat"},
	}
	const oursToo = "*filter\n:tw-in - [0:0]\n:tw-b - [0:0]\n-A tw-b -p tcp -j ACCEPT\n-A tw-in -j tw-b\n-A INPUT -j tw-in\n-I FORWARD -p udp -j tw-b\nCOMMIT\n" +
		"*nat\n:tw-post - [0:0]\n-A tw-post -p tcp -j MASQUERADE\n-A POSTROUTING -j tw-post\nCOMMIT\n"
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("TABLEWARD_STATE_DIR", t.TempDir()) // a namespace that has ended may have had this one's number
		for _, name := range strangers[v] {
			n.load(t, v, string(loadCase(t, "../../testdata/cases/"+name+".rules").data))
		}
		n.loadCounted(t, v, "*filter\n:stranger - [0:0]\n[7:420] -A INPUT -p udp -m udp --dport 53 -m comment --comment \"a \\\"b\\\" c\" -j stranger\n[9:540] -A stranger -m mark --mark 0x8000/0x8000 -j DROP\nCOMMIT\n")
		want := n.save(t, v, "tw-")
		n.load(t, v, oursToo)
		if diff := cmp.Diff(want, n.save(t, v, "tw-")); diff != "" {
			t.Fatalf("what others have changed too early:\n%s", diff)
		}
		r := n.tableward(t, "cleanup", "--prefix", "tw-")
		if r.code != exitOK {
			t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if diff := cmp.Diff(want, n.save(t, v, "\x00")); diff != "" {
			t.Errorf("what others have (-before +after):\n%s", diff)
		}
	})
}

// loadCounted is load with the counters of the input.
func (n namespace) loadCounted(t *testing.T, v rules.IPVersion, input string) {
	t.Helper()
	family := "iptables-"
	if v == rules.IPv6 {
		family = "ip6tables-"
	}
	n.run(t, input, family+string(n.backend)+"-restore", "--noflush", "--counters")
}

// quietKernel is a kernel that does not tell when others write.
type quietKernel struct{ kernel }

// R20: what a reload of somebody's firewall wiped out comes back: by itself with the next
// look, and at once with SIGHUP, which says what it repaired. The report asks for a command as
// well; there is none.
func TestR20WipedOutAndBack(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		file := write(t, "tw.rules", "*filter\n:tw-in - [0:0]\n-A tw-in -p tcp -j ACCEPT\n-I INPUT -j tw-in\nCOMMIT\n")
		want := map[string][]string{"INPUT": {"-j tw-in"}, "tw-in": {"-p tcp -j ACCEPT"}}
		wipe := func() {
			if n.backend == dataplane.NFT {
				n.run(t, "", "nft", "flush", "ruleset")
			} else {
				n.load(t, v, "*filter\n-F\n-X\nCOMMIT\n")
			}
		}
		a := &app{open: func(ctx context.Context, f *flags) (kernel, error) {
			k, err := openKernel(ctx, f)
			return quietKernel{k}, err
		}}
		for _, refresh := range []string{"0", "20ms"} {
			r := startRun(t, a, append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--prefix", "tw-", "--refresh", refresh, file)...)
			r.stderr.wait(t, "ready: 1 owner")
			wipe()
			if refresh == "0" {
				wantChains(t, "wiped out", n.chains(t, id), map[string][]string{})
				r.signals <- syscall.SIGHUP
			}
			r.stderr.wait(t, fmt.Sprintf("repaired: table %s: chain INPUT: 1 rule missing", id))
			r.stderr.wait(t, fmt.Sprintf("repaired: table %s: chain tw-in: it is gone", id))
			wantChains(t, "after a refresh each "+refresh, n.chains(t, id), want)
			r.stop(t)
		}
	})
}

// R31: a jump that the administrator wrote himself is his. A daemon whose files do not ask for
// it leaves it alone, at its start, when it is told to read again, and when it takes away the
// jump that an earlier run of its own had put in.
func TestR31AdministratorsOwnJump(t *testing.T) {
	const chain = "*filter\n:tw-in - [0:0]\n-A tw-in -p tcp -j ACCEPT\n"
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("TABLEWARD_STATE_DIR", t.TempDir())
		id := rules.TableID{IPVersion: v, Name: "filter"}
		file := filepath.Join(t.TempDir(), "tw.rules")
		args := append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--prefix", "tw-", "--refresh", "20ms", file)
		a := &app{open: openKernel}
		want := map[string][]string{"INPUT": {"-p udp -j tw-in", "-j tw-in"}, "tw-in": {"-p tcp -j ACCEPT"}}

		writeFile(t, file, chain+"-I INPUT -p udp -j tw-in\nCOMMIT\n")
		r := startRun(t, a, args...)
		r.stderr.wait(t, "ready: 1 owner")
		n.load(t, v, "*filter\n-A INPUT -j tw-in\nCOMMIT\n")
		r.reload(t, "ready: 1 owner")
		r.stop(t)
		wantChains(t, "with both jumps", n.chains(t, id), want)

		writeFile(t, file, chain+"COMMIT\n")
		want["INPUT"] = want["INPUT"][1:]
		r = startRun(t, a, args...)
		r.stderr.wait(t, "ready: 1 owner")
		for limit := time.Now().Add(10 * time.Second); len(n.chains(t, id)["INPUT"]) > 1 && time.Now().Before(limit); {
		}
		wantChains(t, "with his alone", n.chains(t, id), want)
		r.reload(t, "ready: 1 owner")
		r.stop(t)
		wantChains(t, "in the end", n.chains(t, id), want)
	})
}

// R29: another agent's rule stops the evaluation above our jump, which stands where its owner
// asked for it, at the bottom. Doctor names it. The report asks status for that; a rule for
// the top is above such rules again by itself.
func TestR29RulesAboveOurJump(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		t.Setenv("TABLEWARD_STATE_DIR", t.TempDir())
		theirs := "-s 10.0.0.0/8 -j ACCEPT"
		if v == rules.IPv6 {
			theirs = "-s 2001:db8::/32 -j ACCEPT"
		}
		n.load(t, v, "*nat\n:OTHER - [0:0]\n-A OTHER -p tcp -j ACCEPT\n-A POSTROUTING -j OTHER\n-A POSTROUTING -p udp -g OTHER\nCOMMIT\n")
		file := write(t, "tw.rules", "*nat\n:tw-post - [0:0]\n-A tw-post -p tcp -j MASQUERADE\n-A POSTROUTING -j tw-post\n:tw-out - [0:0]\n-I OUTPUT -j tw-out\nCOMMIT\n")
		ipv6 := fmt.Sprintf("--ipv6=%t", v == rules.IPv6)
		if r := n.tableward(t, "apply", ipv6, file); r.code != exitOK {
			t.Fatal(r.stderr)
		}
		n.load(t, v, "*nat\n-I POSTROUTING "+theirs+"\n-A POSTROUTING -j RETURN\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
		r := n.tableward(t, "doctor", "--prefix", "tw-")
		want := fmt.Sprintf("%d/nat: chain POSTROUTING: -j tw-post stands below 2 deciding rules of others\n  1: %s\n  3: -p udp -g OTHER\n", v, theirs)
		if diff := cmp.Diff(want, r.stdout); diff != "" || r.code != exitFindings {
			t.Errorf("exit status %d, stdout (-want +got):\n%s%s", r.code, diff, r.stderr)
		}
		r = n.tableward(t, "doctor", "--prefix", "tw-", "-o", "json")
		if !strings.Contains(r.stdout, `"ok":false`) || !strings.Contains(r.stdout, `{"ip":`+fmt.Sprint(int(v))+`,"table":"nat","chain":"POSTROUTING","rule":"-j tw-post","above":[{"number":1,"rule":"`+theirs+`"}`) {
			t.Errorf("json: %s", r.stdout)
		}
		if r := n.tableward(t, "doctor"); r.code != exitUsage || !strings.Contains(r.stderr, "--prefix") {
			t.Errorf("without a prefix: exit status %d, %s", r.code, r.stderr)
		}
		if r := n.tableward(t, "doctor", "--prefix", "other-"); r.code != exitOK || r.stdout != "" {
			t.Errorf("with another prefix: exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}
