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

// R109: whatever the locale, every tool is run in plain English, since what it says is read.
// (A table with bytes of Latin-1 is read in cmd/tableward's test of the same number.)
func TestR109ToolsSpeakEnglish(t *testing.T) {
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		t.Setenv(name, "de_DE.UTF-8")
	}
	t.Setenv("LANGUAGE", "de:fr")
	dir := t.TempDir()
	script := `#!/bin/sh
echo "${0##*/} $1: $LC_ALL $LC_MESSAGES $LANG $LANGUAGE" >>` + dir + `/calls
[ "$1" = --version ] && { echo 'iptables v1.8.9 (nf_tables)'; exit 0; }
case $0 in
*save) printf '*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n';;
*restore) while read -r l; do case $l in '#'*) echo "$l";; esac; done;;
esac
`
	for _, tool := range []string{"iptables", "iptables-nft", "iptables-nft-save", "iptables-nft-restore"} {
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: dir})
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	if _, err := k.Read(background, id); err != nil {
		t.Error(err)
	}
	_, _ = k.Read(background, id, "INPUT") // one chain is asked for in another way
	if err := k.Restore(background, id, []byte("*filter\n:tw-a - [0:0]\nCOMMIT\n")); err != nil {
		t.Error(err)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(calls)), "\n") {
		call, locale, _ := strings.Cut(line, ":")
		seen[call] = true
		if strings.TrimSpace(locale) != "C" {
			t.Errorf("%s was run with %q", call, locale)
		}
	}
	for _, call := range []string{"iptables-nft-save -t", "iptables-nft-restore --noflush"} {
		if !seen[call] {
			t.Errorf("%q was not run: %v", call, seen)
		}
	}
}
