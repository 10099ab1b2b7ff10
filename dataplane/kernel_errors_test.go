// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// capturedRow is a row of testdata/errors.json that a tool gave without anything but input.
type capturedRow struct {
	Name    string
	Backend dataplane.Backend
	IP      rules.IPVersion
	Source  string
	Setup   string
	Input   string
	Exit    int
	Stderr  string
	Want    struct {
		Class string
		Line  int
	}
}

// capturedRows returns the rows that take no setup, or those whose setup is that command in
// front of the tool.
func capturedRows(t *testing.T, b dataplane.Backend, v rules.IPVersion, command string) []capturedRow {
	t.Helper()
	text, err := os.ReadFile("testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all, rows []capturedRow
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		first, _, _ := strings.Cut(r.Setup, " ")
		if first == command && strings.HasPrefix(r.Source, "captured") && r.Backend == b && r.IP == v {
			rows = append(rows, r)
		}
	}
	return rows
}

const capturedSeed = "*filter\n:A - [0:0]\n:B - [0:0]\n-F\n-X\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\n-A INPUT -j A\nCOMMIT\n"

// What was captured still holds: the class, the line, the words, and that a block that is
// refused has changed nothing.
func TestKernelErrors(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		t.Parallel()
		tables := []rules.TableID{{IPVersion: v, Name: "filter"}, {IPVersion: v, Name: "nat"}, {IPVersion: v, Name: "mangle"}}
		state := func() (out []string) {
			for _, id := range tables {
				out = append(out, render(t, k, id)...)
			}
			return out
		}
		same := strings.HasPrefix(k.Info().Version, "iptables v1.8.9 ") || strings.Contains(k.Info().Version, "restore v1.8.9 ")
		if !same {
			t.Logf("%s: other words are let pass", k.Info().Version)
		}
		rows := capturedRows(t, b, v, "")
		if len(rows) < 40 {
			t.Errorf("%d rows", len(rows))
		}
		for _, row := range rows {
			clearTable(t, k, tables[2])
			if err := k.Restore(background, tables[0], []byte(capturedSeed)); err != nil {
				t.Fatalf("before %s: %v", row.Name, err)
			}
			before := state()
			err := k.Restore(background, tables[0], []byte(row.Input))
			if row.Want.Class == "" {
				if err != nil {
					t.Errorf("%s: %v", row.Name, err)
				}
				continue
			}
			re := restoreError(t, err)
			if re.Class.String() != row.Want.Class || re.Line != row.Want.Line {
				t.Errorf("%s: %s at line %d, want %s at line %d", row.Name, re.Class, re.Line, row.Want.Class, row.Want.Line)
			}
			if same && (re.ExitCode != row.Exit || re.Stderr != row.Stderr) {
				t.Errorf("%s: exit %d, %s\nwant %d, %s", row.Name, re.ExitCode, re.Stderr, row.Exit, row.Stderr)
			}
			if row.Name == "second of two tables" {
				continue // a block is one table: the first was a block of its own
			}
			if diff := cmp.Diff(before, state()); diff != "" {
				t.Errorf("%s was refused, and changed (-before +after):\n%s", row.Name, diff)
			}
		}
	})
}

// The same with what an environment may lack: privileges, and system calls that fail.
func TestKernelErrorsOfPlaces(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		for _, command := range []string{"setpriv", "strace"} {
			if _, err := exec.LookPath(command); err != nil || os.Geteuid() != 0 {
				t.Logf("no %s here: %v", command, err)
				continue
			}
			for _, row := range capturedRows(t, b, v, command) {
				if out, err := exec.Command("sh", "-c", row.Setup+" true").CombinedOutput(); err != nil {
					t.Logf("%s: cannot be set up here: %s", row.Name, out)
					continue
				}
				if b == dataplane.Legacy && strings.Contains(row.Setup, "--reuid") {
					continue // another user may not open our lock file
				}
				o := testns.Options(t, testns.New(t), b)
				o.ToolDir = t.TempDir()
				family := map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[v]
				for _, tool := range []string{"restore", "save"} {
					name := family + "-" + string(b) + "-" + tool
					script := "#!/bin/sh\nexec " + name + " \"$@\"\n"
					if tool == "restore" {
						script = "#!/bin/sh\n[ \"$1\" = --version ] && exec " + name + " --version\nexec " + row.Setup + " " + name + " \"$@\"\n"
					}
					if err := os.WriteFile(filepath.Join(o.ToolDir, name), []byte(script), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				id := rules.TableID{IPVersion: v, Name: "filter"}
				k := newKernel(t, o)
				err := k.Restore(background, id, []byte(row.Input))
				if row.Want.Class == "" {
					if err != nil {
						t.Errorf("%s: %v", row.Name, err)
					}
					continue
				}
				re := restoreError(t, err)
				if re.Class.String() != row.Want.Class || re.Line != row.Want.Line {
					t.Errorf("%s: %+v", row.Name, re)
				}
				if got := render(t, k, id); len(got) != 0 {
					t.Errorf("%s was refused, and there is %q", row.Name, got)
				}
			}
		}
	})
}
