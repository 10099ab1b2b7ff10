// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// TestTableHeld holds that a table which another process writes is not written, and that
// the process is named; other tables go on.
func TestTableHeld(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		holder, err := dataplane.NewKernel(t.Context(), dataplane.Options{
			Backend: n.backend, NetNS: n.path, StateDir: os.Getenv("TABLEWARD_STATE_DIR"),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if err := holder.Restore(t.Context(), id, []byte("*filter\n:held - [0:0]\nCOMMIT\n")); err != nil {
			t.Fatal(err)
		}
		held := fmt.Sprintf("table filter is held by pid %d", os.Getpid())
		ipv6 := fmt.Sprintf("--ipv6=%t", v == rules.IPv6)
		r := n.tableward(t, "apply", ipv6, write(t, "good.rules", goodRules))
		if r.code != exitEnvironment || !strings.Contains(r.stderr, held) {
			t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		r = n.tableward(t, "apply", ipv6, "-o", "json", write(t, "two.rules", goodRules+"*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n"))
		out := decode(t, r)
		if r.code != exitPartly || out.Answers[0].Result != "unavailable" || out.Answers[0].Error.Reason != held || out.Answers[2].Result != "applied" {
			t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		for _, command := range [][]string{{"diff"}, {"apply", "--dry-run"}} { // who reads need not hold
			if r := n.tableward(t, command[0], append(command[1:], ipv6, write(t, "good.rules", goodRules))...); r.code > exitFindings {
				t.Errorf("%s: exit status %d\n%s", command, r.code, r.stderr)
			}
		}
	})
}

// TestLockHeld holds that a lock which a stranger keeps ends a legacy apply with the
// timeout, and says so; nft knows no lock.
func TestLockHeld(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		f, err := os.Create(os.Getenv("XTABLES_LOCKFILE"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		args := []string{fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--timeout", "300ms", write(t, "good.rules", goodRules)}
		r := n.tableward(t, "apply", args...)
		switch {
		case n.backend == dataplane.NFT && r.code != exitOK:
			t.Errorf("nft: exit status %d\n%s", r.code, r.stderr)
		case n.backend == dataplane.Legacy && (r.code != exitEnvironment || !strings.Contains(r.stderr, "the xtables lock is held by pid")):
			t.Errorf("legacy: exit status %d\n%s", r.code, r.stderr)
		}
	})
}

// Scripts of tools that answer as if the kernel were as told.
const (
	sayVersion = "[ \"$1\" = --version ] && echo 'iptables v1.8.9 (nf_tables)' && exit\n"
	saveAll    = sayVersion + "echo \"*$2\"\nfor c in INPUT OUTPUT; do echo \":$c ACCEPT [0:0]\"; done\necho COMMIT\n"
	saveNoNat  = sayVersion + "[ \"$2\" = nat ] && { echo \"iptables-save: line 1 table name 'nat' invalid\" >&2; exit 2; }\n" + saveAll
	saveDenied = sayVersion + "echo 'iptables-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)' >&2\nexit 4\n"
	mark       = sayVersion + "while read -r l; do case $l in '#'*) echo \"$l\";; esac; done\n"
	noMark     = sayVersion + "cat >/dev/null\n"
)

// TestFakeTools holds exit statuses and words to tools that misbehave.
func TestFakeTools(t *testing.T) {
	filter, nat := write(t, "good.rules", goodRules), write(t, "nat.rules", "*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
	for _, c := range []struct {
		name    string
		scripts map[string]string
		args    []string
		code    int
		says    string
	}{
		{"no tools", nil, []string{filter}, exitEnvironment, "was not found"},
		{"good", fakes(mark, saveAll), []string{filter}, exitOK, ""},
		{"exit 0 without the marker", fakes(noMark, saveAll), []string{"--timeout", "1s", filter}, exitEnvironment, "within the timeout"},
		{"denied", fakes(mark, saveDenied), []string{filter}, exitPermission, "CAP_NET_ADMIN"},
		{"no table nat", fakes(mark, saveNoNat), []string{filter, nat}, exitPartly, "table 4/nat"},
		{"only table nat", fakes(mark, saveNoNat), []string{nat}, exitEnvironment, "table 4/nat"},
		{"no IPv6", fakes(mark, saveAll), []string{filter, write(t, "six.v6.rules", goodRules)}, exitPartly, "ip6tables"},
		{"only IPv6", fakes(mark, saveAll), []string{"--ipv6", filter}, exitEnvironment, "ip6tables"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fakeTools(t, c.scripts)
			a := &app{open: func(ctx context.Context, _ *flags) (kernel, error) {
				k, err := dataplane.NewKernel(ctx, dataplane.Options{
					Backend: dataplane.NFT, ToolDir: dir, StateDir: filepath.Join(dir, "state"),
				})
				if err != nil {
					return nil, err
				}
				return k, nil
			}}
			r := runApp(t, t.Context(), a, "", append([]string{"apply"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit status %d, want %d; stderr %q, want %q", r.code, c.code, r.stderr, c.says)
			}
		})
	}
}

func fakes(restore, save string) map[string]string {
	return map[string]string{"iptables-nft-restore": restore, "iptables-nft-save": save}
}
