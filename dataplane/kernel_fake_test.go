// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// fakeTools makes a folder whose tools are one shell script.
func fakeTools(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables-nft-restore", "iptables-nft-save", "iptables"} {
		text := "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'fake v1 (nf_tables)'; exit 0; }\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A tool's outcome, by what it does. Success is the marker, and nothing else.
func TestKernelOutcomes(t *testing.T) {
	cases := []struct {
		name, script string
		want         dataplane.Class // 0 is success
		reason       string
	}{
		{"marker", `grep '^# tableward'`, 0, ""},
		{"marker, then a slow end", `grep '^# tableward'; exec sleep 1`, 0, ""},
		{"marker, then a failure", `grep '^# tableward'; exit 3`, 0, ""},
		{"chatter before the marker", `seq 1 20000; cat`, 0, ""},
		{"exit 0 without marker", `cat >/dev/null`, dataplane.Unknown, "without"},
		{"marker within a line", `sed 's/^# tableward/x # tableward/'`, dataplane.Unknown, "without"},
		{"killed", `kill -9 $$`, dataplane.Unknown, "killed"},
		{"crash", `kill -11 $$`, dataplane.Unknown, "segmentation fault"},
		{"hangs", `exec sleep 100`, dataplane.Unknown, "did not answer"},
		{"hangs with a child", `sleep 100 & wait`, dataplane.Unknown, "did not answer"},
		{"refuses", `echo 'iptables-nft-restore: line 2 failed: No chain/target/match by that name.' >&2; exit 1`, dataplane.Rejected, "No chain"},
		{"floods stderr", `head -c 1000000 /dev/zero >&2; exit 1`, dataplane.RejectedSomewhere, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, c.script), BaseDeadline: 500 * time.Millisecond}
			k, err := dataplane.NewKernel(background, o)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			err = k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\n-A x -j ACCEPT\nCOMMIT\n"))
			if c.want == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if re := restoreError(t, err); re.Class != c.want || !strings.Contains(re.Reason, c.reason) || len(re.Stderr) > 64<<10 {
				t.Errorf("class %v, reason %.200q, %d bytes of stderr", re.Class, re.Reason, len(re.Stderr))
			}
		})
	}
}

// What a read must not be mistaken for: an empty table.
func TestKernelReadsCutShort(t *testing.T) {
	cases := []struct {
		name, script string
		want         dataplane.Class
	}{
		{"nothing", `:`, dataplane.Unknown},
		{"no COMMIT", `printf '*filter\n:INPUT ACCEPT [0:0]\n'`, dataplane.Unknown},
		{"another table", `printf '*nat\nCOMMIT\n'`, dataplane.Unknown},
		{"damaged", `printf '*filter\nwhat\nCOMMIT\n'`, dataplane.Unknown},
		{"incompatible", "printf \"# Table \\`filter' is incompatible, use 'nft' tool.\\n\"", dataplane.Unavailable},
		{"no permission", `echo 'iptables-save v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)' >&2; exit 4`, dataplane.Unavailable},
		{"hangs", `exec sleep 100`, dataplane.Unknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, c.script), BaseDeadline: 500 * time.Millisecond}
			k, err := dataplane.NewKernel(background, o)
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			_, err = k.Read(background, rules.TableID{IPVersion: 4, Name: "filter"})
			if re := restoreError(t, err); re.Class != c.want {
				t.Errorf("%v, want %v", re, c.want)
			}
		})
	}
}

func TestKernelCancelled(t *testing.T) {
	k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "exec sleep 100")})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	err = k.Restore(ctx, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\nCOMMIT\n"))
	if re := restoreError(t, err); re.Class != dataplane.Unknown || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v", re)
	}
}

// IPv6 tools that are absent do not stop IPv4, and say what is missing.
func TestKernelWithoutIPv6(t *testing.T) {
	k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "cat")})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\nCOMMIT\n")); err != nil {
		t.Error(err)
	}
	err = k.Restore(background, rules.TableID{IPVersion: 6, Name: "filter"}, []byte("*filter\nCOMMIT\n"))
	var missing *dataplane.MissingError
	if re := restoreError(t, err); re.Class != dataplane.Unavailable || !errors.As(err, &missing) || missing.Tool != "ip6tables-nft-restore" {
		t.Errorf("%+v", re)
	}
	_, err = dataplane.NewKernel(background, dataplane.Options{ToolDir: t.TempDir()})
	if !errors.As(err, &missing) {
		t.Errorf("no tools: %v", err)
	}
	k2, err := dataplane.NewKernel(background, dataplane.Options{Backend: dataplane.Legacy, StateDir: t.TempDir(), ToolDir: fakeTools(t, "cat")})
	if !errors.As(err, &missing) {
		t.Errorf("no legacy tools: %v, %v", k2, err)
	}
}

// The marker is not sent into a table that stays open: its echo would mean nothing.
func TestKernelOpenTable(t *testing.T) {
	k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "cat")})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for input, applied := range map[string]bool{
		"*filter\nCOMMIT\n": true, "*filter\nCOMMIT": true, "*filter\nCOMMIT\n\n# x\n": true, "": true, "# x\n": true,
		"*filter\n": false, "*filter\n# COMMIT\n": false, "*filter\nCOMMIT \n": false, "*filter\nCOMMIT\n*nat\n\n": false,
	} {
		err := k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte(input))
		if (err == nil) != applied {
			t.Errorf("%q: %v", input, err)
		}
	}
}

// The plain names serve where the backend's own are absent, if they are of that backend.
func TestKernelPlainNames(t *testing.T) {
	dir := fakeTools(t, "cat")
	for _, name := range []string{"restore", "save"} {
		if err := os.Rename(filepath.Join(dir, "iptables-nft-"+name), filepath.Join(dir, "iptables-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\nCOMMIT\n")); err != nil {
		t.Error(err)
	}
	if got := k.Info(); got.Backend != "nft" || got.MaxDepth != 15 || got.Version != "fake v1 (nf_tables)" {
		t.Errorf("%+v", got)
	}
	var missing *dataplane.MissingError
	if _, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: dir, Backend: dataplane.Legacy}); !errors.As(err, &missing) {
		t.Errorf("legacy: %v", err)
	}
}

// A tool that vanishes while we run.
func TestKernelToolGone(t *testing.T) {
	dir := fakeTools(t, "cat")
	k, err := dataplane.NewKernel(background, dataplane.Options{StateDir: t.TempDir(), ToolDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if err := os.Remove(filepath.Join(dir, "iptables-nft-restore")); err != nil {
		t.Fatal(err)
	}
	err = k.Restore(background, rules.TableID{IPVersion: 4, Name: "filter"}, []byte("*filter\nCOMMIT\n"))
	if re := restoreError(t, err); re.Class != dataplane.Unavailable || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%+v", re)
	}
}
