// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// countingKernel counts the blocks that are sent.
type countingKernel struct {
	kernel
	restores *atomic.Int32
}

func (c countingKernel) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	c.restores.Add(1)
	return c.kernel.Restore(ctx, id, input)
}

// TestRunKernel holds that run keeps files in the kernel, follows them, leaves the rules,
// and finds them again without a write.
func TestRunKernel(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		n.load(t, v, "*filter\n:stranger - [0:0]\n-A INPUT -j stranger\n-A INPUT -p tcp -m tcp --dport 9 -j DROP\nCOMMIT\n")
		dir := t.TempDir()
		web, dns := filepath.Join(dir, "web.rules"), filepath.Join(dir, "dns.rules")
		writeFile(t, web, "*filter\n:tw-web - [0:0]\n:tw-old - [0:0]\n-A tw-old -j DROP\n-A tw-web -p tcp -m tcp --dport 80 -j ACCEPT\n-A tw-web -j tw-old\n-I INPUT -j tw-web\n-D INPUT -p tcp --dport 9 -j DROP\nCOMMIT\n")
		writeFile(t, dns, strings.ReplaceAll(dnsRules, "dns-in", "tw-dns"))
		var restores atomic.Int32
		a := &app{open: func(ctx context.Context, f *flags) (kernel, error) {
			k, err := openKernel(ctx, f)
			return countingKernel{k, &restores}, err
		}}
		args := append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--prefix", "tw-", dir)

		r := startRun(t, a, args...)
		r.stderr.wait(t, "ready: 2 owners, 5 messages applied, 0 failing")
		wantChains(t, "at the start", n.chains(t, id), map[string][]string{
			"INPUT":  {"-j tw-web", "-j stranger", "-p udp -m udp --dport 53 -j tw-dns"},
			"tw-web": {"-p tcp -m tcp --dport 80 -j ACCEPT", "-j tw-old"}, "tw-old": {"-j DROP"}, "tw-dns": {"-j ACCEPT"},
		})

		writeFile(t, web, "*filter\n:tw-web - [0:0]\n-A tw-web -p tcp -m tcp --dport 443 -j ACCEPT\n-A INPUT -j tw-web\nCOMMIT\n")
		if err := os.Remove(dns); err != nil {
			t.Fatal(err)
		}
		r.reload(t, "ready: 1 owner, 2 messages applied, 0 failing")
		r.stop(t)
		want := map[string][]string{
			"INPUT": {"-j stranger", "-j tw-web"}, "tw-web": {"-p tcp -m tcp --dport 443 -j ACCEPT"},
		}
		wantChains(t, "after the end", n.chains(t, id), want)
		if got := n.chainNames(t, id); strings.Contains(got, "tw-old") || strings.Contains(got, "tw-dns") {
			t.Errorf("withdrawn chains are left: %s", got)
		}

		restores.Store(0)
		r = startRun(t, a, args...)
		r.stderr.wait(t, "ready: 1 owner, 2 messages applied, 0 failing")
		r.stop(t)
		wantChains(t, "run again", n.chains(t, id), want)
		if sent := restores.Load(); sent > 0 {
			t.Errorf("run again sent %d blocks, want none", sent)
		}
	})
}

// TestRunKernelHeld holds that a table which another process writes ends run.
func TestRunKernelHeld(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		args := append(n.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), write(t, "good.rules", goodRules))
		first := startRun(t, &app{open: n.open}, args...)
		first.stderr.wait(t, "ready:")
		args[len(args)-1] = write(t, "dns.rules", dnsRules)
		second := startRun(t, &app{open: n.open}, args...)
		second.ends(t, exitEnvironment)
		if want := fmt.Sprintf("error: table filter is held by pid %d", os.Getpid()); !strings.Contains(second.stderr.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, second.stderr)
		}
		first.stop(t)
	})
}

func (n namespace) chainNames(t *testing.T, id rules.TableID) string {
	t.Helper()
	snap, err := n.kernel.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(sortedKeys(snap.Chains), " ")
}

// A second daemon on the same tables ends at once, even where there is nothing to write.
func TestRunHoldsItsTables(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		ipv6 := fmt.Sprintf("--ipv6=%t", v == rules.IPv6)
		file := write(t, "good.rules", goodRules)
		if r := n.tableward(t, "apply", ipv6, file); r.code != exitOK {
			t.Fatalf("exit status %d\n%s", r.code, r.stderr)
		}
		holder, err := dataplane.NewKernel(t.Context(), dataplane.Options{
			Backend: n.backend, NetNS: n.path, StateDir: os.Getenv("TABLEWARD_STATE_DIR"),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Close()
		if err := holder.Hold(rules.TableID{IPVersion: v, Name: "filter"}); err != nil {
			t.Fatal(err)
		}
		r := n.tableward(t, "run", ipv6, file)
		if held := fmt.Sprintf("table filter is held by pid %d", os.Getpid()); r.code != exitEnvironment || !strings.Contains(r.stderr, held) {
			t.Errorf("exit status %d\n%s", r.code, r.stderr)
		}
	})
}
