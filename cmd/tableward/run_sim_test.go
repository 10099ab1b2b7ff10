// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

var filter4 = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}

const dnsRules = "*filter\n:dns-in - [0:0]\n-A dns-in -j ACCEPT\n-A INPUT -p udp -m udp --dport 53 -j dns-in\nCOMMIT\n"

// chainsIn returns the rules of the filter table of a simulator.
func chainsIn(t *testing.T, sim *dataplane.Sim) map[string][]string {
	return simWorld{sim}.chains(t, filter4)
}

func wantChains(t *testing.T, when string, got map[string][]string, want map[string][]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the table (-want +got):\n%s", when, diff)
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	good, dns := filepath.Join(dir, "good.rules"), filepath.Join(dir, "dns.rules")
	writeFile(t, good, goodRules)
	writeFile(t, dns, dnsRules)
	sim := newSim()
	r := startRun(t, simApp(sim), dir)
	if line := r.stderr.wait(t, "ready:"); line != "ready: 2 owners, 4 messages applied, 0 failing" {
		t.Error(line)
	}
	both := map[string][]string{
		"INPUT": {"-p udp -m udp --dport 53 -j dns-in", "-j good-a"}, "good-a": {"-j ACCEPT"}, "dns-in": {"-j ACCEPT"},
	}
	wantChains(t, "at the start", chainsIn(t, sim), both)

	writeFile(t, good, strings.Replace(goodRules, "ACCEPT", "DROP", 1))
	r.reload(t, "ready: 2 owners, 4 messages applied, 0 failing")
	both["good-a"] = []string{"-j DROP"}
	wantChains(t, "with another rule", chainsIn(t, sim), both)

	if err := os.Remove(dns); err != nil {
		t.Fatal(err)
	}
	r.reload(t, "ready: 1 owner, 2 messages applied, 0 failing")
	if got := chainsIn(t, sim)["INPUT"]; len(got) != 1 {
		t.Errorf("with a file gone: INPUT holds %q", got)
	}
	r.stop(t)
	if out := r.stdout.String(); out != "" {
		t.Errorf("stdout: %s", out)
	}
	r.stderr.wait(t, "stopped: the rules stay in the kernel")
	wantChains(t, "after the end", chainsIn(t, sim), map[string][]string{"INPUT": {"-j good-a"}, "good-a": {"-j DROP"}})
}

// TestRunRefused holds that a refused file keeps its version in force, and that a broken one
// at the start is left out.
func TestRunRefused(t *testing.T) {
	dir := t.TempDir()
	good, dns := filepath.Join(dir, "good.rules"), filepath.Join(dir, "dns.rules")
	writeFile(t, good, goodRules)
	writeFile(t, dns, worseRules)
	sim := newSim()
	r := startRun(t, simApp(sim), "--prefix", "dns-,good-", dir)
	r.stderr.wait(t, "refused: "+dns+":2:20")
	r.stderr.wait(t, "ready: 1 owner, 2 messages applied, 1 failing")

	writeFile(t, dns, dnsRules)
	r.reload(t, "ready: 2 owners, 4 messages applied, 0 failing")
	before := chainsIn(t, sim)
	for what, text := range map[string]string{
		"a line":           worseRules,
		"a clash":          strings.Replace(goodRules, "*filter", "# owner good\n*filter", 1),
		"a hook":           "*filter\n-A INPUT -j nowhere\nCOMMIT\n",
		"a hook of a kept": "*filter\n-A INPUT -j web-in\nCOMMIT\n",
	} {
		name := dns
		if what == "a clash" {
			name = filepath.Join(dir, "good.more.rules")
		}
		writeFile(t, name, text)
		r.reload(t, "refused: ")
		line := r.stderr.wait(t, "ready: 2 owners, 4 messages applied, ")
		wantChains(t, what+": "+line, chainsIn(t, sim), before)
		if what == "a clash" {
			os.Remove(name)
		}
		writeFile(t, dns, dnsRules)
		r.reload(t, "ready: 2 owners, 4 messages applied, 0 failing")
	}

	// A folder that cannot be read is trouble, not a wish.
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	r.reload(t, "refused: "+dir)
	r.stderr.wait(t, "ready: 2 owners, 4 messages applied, 1 failing")
	wantChains(t, "without the folder", chainsIn(t, sim), before)
	r.stop(t)
}

func TestRunStrict(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.rules")
	writeFile(t, good, goodRules)
	sim := newSim()
	r := startRun(t, simApp(sim), "--strict", dir)
	r.stderr.wait(t, "ready: 1 owner")
	before := chainsIn(t, sim)
	writeFile(t, good, "*filter\n-A INPUT -j DROP\nCOMMIT\n")
	writeFile(t, filepath.Join(dir, "worse.rules"), worseRules)
	r.reload(t, "nothing is changed: 1 file refused")
	wantChains(t, "with a refused file", chainsIn(t, sim), before)
	r.stop(t)
}

// TestRunRejected holds that a message which the kernel refused is neither held nor
// withdrawn, and is sent again.
func TestRunRejected(t *testing.T) {
	file := write(t, "set.rules", "*filter\n-A INPUT -m set --match-set peers src -j DROP\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
	sim := newSim()
	r := startRun(t, simApp(sim), file)
	r.stderr.wait(t, "rejected: "+file+":2:")
	r.stderr.wait(t, "ready: 1 owner, 1 message applied, 1 failing")
	simWorld{sim}.addSet(t, rules.IPv4, "peers")
	r.reload(t, "ready: 1 owner, 2 messages applied, 0 failing")
	wantChains(t, "with the set", chainsIn(t, sim), map[string][]string{
		"INPUT": {"-m set --match-set peers src -j DROP"}, "OUTPUT": {"-j ACCEPT"},
	})
	r.stop(t)
}

// TestRunOwnerRenamed holds that chains and rules change their owner without a gap.
func TestRunOwnerRenamed(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "web.rules"), webRules)
	sim := newSim()
	var gaps atomic.Int32
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && !strings.Contains(sim.Save(filter4), "-j web-in") && strings.Contains(sim.Save(filter4), ":web-in") {
			gaps.Add(1)
		}
		return nil
	}
	r := startRun(t, simApp(sim), dir)
	r.stderr.wait(t, "ready: 1 owner")
	before := chainsIn(t, sim)
	if err := os.Rename(filepath.Join(dir, "web.rules"), filepath.Join(dir, "www.rules")); err != nil {
		t.Fatal(err)
	}
	r.reload(t, "ready: 1 owner, 2 messages applied, 0 failing")
	wantChains(t, "with another owner", chainsIn(t, sim), before)
	if n := gaps.Load(); n > 0 {
		t.Errorf("%d blocks were sent while the hook was away", n)
	}
	r.stop(t)
}

// TestRunWaits holds that a message which waits for a kernel chain holds nothing up, that
// what of it is withdrawn does not come with the chain, and that what is left does.
func TestRunWaits(t *testing.T) {
	file := write(t, "w.rules", "*filter\n-A DOCKER-USER -s 192.0.2.1 -j DROP\n-A DOCKER-USER -s 192.0.2.2 -j DROP\n-A INPUT -j DROP\nCOMMIT\n")
	sim := newSim()
	r := startRun(t, simApp(sim), file)
	r.stderr.wait(t, "chain DOCKER-USER does not exist in 4/filter: waiting")
	r.stderr.wait(t, "ready: 1 owner, 1 message applied, 0 failing, 1 waiting for a kernel chain")
	writeFile(t, file, "*filter\n-A DOCKER-USER -s 192.0.2.2 -j DROP\n-A INPUT -j ACCEPT\nCOMMIT\n")
	r.reload(t, "ready: 1 owner, 1 message applied, 0 failing, 1 waiting")
	simWorld{sim}.load(t, rules.IPv4, "*filter\n:DOCKER-USER - [0:0]\nCOMMIT\n")
	writeFile(t, file, "*filter\n-A DOCKER-USER -s 192.0.2.2 -j DROP\n-A INPUT -j DROP\nCOMMIT\n")
	r.reload(t, "ready: 1 owner, 2 messages applied, 0 failing")
	wantChains(t, "with the chain", chainsIn(t, sim), map[string][]string{"DOCKER-USER": {"-s 192.0.2.2/32 -j DROP"}, "INPUT": {"-j DROP"}})
	r.stop(t)
}

func TestRunTakes(t *testing.T) {
	file := write(t, "d.rules", "*filter\n:DOCKER-X - [0:0]\n-A DOCKER-X -j ACCEPT\nCOMMIT\n")
	sim := newSim()
	simWorld{sim}.load(t, rules.IPv4, "*filter\n:DOCKER-X - [0:0]\n-A DOCKER-X -j DROP\nCOMMIT\n")
	r := startRun(t, simApp(sim), file)
	r.ends(t, exitUsage)
	if out := r.stderr.String(); !strings.Contains(out, "refused: "+file+":2:") || !strings.Contains(out, "--take DOCKER-X") {
		t.Error(out)
	}
	r = startRun(t, simApp(sim), "--take", "DOCKER-X", file)
	r.stderr.wait(t, "ready: 1 owner, 1 message applied, 0 failing")
	wantChains(t, "taken", chainsIn(t, sim), map[string][]string{"DOCKER-X": {"-j ACCEPT"}})
	r.stop(t)

	// A chain that we made ourselves is not another program's.
	r = startRun(t, simApp(newSim()), file)
	r.stderr.wait(t, "ready: 1 owner, 1 message applied, 0 failing")
	r.reload(t, "ready: 1 owner, 1 message applied, 0 failing")
	r.stop(t)
}

// TestRunGrace holds that an earlier run's chain keeps its content while its owner's file is
// refused, and becomes a stub when every owner has spoken.
func TestRunGrace(t *testing.T) {
	dir := t.TempDir()
	hook := filepath.Join(dir, "hook.rules")
	writeFile(t, hook, "*filter\n:tw-a - [0:0]\n-A tw-a -j tw-b\nCOMMIT\n")
	other := filepath.Join(dir, "other.rules")
	writeFile(t, other, worseRules)
	sim := newSim()
	simWorld{sim}.load(t, rules.IPv4, "*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n-A tw-a -j tw-b\n-A tw-b -j ACCEPT\nCOMMIT\n")
	stub := make(chan struct{}, 1)
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && strings.Contains(string(c.Input), "missing chain") {
			stub <- struct{}{}
		}
		return nil
	}
	r := startRun(t, simApp(sim), "--prefix", "tw-", "--refresh", "0", dir)
	r.stderr.wait(t, "ready: 1 owner, 1 message applied, 1 failing")
	wantChains(t, "in grace", chainsIn(t, sim), map[string][]string{"tw-a": {"-j tw-b"}, "tw-b": {"-j ACCEPT"}})
	writeFile(t, other, "*filter\n:tw-c - [0:0]\nCOMMIT\n")
	r.reload(t, "ready: 2 owners, 2 messages applied, 0 failing")
	<-stub
	r.stop(t)
	wantChains(t, "after grace", chainsIn(t, sim), map[string][]string{
		"tw-a": {"-j tw-b"}, "tw-b": {`-m comment --comment "tableward: missing chain" -j DROP`},
	})
}

// TestRunNotReady holds that passing trouble is said, and its end.
func TestRunNotReady(t *testing.T) {
	sim := newSim()
	var fail atomic.Bool
	fail.Store(true)
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && fail.Load() {
			return &dataplane.RestoreError{Class: dataplane.Busy, Reason: "the xtables lock is held by pid 7"}
		}
		return nil
	}
	r := startRun(t, simApp(sim), write(t, "good.rules", goodRules))
	r.stderr.wait(t, "not ready: table 4/filter is tried again: busy: the xtables lock is held by pid 7")
	fail.Store(false)
	r.stderr.wait(t, "ready: 1 owner, 2 messages applied, 0 failing")
	r.stop(t)
}
