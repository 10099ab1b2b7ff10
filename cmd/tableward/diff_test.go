// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

func decodeDiff(t *testing.T, r result) diffOutput {
	t.Helper()
	var out diffOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v in\n%s%s", err, r.stdout, r.stderr)
	}
	return out
}

// checkNoDiff holds that diff finds nothing that apply would change.
func checkNoDiff(t *testing.T, r result) {
	t.Helper()
	out := decodeDiff(t, r)
	if r.code != exitOK {
		t.Errorf("diff after apply: exit status %d: %s", r.code, r.stderr)
	}
	for _, d := range out.Tables {
		if d.Diff != "" {
			t.Errorf("diff after apply:\n%s", d.Diff)
		}
	}
}

// checkPromise holds that chains are as an earlier diff said they would be.
func checkPromise(t *testing.T, promised result, w world) {
	t.Helper()
	for _, d := range decodeDiff(t, promised).Tables {
		chains := w.chains(t, rules.TableID{IPVersion: d.IP, Name: d.Table})
		for _, c := range d.Chains {
			var got []string
			for _, text := range chains[c.Chain] {
				got = append(got, "-A "+c.Chain+" "+text)
			}
			want := slices.DeleteFunc(slices.Clone(c.Files), func(l string) bool { return strings.HasPrefix(l, ":") })
			if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(s []string) string { return strings.Join(s, "\n") })); diff != "" {
				t.Errorf("diff promised another chain %s of %d/%s (-promised +kernel):\n%s", c.Chain, d.IP, d.Table, diff)
			}
		}
	}
}

func TestDiffExitStatus(t *testing.T) {
	good, bad, worse := write(t, "good.rules", goodRules), write(t, "bad.rules", badRules), write(t, "worse.rules", worseRules)
	denied := &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no permission: CAP_NET_ADMIN is missing"}
	for _, c := range []struct {
		name string
		app  *app
		args []string
		code int
		says string
	}{
		{"same", nil, []string{write(t, "empty.rules", "# nothing\n")}, 0, ""},
		{"differs", nil, []string{good}, 1, ""},
		{"a refused file", nil, []string{good, worse}, 2, "refused: " + worse + ":2:20"},
		{"a rejected message", nil, []string{good, bad}, 2, "rejected: " + bad + ":3:18: unknown option"},
		{"a chain that is waited for", nil, []string{write(t, "wait.rules", userRules)}, 2, "chain DOCKER-USER does not exist"},
		{"no permission", failing(dataplane.OpRead, denied), []string{good}, 2, "CAP_NET_ADMIN"},
		{"no tools", noKernel(errors.New("iptables was not found")), []string{good}, 2, "was not found"},
		{"unknown flag", nil, []string{"--frob", good}, 2, "unknown flag"},
		{"prune without a prefix", nil, []string{"--prune", good}, 2, "--prune needs --prefix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := c.app
			if a == nil {
				a = simApp(newSim())
			}
			r := runApp(t, t.Context(), a, "", append([]string{"diff"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit status %d, want %d; stderr %q, want %q", r.code, c.code, r.stderr, c.says)
			}
		})
	}
}

// TestNotWritten holds that diff and check send nothing to the live tables.
func TestNotWritten(t *testing.T) {
	sim := newSim()
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore {
			t.Errorf("sent %s", c.Input)
		}
		return nil
	}
	file := write(t, "good.rules", goodRules)
	for _, command := range []string{"diff", "check"} {
		if r := runOn(t, sim, command, file); r.code > exitFindings {
			t.Errorf("%s: exit status %d: %s", command, r.code, r.stderr)
		}
	}
}

// TestReadInterrupted holds that the commands that only read end with the signal's status.
func TestReadInterrupted(t *testing.T) {
	file := write(t, "good.rules", goodRules)
	for _, command := range []string{"diff", "check"} {
		ctx, cancel := context.WithCancel(t.Context())
		sim := newSim()
		sim.Hook = func(dataplane.Call) error { cancel(); return ctx.Err() }
		if r := runApp(t, ctx, simApp(sim), "", command, file); r.code != exitInterrupted {
			t.Errorf("%s: exit status %d", command, r.code)
		}
		cancel()
	}
}

// TestDiffOfLargeChain holds that a chain that is too large for the shortest difference has
// one all the same, without the equal lines at both ends.
func TestDiffOfLargeChain(t *testing.T) {
	chain := func(odd string) []string {
		lines := []string{":c - [0:0]"}
		for i := range 3000 {
			line := fmt.Sprintf("-A c -s 10.0.%d.%d/32", i/250, i%250)
			if i == 10 || i == 2990 {
				line += odd
			}
			lines = append(lines, line)
		}
		return lines
	}
	got := chainDiff{"c", chain(" -j ACCEPT"), chain(" -j DROP")}.hunks()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if lines[0] != "@@ -12,2981 +12,2981 @@ c" || len(lines) != 1+2*2981 ||
		lines[1] != "--A c -s 10.0.0.10/32 -j ACCEPT" || lines[len(lines)-1] != "+-A c -s 10.0.11.240/32 -j DROP" {
		t.Errorf("%q ... %q, %d lines", lines[:2], lines[len(lines)-1], len(lines))
	}
}
