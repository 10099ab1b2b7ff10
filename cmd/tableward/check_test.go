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

func decodeCheck(t *testing.T, r result) checkOutput {
	t.Helper()
	var out checkOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v in\n%s%s", err, r.stdout, r.stderr)
	}
	return out
}

// TestCheckCases holds that check finds what apply would refuse or reject, at its line, and
// nothing else, and that it leaves the live tables alone.
func TestCheckCases(t *testing.T) {
	eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
		for _, c := range loadCases(t, v) {
			t.Run(c.name, func(t *testing.T) { c.testCheck(t, w) })
		}
	})
}

func (c ruleCase) testCheck(t *testing.T, w world) {
	for _, s := range c.sets {
		w.addSet(t, c.v, s)
	}
	r := w.tableward(t, "check", c.args()...)
	out := decodeCheck(t, r)
	if !out.Scratch {
		t.Fatalf("no scratch namespace: %+v", out.Untried)
	}
	want := map[string]int{"ok": exitOK, "refused": exitUsage, "rejected": exitFindings}[c.want]
	twice := func(p jsonPlace) bool { return strings.Contains(p.Reason, "kept once") }
	if c.want == "ok" && slices.ContainsFunc(out.Findings, twice) {
		want = exitFindings
		out.Findings = slices.DeleteFunc(out.Findings, twice)
	}
	if r.code != want {
		t.Errorf("exit status %d, want %d", r.code, want)
	}
	switch {
	case c.want == "ok" && len(out.Findings) > 0:
		t.Errorf("findings: %+v", out.Findings)
	case c.want == "rejected" && c.line != 0 && (len(out.Findings) != 1 || out.Findings[0].Line != c.line):
		t.Errorf("findings: %+v, want line %d", out.Findings, c.line)
	}
	for _, table := range []string{"filter", "nat", "mangle", "raw"} {
		if chains := w.chains(t, rules.TableID{IPVersion: c.v, Name: table}); len(chains) > 0 {
			t.Errorf("table %s was touched: %q", table, chains)
		}
	}
}

// TestCheckFindsEach holds that all bad rules are found at once, not one for each message,
// with their columns, and that good ones beside them are not.
func TestCheckFindsEach(t *testing.T) {
	file := write(t, "many.rules", `*filter
:m-a - [0:0]
-A m-a -p tcp --bogus
-A m-a -p tcp -m tcp --dport 80 -j ACCEPT
-A m-a -p tcp -m tcp --dport 99999 -j ACCEPT
-A m-a -j MASQUERADE
-A m-a -m set --match-set nowhere src -j DROP
-A INPUT -j m-a
-A INPUT -m nosuchmatch -j DROP
COMMIT
`)
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		r := n.tableward(t, "check", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "-o", "json", file)
		var got []string
		for _, f := range decodeCheck(t, r).Findings {
			got = append(got, fmt.Sprintf("%d:%d", f.Line, f.Column))
		}
		want := []string{"3:15", "5:30", "6:8", "7:8", "9:13"}
		if diff := cmp.Diff(want, got); diff != "" || r.code != exitFindings {
			t.Errorf("exit status %d (-want +got):\n%s\n%s", r.code, diff, r.stdout)
		}
	})
}

// TestCheckAsksTheKernel holds that chains which exist are no findings, and that one with
// the name of another program's chain is, if a file would take it.
func TestCheckAsksTheKernel(t *testing.T) {
	sim := newSim()
	simWorld{sim}.load(t, rules.IPv4, dockerSeed)
	hook := write(t, "hook.rules", "*filter\n-A INPUT -j DOCKER-USER\n-A DOCKER-USER -j ACCEPT\nCOMMIT\n")
	if r := runOn(t, sim, "check", "-o", "json", hook); r.code != exitOK || len(decodeCheck(t, r).Notes) > 0 {
		t.Errorf("exit status %d: %s", r.code, r.stdout)
	}
	take := write(t, "take.rules", "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j ACCEPT\nCOMMIT\n")
	r := runOn(t, sim, "check", "-o", "json", take)
	if out := decodeCheck(t, r); r.code != exitFindings || len(out.Findings) != 1 || !strings.Contains(out.Findings[0].Reason, "--take DOCKER-USER") {
		t.Errorf("exit status %d: %s", r.code, r.stdout)
	}
	if r := runOn(t, sim, "check", "--take", "DOCKER-USER", take); r.code != exitOK {
		t.Errorf("exit status %d: %s", r.code, r.stdout)
	}
}

// TestCheckTextOnly holds that it is said, once, when rules could not be tried.
func TestCheckTextOnly(t *testing.T) {
	file := write(t, "two.rules", "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
	for name, a := range map[string]*app{
		"no tools":   noKernel(errors.New("iptables was not found")),
		"no scratch": withoutScratch(),
	} {
		t.Run(name, func(t *testing.T) {
			r := runApp(t, t.Context(), a, "", "check", "-o", "json", file)
			out := decodeCheck(t, r)
			if r.code != exitOK || out.Scratch || len(out.Untried) != 2 || strings.Count(r.stderr, "text only: ") != 1 {
				t.Errorf("exit status %d, stderr %q\n%s", r.code, r.stderr, r.stdout)
			}
			bad := write(t, "bad.rules", "*filter\n:b-a - [0:0]\n-A b-a -j ACCPET\nCOMMIT\n")
			if r := runApp(t, t.Context(), a, "", "check", bad); r.code != exitFindings {
				t.Errorf("exit status %d", r.code)
			}
		})
	}
}

// blindKernel has no scratch namespace.
type blindKernel struct{ kernel }

func (blindKernel) Check(context.Context, rules.TableID, dataplane.Batch) ([]dataplane.Verdict, error) {
	return nil, fmt.Errorf("%w: not permitted", dataplane.ErrNoScratch)
}

func (blindKernel) Canon(context.Context, rules.TableID, []rules.Rule) ([]rules.Canon, error) {
	return nil, dataplane.ErrNoScratch
}

func withoutScratch() *app {
	return &app{open: func(context.Context, *flags) (kernel, error) { return blindKernel{simulator{newSim()}}, nil }}
}

// TestDiffTextOnly holds that diff says when it compares texts.
func TestDiffTextOnly(t *testing.T) {
	r := runApp(t, t.Context(), withoutScratch(), "", "diff", "-o", "json", write(t, "good.rules", goodRules))
	out := decodeDiff(t, r)
	if r.code != exitFindings || !out.TextOnly || !strings.Contains(r.stderr, "compared by their text") {
		t.Errorf("exit status %d, stderr %q\n%s", r.code, r.stderr, r.stdout)
	}
}
