// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

const goodRules = "*filter\n:good-a - [0:0]\n-A good-a -j ACCEPT\n-A INPUT -j good-a\nCOMMIT\n"

func newSim() *dataplane.Sim { return dataplane.NewSim(dataplane.NFT) }

func decode(t *testing.T, r result) applyOutput {
	t.Helper()
	var out applyOutput
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v in\n%s", err, r.stdout)
	}
	return out
}

// failing is an app whose kernel fails each operation of a kind.
func failing(op dataplane.Op, err error) *app {
	sim := newSim()
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == op {
			return err
		}
		return nil
	}
	return simApp(sim)
}

func noKernel(err error) *app {
	return &app{open: func(context.Context, *flags) (kernel, error) { return nil, err }}
}

func TestExitStatus(t *testing.T) {
	good, bad, worse := write(t, "good.rules", goodRules), write(t, "bad.rules", badRules), write(t, "worse.rules", worseRules)
	missing, empty := filepath.Join(t.TempDir(), "missing.rules"), write(t, "empty.rules", "# nothing\n")
	denied := &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no permission: CAP_NET_ADMIN is missing"}
	absent := &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "table filter is not available"}
	locked := &dataplane.RestoreError{Class: dataplane.Busy, Reason: "the xtables lock is held by another program"}
	for _, c := range []struct {
		name string
		app  *app
		args []string
		code int
		says string // on stderr
	}{
		{"all applied", nil, []string{"apply", good}, 0, ""},
		{"nothing to do", nil, []string{"apply", empty}, 0, ""},
		{"a rejected message", nil, []string{"apply", good, bad}, 3, "rejected: " + bad + ":3:18"},
		{"only a rejected message", nil, []string{"apply", bad}, 3, "rejected"},
		{"a refused file", nil, []string{"apply", good, worse}, 3, "refused: " + worse + ":2:20"},
		{"an unreadable file", nil, []string{"apply", good, missing}, 3, "missing.rules: open"},
		{"a refused file with --strict", nil, []string{"apply", "--strict", good, worse}, 2, "refused"},
		{"no usable file", nil, []string{"apply", worse, missing}, 2, "refused"},
		{"an empty folder", nil, []string{"apply", t.TempDir()}, 2, "no *.rules files"},
		{"stdin twice", nil, []string{"apply", "-", "-"}, 2, "twice"},
		{"no arguments", nil, []string{"apply"}, 2, "at least 1 arg"},
		{"unknown command", nil, []string{"frob"}, 2, "unknown command"},
		{"unknown flag", nil, []string{"apply", "--frob", good}, 2, "unknown flag"},
		{"bad backend", nil, []string{"apply", "--backend", "bpf", good}, 2, "one of auto, nft, legacy, sim"},
		{"bad output", nil, []string{"apply", "-o", "yaml", good}, 2, "one of text, json"},
		{"bad prefix", nil, []string{"apply", "--prefix", "tw", good}, 2, "must end in one of"},
		{"bad timeout", nil, []string{"apply", "--timeout", "0s", good}, 2, "above 0"},
		{"bad log level", nil, []string{"apply", "--log-level", "loud", good}, 2, "one of trace"},
		{"no permission", failing(dataplane.OpRead, denied), []string{"apply", good, worse}, 7, "CAP_NET_ADMIN"},
		{"no permission to open", noKernel(fs.ErrPermission), []string{"apply", good}, 7, "CAP_NET_ADMIN"},
		{"no tools", noKernel(errors.New("iptables was not found")), []string{"apply", good, worse}, 4, "not found"},
		{"no table", failing(dataplane.OpRestore, absent), []string{"apply", good}, 4, "not available"},
		{"locked until the timeout", failing(dataplane.OpRestore, locked), []string{"apply", "--timeout", "500ms", good}, 4, "within the timeout of 500ms: busy: the xtables lock"},
		{"dry run without a kernel", noKernel(errors.New("iptables was not found")), []string{"apply", "--dry-run", good}, 0, "planned against an empty table"},
		{"dry run without permission", failing(dataplane.OpRead, denied), []string{"apply", "--dry-run", good}, 0, "planned against an empty table"},
		{"check: good", nil, []string{"check", good}, 0, ""},
		{"check: findings", nil, []string{"check", write(t, "odd.rules", oddRules)}, 1, ""},
		{"check: unreadable", nil, []string{"check", good, missing}, 2, ""},
		{"check: bad", nil, []string{"check", worse}, 2, ""},
		{"version", nil, []string{"version"}, 0, ""},
		{"completion", nil, []string{"completion", "bash"}, 0, ""},
		{"help", nil, []string{"help", "apply"}, 0, ""},
		{"no command", nil, nil, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := c.app
			if a == nil {
				a = simApp(newSim())
			}
			r := runApp(t, t.Context(), a, "", c.args...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit status %d, want %d; stderr %q, want %q", r.code, c.code, r.stderr, c.says)
			}
		})
	}
}

// TestStrictTouchesNothing holds that --strict is judged before anything is sent.
func TestStrictTouchesNothing(t *testing.T) {
	for name, other := range map[string]string{"syntax": worseRules, "hook": "*filter\n-A INPUT -j nowhere\nCOMMIT\n"} {
		t.Run(name, func(t *testing.T) {
			sim := newSim()
			sim.Hook = func(c dataplane.Call) error {
				if c.Op == dataplane.OpRestore {
					t.Errorf("sent %s", c.Input)
				}
				return nil
			}
			r := runOn(t, sim, "apply", "--strict", "-o", "json", write(t, "good.rules", goodRules), write(t, "other.rules", other))
			if out := decode(t, r); r.code != exitUsage || len(out.Refused) != 1 || len(out.Answers) != 0 {
				t.Errorf("exit status %d: %s", r.code, r.stdout)
			}
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	sim := newSim()
	sim.Hook = func(c dataplane.Call) error {
		if c.Op != dataplane.OpRestore {
			return nil
		}
		cancel()
		return &dataplane.RestoreError{Class: dataplane.Busy, Reason: "locked"}
	}
	r := runApp(t, ctx, simApp(sim), "", "apply", "-o", "json", write(t, "good.rules", goodRules))
	if r.code != exitInterrupted || !strings.Contains(r.stderr, "interrupted") {
		t.Errorf("exit status %d, stderr %q", r.code, r.stderr)
	}
	for _, a := range decode(t, r).Answers {
		if a.Result != "unavailable" || !strings.Contains(a.Error.Reason, "interrupted") {
			t.Errorf("%s: %s: %+v", a.ID, a.Result, a.Error)
		}
	}
}

// TestMustNotPass holds that what hides in a rule refuses the file, with its place.
func TestMustNotPass(t *testing.T) {
	for name, c := range map[string]struct {
		rule         string
		line, column int
	}{
		"newline":             {"-m comment --comment \"x\n-I INPUT -j ACCEPT\" -j DROP", 3, 27},
		"NUL":                 {"-s 192.0.2.1\x00 -j DROP", 3, 18},
		"open quote":          {`-m comment --comment "half open -j DROP`, 3, 27},
		"hidden command":      {"-j ACCEPT -P INPUT ACCEPT", 3, 16},
		"hidden long command": {"-j ACCEPT --policy INPUT", 3, 16},
	} {
		t.Run(name, func(t *testing.T) {
			r := runOn(t, newSim(), "apply", "-o", "json", write(t, "x.rules", "*filter\n:x - [0:0]\n-A x "+c.rule+"\nCOMMIT\n"))
			out := decode(t, r)
			if r.code != exitUsage || len(out.Refused) != 1 || out.Refused[0].Line != c.line || out.Refused[0].Column != c.column {
				t.Errorf("exit status %d, refused %+v; want %d:%d", r.code, out.Refused, c.line, c.column)
			}
		})
	}
}

func TestStdin(t *testing.T) {
	r := runApp(t, t.Context(), simApp(newSim()), goodRules, "apply", "-o", "json", "--owner", "me", "-")
	out := decode(t, r)
	if r.code != 0 || len(out.Answers) != 2 || out.Answers[0].ID != "-#1" || out.Answers[0].Owner != "me" {
		t.Errorf("exit status %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestFolder holds that a folder is its *.rules files, sorted, and that files of one base
// name have ids of their own.
func TestFolder(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "b.rules"), "*filter\n-A INPUT -s 192.0.2.2 -j DROP\nCOMMIT\n")
	writeFile(t, filepath.Join(dir, "a.rules"), "*filter\n-A INPUT -s 192.0.2.1 -j DROP\nCOMMIT\n")
	writeFile(t, filepath.Join(dir, "a.rules.bak"), "no rules\n")
	writeFile(t, filepath.Join(other, "b.rules"), "*filter\n-A INPUT -s 192.0.2.3 -j DROP\nCOMMIT\n")
	r := runOn(t, newSim(), "apply", "-o", "json", dir, filepath.Join(other, "b.rules"))
	var ids []string
	for _, a := range decode(t, r).Answers {
		ids = append(ids, a.ID)
	}
	want := []string{"a.rules#1", filepath.Join(dir, "b.rules") + "#1", filepath.Join(other, "b.rules") + "#1"}
	if diff := cmp.Diff(want, ids); diff != "" || r.code != 0 {
		t.Errorf("exit status %d: %s", r.code, diff)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("TABLEWARD_OUTPUT", "json")
	t.Setenv("TABLEWARD_OWNER", "env")
	t.Setenv("TABLEWARD_PREFIX", "good-,other-")
	t.Setenv("TABLEWARD_LOG_LEVEL", "error")
	t.Setenv("TABLEWARD_IPV6", "true")
	file := write(t, "good.rules", goodRules)
	r := runOn(t, newSim(), "apply", file)
	out := decode(t, r)
	if r.code != 0 || out.Answers[0].Owner != "env" || out.Answers[0].IP != rules.IPv6 {
		t.Errorf("exit status %d: %s%s", r.code, r.stdout, r.stderr)
	}
	r = runOn(t, newSim(), "apply", "--owner", "flag", file)
	if out := decode(t, r); out.Answers[0].Owner != "flag" {
		t.Errorf("the flag did not win: %s", r.stdout)
	}
	t.Setenv("TABLEWARD_TIMEOUT", "soon")
	r = runOn(t, newSim(), "apply", file)
	if r.code != exitUsage || !strings.Contains(r.stderr, "TABLEWARD_TIMEOUT") {
		t.Errorf("exit status %d: %s", r.code, r.stderr)
	}
}

// TestDryRun holds that a dry run prints, byte for byte, what the same apply sends, and
// sends nothing.
func TestDryRun(t *testing.T) {
	sim := newSim()
	simWorld{sim}.load(t, rules.IPv4, "*filter\n:tw-old - [0:0]\n-A tw-old -j DROP\n-A INPUT -s 192.0.2.1 -j ACCEPT\nCOMMIT\n")
	// The deletes of one table may go beside what the next one is sent.
	var mu sync.Mutex
	blocks := map[string]string{}
	sim.Hook = func(c dataplane.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Op == dataplane.OpRestore {
			blocks[c.Table.Name] += string(c.Input)
		}
		return nil
	}
	file := write(t, "tw.rules", "*nat\n:tw-n - [0:0]\nCOMMIT\n*filter\n:tw-a - [0:0]\n-A tw-a -j tw-gone\n-I INPUT -j tw-a\n-X tw-old\nCOMMIT\n")
	filter := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	before := sim.Save(filter)
	dry := runOn(t, sim, "apply", "--dry-run", "--prefix", "tw-", file)
	if len(blocks) > 0 {
		t.Errorf("a dry run sent\n%v", blocks)
	}
	if diff := cmp.Diff(before, sim.Save(filter)); diff != "" {
		t.Errorf("a dry run changed the table:\n%s", diff)
	}
	if r := runOn(t, sim, "apply", "--prefix", "tw-", file); r.code != 0 || dry.code != 0 {
		t.Fatalf("exit status %d and %d: %s", dry.code, r.code, r.stderr)
	}
	if diff := cmp.Diff(blocks["filter"]+blocks["nat"], dry.stdout); diff != "" {
		t.Errorf("sent (-) is not what the dry run printed (+):\n%s", diff)
	}
}

// TestSecondApply holds that an apply of what is there sends nothing and still names the
// stubs.
func TestSecondApply(t *testing.T) {
	sim := newSim()
	file := write(t, "web.rules", webRules)
	for _, when := range []string{"first", "second"} {
		r := runOn(t, sim, "apply", "-o", "json", file)
		out := decode(t, r)
		if r.code != 0 || len(out.Tables) != 1 {
			t.Fatalf("%s: exit status %d: %s", when, r.code, r.stdout)
		}
		if diff := cmp.Diff([]string{"missing-x"}, out.Tables[0].Stubs); diff != "" {
			t.Errorf("%s: stubs: %s", when, diff)
		}
		if want := map[string]int{"first": 1, "second": 0}[when]; out.Tables[0].Restores != want {
			t.Errorf("%s: %d restores, want %d", when, out.Tables[0].Restores, want)
		}
	}
}

// TestWaitsForKernelChain holds that a rule of a kernel chain which comes to exist while
// apply waits is applied, and that other tables do not wait.
func TestWaitsForKernelChain(t *testing.T) {
	t.Parallel()
	const text = "*filter\n-A DOCKER-USER -j DROP\n-A INPUT -j DROP\nCOMMIT\n*nat\n:w-n - [0:0]\nCOMMIT\n"
	sim := newSim()
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore && c.Table.Name == "nat" {
			return sim.Load(rules.IPv4, []byte("*filter\n:DOCKER-USER - [0:0]\nCOMMIT\n"))
		}
		return nil
	}
	r := runOn(t, sim, "apply", write(t, "w.rules", text))
	if r.code != 0 || !strings.Contains(r.stderr, "chain DOCKER-USER does not exist in 4/filter: waiting") {
		t.Errorf("exit status %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestUnmetKernelChain(t *testing.T) {
	file := write(t, "w.rules", "*filter\n-A DOCKER-USER -j DROP\n-A INPUT -j DROP\nCOMMIT\n")
	r := runOn(t, newSim(), "apply", "--timeout", "500ms", "-o", "json", file)
	out := decode(t, r)
	if r.code != exitPartly || out.Answers[0].Result != "unavailable" || out.Answers[1].Result != "applied" ||
		!strings.Contains(out.Answers[0].Error.Reason, "DOCKER-USER does not exist") {
		t.Errorf("exit status %d: %s", r.code, r.stdout)
	}
}
