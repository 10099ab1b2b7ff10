// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	webRules = `*filter
:web-in - [0:0]
-A web-in -p tcp --dport 80 -j ACCEPT
-A web-in -j missing-x
-A INPUT -j web-in
COMMIT
`
	badRules = `*filter
:bad-in - [0:0]
-A bad-in -p tcp --bogus
-A bad-in -j DROP
COMMIT
`
	worseRules = "*filter\n-A INPUT -j ACCEPT -F INPUT\nCOMMIT\n"
)

// TestGolden compares the whole output of runs on a simulator, files in the working folder.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		seed  string
		args  []string
	}{
		{"apply-json", map[string]string{"web.rules": webRules, "bad.rules": badRules, "worse.rules": worseRules}, "",
			[]string{"apply", "-o", "json", "web.rules", "bad.rules", "worse.rules"}},
		{"apply-text", map[string]string{"web.rules": webRules, "bad.rules": badRules, "worse.rules": worseRules}, "",
			[]string{"apply", "web.rules", "bad.rules", "worse.rules"}},
		{"apply-conflict", map[string]string{"loop.rules": "*filter\n:a-1 - [0:0]\n:a-2 - [0:0]\n-A a-1 -j a-2\n-A a-2 -j a-1\n-A INPUT -j a-1\nCOMMIT\n"}, "",
			[]string{"apply", "-o", "json", "loop.rules"}},
		{"apply-hooks", map[string]string{"hook.rules": "*filter\n-A INPUT -p tcp -j other-in\nCOMMIT\n"}, "",
			[]string{"apply", "-o", "json", "hook.rules"}},
		{"apply-stub-missing", map[string]string{"hook.rules": "*nat\n-A PREROUTING -p tcp -j other-in\nCOMMIT\n"}, "",
			[]string{"apply", "--stub-missing", "hook.rules"}},
		{"apply-policies", map[string]string{"p.rules": "*filter\n:INPUT DROP [0:0]\n:p-in - [0:0]\n-A p-in -j ACCPET\nCOMMIT\n*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n"}, "",
			[]string{"apply", "--policies", "-o", "json", "p.rules"}},
		{"apply-policies-ignored", map[string]string{"a.rules": "*filter\n:INPUT DROP [0:0]\nCOMMIT\n", "b.rules": "*filter\n:INPUT DROP [0:0]\n:OUTPUT - [0:0]\nCOMMIT\n"}, "",
			[]string{"apply", "a.rules", "b.rules"}},
		{"apply-clash", map[string]string{"web.rules": webRules, "web.more.rules": webRules, "db.rules": "*nat\n:db-x - [0:0]\nCOMMIT\n"}, "",
			[]string{"apply", "."}},
		{"apply-foreign-owner", map[string]string{"d.rules": "*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j RETURN\n-A FORWARD -j DOCKER-USER\n-A FORWARD -j DOCKER-USER\nCOMMIT\n"},
			"*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -j DROP\nCOMMIT\n", []string{"apply", "d.rules"}},
		{"dry-run", map[string]string{"web.rules": webRules, "web.v6.rules": webRules}, "*filter\n:web-in - [0:0]\n-A web-in -j DROP\n-A INPUT -j ACCEPT\nCOMMIT\n",
			[]string{"apply", "--dry-run", "."}},
		{"dry-run-json", map[string]string{"old.rules": "*nat\n-X old-a\n-A OUTPUT -j ACCEPT\nCOMMIT\n"}, "*nat\n:old-a - [0:0]\n-A old-a -j RETURN\nCOMMIT\n",
			[]string{"apply", "--dry-run", "--prefix", "old-", "-o", "json", "old.rules"}},
		{"check-text", map[string]string{"web.rules": webRules, "odd.rules": oddRules, "worse.rules": worseRules}, "",
			[]string{"check", "."}},
		{"check-json", map[string]string{"web.rules": webRules, "odd.rules": oddRules}, "",
			[]string{"check", "-o", "json", "."}},
		{"check-good", map[string]string{"web.rules": webRules}, "", []string{"check", "web.rules"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden, err := filepath.Abs(filepath.Join("testdata", "golden", c.name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			for name, text := range c.files {
				writeFile(t, name, text)
			}
			sim := dataplane.NewSim(dataplane.NFT)
			simWorld{sim}.load(t, rules.IPv4, c.seed)
			r := runOn(t, sim, c.args...)
			checkGolden(t, golden, fmt.Sprintf("exit status %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr))
		})
	}
}

// oddRules has what check looks for.
const oddRules = `*filter
:LOG - [0:0]
:odd-a - [0:0]
:odd-b - [0:0]
-A odd-a -j ACCPET
-A odd-b -j odd-b
-A INPUT -p tcp -j odd-a
-A INPUT -p tcp -j odd-a
-A INPUT -j nowhere
-A DOCKER-USER -j ACCEPT
COMMIT
*nat
:odd-n - [0:0]
-A odd-n -j odd-gone
-A odd-n -g ACCEPT
COMMIT
`

func checkGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		writeFile(t, path, got)
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", filepath.Base(path), diff)
	}
}
