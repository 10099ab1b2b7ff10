// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// The tests of this file go on with those of reports_test.go: what the restore tools say of a
// line, and names at the limit.

// fourLines is an input of four lines.
var fourLines = []byte("*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\nCOMMIT\n")

// R70: a line that a tool names is read in each of its forms, and leads to that line's text;
// a number that is no line of the input, and the COMMIT line, lead nowhere.
func TestR70EveryFormOfALine(t *testing.T) {
	forms := []struct {
		name string
		exit int
		text string
	}{
		{"line failed, legacy", 1, "iptables-restore: line %s failed\n"},
		{"line failed, nft", 1, "iptables-nft-restore: line %s failed: No chain/target/match by that name.\n"},
		{"of the other family", 1, "ip6tables-restore: line %s failed\n"},
		{"occurred at line", 2, "iptables-restore v1.8.9 (legacy): unknown option \"--bogus\"\nError occurred at line: %s\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n"},
		{"without the program", 2, "Bad argument `junk'\nError occurred at line: %s\n"},
		{"kernel, nft", 4, "iptables-nft-restore v1.8.9 (nf_tables): \nline %s: RULE_APPEND failed (Invalid argument): rule in chain tw-a\n"},
		{"policy", 1, "iptables-restore v1.8.9 (legacy): Can't set policy `ACCEPT' on `tw-a' line %s: Bad built-in chain name\n"},
	}
	for _, f := range forms {
		for n, want := range map[string]string{"2": ":tw-a - [0:0]", "3": "-A tw-a -j ACCEPT", "0": "", "-3": "", "4": "", "5": "", "6": "", "999": "", "99999999999999999999": ""} {
			e := dataplane.Classify(f.exit, fmt.Sprintf(f.text, n), fourLines)
			trusted := n == "4" && strings.HasPrefix(e.Reason, "Bad argument") // the tool did not know COMMIT there
			switch {
			case trusted && e.Class == dataplane.Rejected && e.Line == 4:
			case want != "" && (e.Class != dataplane.Rejected || fmt.Sprint(e.Line) != n || e.Text != want):
				t.Errorf("%s, line %s: %+v", f.name, n, e)
			case want == "" && (e.Class != dataplane.RejectedSomewhere || e.Line != 0 || e.Text != "" || len(e.Lines) > 0):
				t.Errorf("%s, line %s: %+v", f.name, n, e)
			}
			if e.Stderr == "" || e.ExitCode != f.exit || e.Reason == "" {
				t.Errorf("%s, line %s: %+v", f.name, n, e)
			}
		}
	}
}

// R70: the same through a tool that is run.
func TestR70ToolThatNamesNoLine(t *testing.T) {
	for _, n := range []string{"999", "0", "99999999999999999999"} {
		for _, said := range []string{"iptables-restore: line " + n + " failed", "line " + n + ": RULE_APPEND failed (Invalid argument): rule in chain tw-a"} {
			k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "read -r l; echo '"+said+"' >&2; exit 4")})
			re := restoreError(t, k.Restore(background, filter, fourLines))
			if re.Class != dataplane.RejectedSomewhere || re.Line != 0 || re.Text != "" {
				t.Errorf("%q: %+v", said, re)
			}
		}
	}
}

// R70: nft names the rule that the kernel refuses, legacy its COMMIT line and no reason. Lines
// are those of the block, however many blocks the tool has had before.
func TestR70KernelRefusal(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "nat"}
		for range 3 {
			if err := k.Restore(background, id, []byte("*nat\n:tw-good - [0:0]\n-A tw-good -p tcp -j RETURN\nCOMMIT\n")); err != nil {
				t.Fatal(err)
			}
			re := restoreError(t, k.Restore(background, id, []byte("*nat\n:tw-hook - [0:0]\n-A tw-hook -j MASQUERADE\n-A INPUT -j tw-hook\nCOMMIT\n")))
			switch b {
			case dataplane.NFT:
				// A validation says first which line made the table bad: the jump or what it leads to.
				if re.Class != dataplane.Rejected || re.Line != 4 || re.Text != "-A INPUT -j tw-hook" || !strings.Contains(re.Reason, "RULE_APPEND failed (Invalid argument)") {
					t.Errorf("%+v", re)
				}
			case dataplane.Legacy:
				if re.Class != dataplane.RejectedSomewhere || re.Line != 0 || re.Text != "" || re.Reason != "line 5 failed" {
					t.Errorf("%+v", re)
				}
			}
		}
	})
}

// R94, R95: what is said to fit the tools take, and what is not they refuse, none of them with
// a crash.
func TestR94R95LimitIsTheTools(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for _, name := range []string{
			strings.Repeat("n", 27), strings.Repeat("n", 28), strings.Repeat("n", 29), strings.Repeat("n", 30), strings.Repeat("n", 31), strings.Repeat("n", 64),
			strings.Repeat("é", 14), strings.Repeat("é", 14) + "n", strings.Repeat("é", 15), strings.Repeat("東", 9), strings.Repeat("東", 10),
		} {
			fits := rules.CheckChainName(name) == nil
			for _, block := range []string{
				"*filter\n:" + name + " - [0:0]\n-A " + name + " -j RETURN\n-A INPUT -j " + name + "\n-D INPUT -j " + name + "\n-F " + name + "\n-X " + name + "\nCOMMIT\n",
				"*filter\n-N " + name + "\n-X " + name + "\nCOMMIT\n",
			} {
				err := k.Restore(background, id, []byte(block))
				if fits != (err == nil) {
					t.Errorf("%d bytes: CheckChainName says %v, the tool %v", len(name), fits, err)
				}
				var re *dataplane.RestoreError
				if errors.As(err, &re) && re.Class != dataplane.Rejected {
					t.Errorf("%d bytes: %+v", len(name), re)
				}
			}
		}
	})
}
