// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// The tools at hand edit rightly, and the live table sees nothing of the trial.
func TestCanEdit(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		ctx, cancel := context.WithCancel(background)
		cancel()
		if k.CanEdit(ctx, k.id("filter")) {
			t.Error("at the end of the context")
		}
		begin := time.Now()
		for _, table := range []string{"filter", "raw"} {
			if !k.CanEdit(background, k.id(table)) {
				t.Errorf("%s: no edits", table)
			}
		}
		t.Logf("%v", time.Since(begin))
		if diff := cmp.Diff(render(t, dataplane.NewSim(b), k.id("filter")), render(t, k, k.id("filter"))); diff != "" {
			t.Errorf("the live table:\n%s", diff)
		}
	})
}

// What a tool does wrong with an index is found, and remembered.
func TestCanEditNot(t *testing.T) {
	const right = "nothing wrong"
	for name, filter := range map[string]string{
		right:                     `cat`,
		"inserts at the head":     `sed -u 's/^-I \([^ ]*\) [0-9]*/-I \1/'`,
		"deletes another":         `sed -u 's/^-D \([^ ]*\) 3$/-D \1 2/'`,
		"deletes too many":        `sed -u 's/^-D \([^ ]*\) 3$/&\n-D \1 1/'`,
		"appends at the head":     `sed -u '/dport 6 /s/^-A /-I /'`,
		"knows no index":          `sed -u 's/^-D .*/-D nosuch 1/'`,
		"leaves out what is last": `sed -u '/dport 33 /d'`,
		"ends":                    `sed -u '/^-D/q'`,
		"forgets to commit":       `sed -u '/^-D/,$s/^COMMIT/#&/'`,
		"is wrong the third time": `sed -u 's/^-I \([^ ]*\) 3 /-I \1 2 /'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			runs := filepath.Join(dir, "runs")
			for tool, script := range map[string]string{
				"save":    `exec %s "$@"`,
				"restore": `[ "$1" = --version ] && exec %[1]s "$@"; echo >> ` + runs + `; ` + filter + ` | %[1]s "$@"`,
			} {
				tool = "iptables-nft-" + tool
				path, err := exec.LookPath("/usr/sbin/" + tool)
				if err != nil {
					t.Skip("no nft tools")
				}
				if err := os.WriteFile(filepath.Join(dir, tool), []byte(fmt.Sprintf("#!/bin/sh\n"+script+"\n", path)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			o := testns.Options(t, testns.New(t), dataplane.NFT)
			o.ToolDir, o.BaseDeadline = dir, 2*time.Second
			k := newKernel(t, o)
			for range 2 {
				if got := k.CanEdit(background, rules.TableID{IPVersion: 4, Name: "filter"}); got != (name == right) {
					t.Errorf("it can edit: %v", got)
				}
			}
			if text, err := os.ReadFile(runs); err != nil || len(text) != 1 {
				t.Errorf("%d runs of the tool, %v", len(text), err)
			}
		})
	}
}
