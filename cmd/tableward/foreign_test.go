// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// eachWorld runs f on both backends and IP versions, on kernels and on simulators.
func eachWorld(t *testing.T, f func(t *testing.T, v rules.IPVersion, w world)) {
	t.Run("kernel", func(t *testing.T) {
		eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) { f(t, v, n) })
	})
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			t.Run(fmt.Sprintf("sim-%s%d", b, v), func(t *testing.T) { f(t, v, simWorld{dataplane.NewSim(b)}) })
		}
	}
}

// eachNamespace runs f on the kernels only.
func eachNamespace(t *testing.T, f func(t *testing.T, v rules.IPVersion, n namespace)) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock"))
		f(t, v, newNamespace(t, b))
	})
}

const (
	dockerSeed = "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -p udp -j DROP\n-A DOCKER-USER -j RETURN\n-A FORWARD -j DOCKER-USER\nCOMMIT\n"
	userRules  = "*filter\n-I DOCKER-USER -p tcp -m tcp --dport 80 -j ACCEPT\n-I DOCKER-USER -i eth0 -j DROP\nCOMMIT\n"
	ufwSeed    = "*filter\n:ufw-user-input - [0:0]\n-A ufw-user-input -p tcp -j ACCEPT\n-A INPUT -j ufw-user-input\nCOMMIT\n"
	ufwRules   = "*filter\n-A ufw-user-input -p udp -m udp --dport 53 -j ACCEPT\nCOMMIT\n"
)

// TestForeignChain puts rules into chains of other programs, which keep theirs.
func TestForeignChain(t *testing.T) {
	for _, c := range []struct {
		name, seed, file, chain string
		want                    []string
	}{
		{"DOCKER-USER", dockerSeed, userRules, "DOCKER-USER",
			[]string{"-i eth0 -j DROP", "-p tcp -m tcp --dport 80 -j ACCEPT", "-p udp -j DROP", "-j RETURN"}},
		{"ufw", ufwSeed, ufwRules, "ufw-user-input", []string{"-p tcp -j ACCEPT", "-p udp -m udp --dport 53 -j ACCEPT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
				w.load(t, v, c.seed)
				args := []string{fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "-o", "json", write(t, "mine.rules", c.file)}
				for run := range 3 {
					r := w.tableward(t, "apply", args...)
					if r.code != exitOK {
						t.Fatalf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
					}
					if run > 0 {
						checkNoRestore(t, r)
					}
					if diff := cmp.Diff(c.want, w.chains(t, rules.TableID{IPVersion: v, Name: "filter"})[c.chain]); diff != "" {
						t.Errorf("run %d (-want +got):\n%s", run, diff)
					}
				}
				checkNoDiff(t, w.tableward(t, "diff", args...))
			})
		})
	}
}

// lateWorld is a kernel in which something happens before a certain read.
type lateWorld struct {
	kernel
	before int // that read, from 1
	happen func()
	reads  int
}

func (l *lateWorld) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	if l.reads++; l.reads == l.before {
		l.happen()
	}
	return l.kernel.Read(ctx, id, chains...)
}

// TestForeignChainComesLater holds that a message waits for a chain that another program is
// still to make, and does not make it itself.
func TestForeignChainComesLater(t *testing.T) {
	eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
		// The first read asks what there is, the second one plans.
		a := &app{open: func(ctx context.Context, f *flags) (kernel, error) {
			k, err := w.open(ctx, f)
			return &lateWorld{kernel: k, before: 3, happen: func() { w.load(t, v, dockerSeed) }}, err
		}}
		file := write(t, "mine.rules", userRules)
		args := append(w.flags(), fmt.Sprintf("--ipv6=%t", v == rules.IPv6), file)
		r := runApp(t, t.Context(), a, "", append([]string{"apply"}, args...)...)
		if r.code != exitOK || !strings.Contains(r.stderr, "chain DOCKER-USER does not exist") {
			t.Fatalf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		want := []string{"-i eth0 -j DROP", "-p tcp -m tcp --dport 80 -j ACCEPT", "-p udp -j DROP", "-j RETURN"}
		if diff := cmp.Diff(want, w.chains(t, rules.TableID{IPVersion: v, Name: "filter"})["DOCKER-USER"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestForeignChainNeverComes holds that such a message is unavailable when the time is over,
// and that nothing was made.
func TestForeignChainNeverComes(t *testing.T) {
	eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
		r := w.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--timeout", "300ms", "-o", "json", write(t, "mine.rules", userRules))
		out := decode(t, r)
		if r.code != exitEnvironment || len(out.Answers) != 1 || out.Answers[0].Result != "unavailable" {
			t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if chains := w.chains(t, rules.TableID{IPVersion: v, Name: "filter"}); chains["DOCKER-USER"] != nil {
			t.Errorf("DOCKER-USER was made: %q", chains["DOCKER-USER"])
		}
	})
}

// TestPruneKernel takes what an earlier run has left out of every table.
func TestPruneKernel(t *testing.T) {
	eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
		w.load(t, v, strings.ReplaceAll(pruneSeed, "-s 10.1.0.0/16", "-p udp")) // for IPv6 as well
		args := []string{fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--prune", "--prefix", "tw-", "-o", "json", write(t, "tw.rules", pruneRules)}
		for run := range 2 {
			r := w.tableward(t, "apply", args...)
			if r.code != exitOK {
				t.Fatalf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if run > 0 {
				checkNoRestore(t, r)
			}
		}
		filter := w.chains(t, rules.TableID{IPVersion: v, Name: "filter"})
		want := map[string][]string{"tw-a": {"-j ACCEPT"}, "INPUT": {"-p udp -j ACCEPT", "-j tw-a"}}
		if diff := cmp.Diff(want, filter); diff != "" {
			t.Errorf("filter (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string][]string{}, w.chains(t, rules.TableID{IPVersion: v, Name: "nat"})); diff != "" {
			t.Errorf("nat (-want +got):\n%s", diff)
		}
		checkNoDiff(t, w.tableward(t, "diff", args...))
	})
}
