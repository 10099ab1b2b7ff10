// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// R40, R41: a warning of the tool on stderr is no part of the table, and does not get into it
// through a shared pipe; one that a tool printed into a rule is damage of that rule, which says
// so, and of no other.
func TestR40R41WarningsOfASave(t *testing.T) {
	const warning = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them"
	const head, tail = "*filter\n:INPUT ACCEPT [0:0]\n:tw-a - [0:0]\n", "-A tw-a -p udp -j DROP\nCOMMIT\n"
	for name, c := range map[string]struct {
		rule string // printed
		err  bool
	}{
		"on stderr":   {"-A tw-a -p tcp -m comment --comment \"a b\" -j ACCEPT\n", false},
		"in a rule":   {"-A tw-a -p tcp -m comment --comment \"a" + warning + "\n b\" -j ACCEPT\n", true},
		"in a target": {"-A tw-a -p tcp -j ACC" + warning + "\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "save")
			if err := os.WriteFile(file, []byte(warning+"\n"+head+c.rule+tail+warning+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			// More than a pipe holds is said beside it.
			script := "for i in $(seq 2000); do echo '" + warning + "' >&2; done; cat '" + file + "'; echo '" + warning + "' >&2"
			k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, script)})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			snap, err := k.Read(background, rules.TableID{IPVersion: 4, Name: "filter"})
			if err != nil {
				t.Fatal(err)
			}
			got := snap.Chains["tw-a"].Rules
			if len(snap.Chains) != 2 || len(got) < 2 || got[len(got)-1].Text != "-p udp -j DROP" || got[len(got)-1].Err != nil {
				t.Fatalf("%+v", snap.Chains)
			}
			if (got[0].Err != nil) != c.err || !c.err && (len(got) != 2 || strings.Contains(got[0].Text, "Warning")) {
				t.Errorf("%+v", got)
			}
		})
	}
}
