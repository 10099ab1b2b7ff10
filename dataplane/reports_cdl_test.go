// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
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

// R44: a tool that takes only the first index of an input for what it says, as nft's before
// 1.8.3 did, is found out, so that it is given whole chains. Where the report asks for whole
// chains always, the architecture has edits by index where the tool at hand was seen to do them
// rightly.
func TestR44OnlyTheFirstIndexCounts(t *testing.T) {
	const filter = `sed -u '/^COMMIT/{x;s/.*//;x}; /^-[DI] [^ ]* [0-9]/{x;s/^/x/;/^x$/{x;b};x;s/^\(.. [^ ]*\) [0-9]*/\1 1/}'`
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		dir := t.TempDir()
		for tool, script := range map[string]string{"save": `exec %s "$@"`, "restore": `[ "$1" = --version ] && exec %[1]s "$@"; ` + filter + ` | %[1]s "$@"`} {
			tool = map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[v] + "-nft-" + tool
			path, err := exec.LookPath("/usr/sbin/" + tool)
			if err != nil {
				t.Skip("no nft tools")
			}
			if err := os.WriteFile(filepath.Join(dir, tool), fmt.Appendf(nil, "#!/bin/sh\n"+script+"\n", path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for folder, want := range map[string]bool{dir: false, "": true} {
			o := testns.Options(t, testns.New(t), dataplane.NFT)
			o.ToolDir, o.BaseDeadline = folder, 2*time.Second
			if got := newKernel(t, o).CanEdit(background, rules.TableID{IPVersion: v, Name: "filter"}); got != want {
				t.Errorf("IPv%d, tools in %q: it can edit: %v", v, folder, got)
			}
		}
	}
}

// R106: what a save prints is read as it comes, and of a stranger's rules nothing is kept that
// was not asked for.
func TestR106LargeSave(t *testing.T) {
	const foreign, comment = 10_000, 16 << 20
	file := filepath.Join(t.TempDir(), "save")
	var save strings.Builder
	save.WriteString("*filter\n:tw-a - [0:0]\n:big - [0:0]\n-A tw-a -j DROP\n")
	for i := range foreign {
		fmt.Fprintf(&save, "-A big -s 10.0.%d.%d/32 -p tcp -m tcp --dport 80 -m comment --comment \"rule %d of a stranger\" -j ACCEPT\n", i>>8, i&255, i)
	}
	save.WriteString("COMMIT\n")
	size := save.Len()
	if err := os.WriteFile(file, []byte(save.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	save.Reset()
	// It waits when the comment has been taken from it.
	script := fmt.Sprintf("yes '# a line that says nothing of the table' | head -c %d; echo; echo >'%s.half'; until [ -e '%[2]s.go' ]; do sleep 0.01; done; cat '%[2]s'", comment, file)
	k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, script)})
	kept := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, half := kept(), make(chan int64)
	go func() {
		for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); <-time.After(time.Millisecond) {
			if _, err := os.Stat(file + ".half"); err == nil {
				break
			}
		}
		n := kept() - before
		_ = os.WriteFile(file+".go", nil, 0o600)
		half <- n
	}()
	snap, err := k.Read(background, filter, "tw-a")
	if n := <-half; err != nil || n > comment/4 {
		t.Fatalf("%d bytes are held of a comment of %d, %v", n, comment, err)
	}
	if n := kept() - before; n > int64(size/2) {
		t.Errorf("%d bytes are kept of %d", n, size)
	}
	if got := snap.Chains; len(got) != 2 || len(got["tw-a"].Rules) != 1 || len(got["big"].Rules) != 0 {
		t.Errorf("%d chains, %d rules", len(got), len(got["big"].Rules))
	}
}
