// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// tookMs are times, which are another in each run.
var tookMs = regexp.MustCompile(`"tookMs":[0-9.]+`)

// TestGolden compares the whole output of runs on a simulator, files in the working folder.
func TestGolden(t *testing.T) {
	for _, c := range goldenCases {
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
			stdout := tookMs.ReplaceAllString(r.stdout, `"tookMs":0`)
			checkGolden(t, golden, fmt.Sprintf("exit status %d\n--- stdout\n%s--- stderr\n%s", r.code, stdout, r.stderr))
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
