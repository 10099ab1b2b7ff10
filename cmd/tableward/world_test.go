// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// world is a kernel of its own: a network namespace or a simulator.
type world interface {
	addSet(t *testing.T, v rules.IPVersion, name string)
	// load is a plain iptables-restore --noflush.
	load(t *testing.T, v rules.IPVersion, input string)
	// chains returns the rules of every chain of a table, as saved.
	chains(t *testing.T, id rules.TableID) map[string][]string
	// tableward runs the program with a command and its arguments.
	tableward(t *testing.T, command string, args ...string) result
	// open is what an app opens, and flags are what it has to be told.
	open(ctx context.Context, f *flags) (kernel, error)
	flags() []string
}

// namespace is a network namespace as a world.
type namespace struct {
	path    string
	backend dataplane.Backend
	kernel  *dataplane.Kernel
}

func newNamespace(t *testing.T, b dataplane.Backend) namespace {
	t.Helper()
	path := testns.New(t)
	k, err := dataplane.NewKernel(t.Context(), testns.Options(t, path, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return namespace{path, b, k}
}

// run runs a command in the namespace.
func (n namespace) run(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + n.path}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func (n namespace) addSet(t *testing.T, v rules.IPVersion, name string) {
	t.Helper()
	if _, err := exec.LookPath("ipset"); err != nil {
		t.Skip("ipset is not installed")
	}
	family := "inet"
	if v == rules.IPv6 {
		family = "inet6"
	}
	n.run(t, "", "ipset", "create", name, "hash:ip", "family", family)
}

func (n namespace) load(t *testing.T, v rules.IPVersion, input string) {
	t.Helper()
	family := "iptables-"
	if v == rules.IPv6 {
		family = "ip6tables-"
	}
	n.run(t, input, family+string(n.backend)+"-restore", "--noflush")
}

func (n namespace) chains(t *testing.T, id rules.TableID) map[string][]string {
	t.Helper()
	snap, err := n.kernel.Read(t.Context(), id)
	return chainsOf(t, snap, err)
}

func (n namespace) flags() []string {
	return []string{"--backend", string(n.backend), "--netns", n.path}
}

func (n namespace) open(ctx context.Context, f *flags) (kernel, error) { return openKernel(ctx, f) }

func (n namespace) tableward(t *testing.T, command string, args ...string) result {
	t.Helper()
	return runApp(t, t.Context(), &app{open: n.open}, "", append(append([]string{command}, n.flags()...), args...)...)
}

// chainsOf takes what a dataplane read apart.
func chainsOf(t *testing.T, snap rules.Snapshot, err error) map[string][]string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for name, c := range snap.Chains {
		for _, r := range c.Rules {
			out[name] = append(out[name], r.Text)
		}
	}
	return out
}

// simWorld is a world in memory.
type simWorld struct{ sim *dataplane.Sim }

func (w simWorld) addSet(_ *testing.T, v rules.IPVersion, name string) { w.sim.AddSet(v, name) }

func (w simWorld) load(t *testing.T, v rules.IPVersion, input string) {
	t.Helper()
	if err := w.sim.Load(v, []byte(input)); err != nil {
		t.Fatal(err)
	}
}

func (w simWorld) chains(t *testing.T, id rules.TableID) map[string][]string {
	snap, err := w.sim.Read(context.Background(), id)
	return chainsOf(t, snap, err)
}

func (w simWorld) tableward(t *testing.T, command string, args ...string) result {
	return runOn(t, w.sim, append([]string{command}, args...)...)
}

func (w simWorld) open(context.Context, *flags) (kernel, error) { return simulator{w.sim}, nil }

func (w simWorld) flags() []string { return nil }
