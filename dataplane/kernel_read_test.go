// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// What tools of all ages have printed is read, or refused, but never half of it.
func TestKernelReadsOldOutput(t *testing.T) {
	for name, c := range map[string]struct {
		table  string
		chains string   // names, sorted
		lost   []string // beginnings of rules that cannot be sent again
	}{
		"embedded-newline":           {"filter", "FORWARD INPUT OUTPUT felix-IN felix-OUT", []string{`-m comment --comment "line1`}},
		"legacy-warning-interleaved": {"nat", "KUBE-SVC-ASDFASDFASDFASDF PREROUTING", []string{"! -s 10.42.0.0/16"}},
		"unsupported-revision":       {"mangle", "FORWARD INPUT OLD_AGENT_PRE_mangle OUTPUT POSTROUTING PREROUTING", []string{"-m socket [unsupported", "-d 127.0.0.11/32"}},
		"old-save-format":            {"filter", "FORWARD INPUT OUTPUT felix-IN", nil},
		"counters":                   {"filter", "INPUT felix-IN", nil},
	} {
		path, err := filepath.Abs("../rules/testdata/" + name + ".save")
		if err != nil {
			t.Fatal(err)
		}
		script := "case $0 in *save) exec cat " + path + ";; esac; cat"
		k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, script)})
		snap, err := k.Read(background, rules.TableID{IPVersion: 4, Name: c.table})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var chains, lost []string
		for name, chain := range snap.Chains {
			chains = append(chains, name)
			for _, r := range chain.Rules {
				if r.Err != nil {
					lost = append(lost, r.Text)
				}
			}
		}
		slices.Sort(chains)
		if got := strings.Join(chains, " "); got != c.chains {
			t.Errorf("%s: chains %s", name, got)
		}
		if len(lost) != len(c.lost) {
			t.Fatalf("%s: %q", name, lost)
		}
		for i, text := range c.lost {
			if !strings.HasPrefix(lost[i], text) {
				t.Errorf("%s: %q", name, lost)
			}
		}
		// The other tables were not printed: nothing is known of them.
		for _, table := range []string{"filter", "nat", "mangle", "raw"} {
			if table == c.table {
				continue
			}
			_, err := k.Read(background, rules.TableID{IPVersion: 4, Name: table})
			if re := restoreError(t, err); re.Class != dataplane.Unknown {
				t.Errorf("%s: table %s: %v", name, table, re)
			}
		}
	}
}

const cannotRead = "table filter cannot be read: it holds rules that only nft can show"

func incompatible(t *testing.T, err error) {
	t.Helper()
	if re := restoreError(t, err); re.Class != dataplane.Unavailable || re.Reason != cannotRead || !errors.Is(err, dataplane.ErrIncompatible) {
		t.Errorf("%+v", re)
	}
}

// A table with what nft alone can show cannot be read, but it can be written.
func TestKernelReadsIncompatible(t *testing.T) {
	path, err := filepath.Abs("../rules/testdata/nft-incompatible.save")
	if err != nil {
		t.Fatal(err)
	}
	fake := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "case $0 in *save) exec cat "+path+";; esac; cat")})
	_, err = fake.Read(background, filter)
	incompatible(t, err)
	if err := fake.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}

	ns := testns.New(t)
	k := newKernel(t, testns.Options(t, ns, dataplane.NFT))
	if err := k.Restore(background, filter, []byte("*filter\n:tw-a - [0:0]\n-A INPUT -j tw-a\nCOMMIT\n")); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
	nft := exec.Command("nsenter", "--net="+ns, "nft", "-f", "-")
	nft.Stdin = strings.NewReader("add chain ip filter FOREIGN\nadd rule ip filter FOREIGN meta mark set numgen inc mod 3\n")
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = k.Read(background, filter)
	incompatible(t, err)
	if err := k.Restore(background, filter, []byte("*filter\n:tw-a - [0:0]\n-A tw-a -p tcp -j DROP\nCOMMIT\n")); err != nil {
		t.Errorf("write: %v", err)
	}
	if _, err := k.Read(background, filter6); err != nil {
		t.Errorf("the other IP version: %v", err)
	}
}
