// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
)

// nft runs commands in the namespace.
func (k scanning) nft(commands ...string) {
	k.t.Helper()
	cmd := exec.Command("nsenter", "--net="+k.ns, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("%q: %v: %s", commands, err, out)
	}
}

// What only nft can show is part of the digest, as far as it is content, and what it jumps to
// of the jumps; base chains that are not the table's own are not shown.
func TestScanForeignNFT(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft")
	}
	k := newScanning(t, dataplane.NFT, 4)
	k.load("filter", ":tw-a - [0:0]; :tw-b - [0:0]; :tw-c - [0:0]; :tw-d - [0:0]; -A tw-a -j tw-b; :INPUT DROP [0:0]")
	before := k.scan("filter")
	k.nft("add table ip6 filter", "add chain ip6 filter tw-6", "add table inet filter", "add chain inet filter tw-inet",
		"add table ip other", "add chain ip other INPUT { type filter hook input priority 0; policy accept; }",
		"add chain ip filter FOREIGN { type filter hook input priority 0; policy drop; }", "add rule ip filter FOREIGN jump tw-c",
		"add chain ip filter FORWARD { type filter hook forward priority 10; policy drop; }",
		"add chain ip filter OUTPUT { type filter hook input priority 0; policy drop; }")
	if got := differ(before, k.scan("filter")); len(got) > 0 {
		t.Errorf("base chains and tables of others: %q differs", got)
	}
	type step struct {
		commands string
		changed  bool // tw-b
		jumps    string
	}
	for _, s := range []step{
		{"add rule ip filter tw-b tcp dport vmap { 1 : jump tw-c, 2 : drop }", true, "tw-c"},
		{"flush chain ip filter tw-b\nadd rule ip filter tw-b tcp dport vmap { 1 : drop, 2 : drop }", true, ""},
		{"flush chain ip filter tw-b\nadd rule ip filter tw-b tcp dport { 1, 2 } drop", true, ""},
		{"flush chain ip filter tw-b\nadd rule ip filter tw-b tcp dport { 1, 3 } drop", true, ""},
		{"flush chain ip filter tw-b\nadd rule ip filter tw-b tcp dport { 3, 1 } drop", false, ""},
		{"add map ip filter m { type mark : verdict; }\nadd rule ip filter tw-b meta mark vmap @m", true, ""},
		{"add element ip filter m { 1 : goto tw-d }", false, "tw-d"},
		{"add set ip filter s { type ipv4_addr; }\nadd rule ip filter tw-b ip saddr @s quota 9 mbytes counter drop", true, "tw-d"},
		{"add element ip filter s { 192.0.2.1 }", false, "tw-d"},
		{"add rule ip filter tw-b ip saddr 192.0.2.7 drop comment \"x\"", true, "tw-d"},
		{"flush chain ip filter tw-b\ndelete map ip filter m", true, ""},
	} {
		was := k.scan("filter", "tw-b").Chains["tw-b"]
		k.nft(s.commands)
		is := k.scan("filter", "tw-b").Chains["tw-b"]
		if (is.Digest != was.Digest) != s.changed || strings.Join(is.Jumps, " ") != s.jumps {
			t.Errorf("%s: changed %v, jumps %q", s.commands, is.Digest != was.Digest, is.Jumps)
		}
	}
	if got := differ(before, k.scan("filter")); len(got) > 0 {
		t.Errorf("when all is gone: %q differs", got)
	}
	k.load("filter", "-A INPUT -p tcp -j DROP; -A tw-b -p udp -j tw-c")
	if got := differ(before, k.scan("filter")); !slices.Equal(got, []string{"INPUT", "tw-b"}) {
		t.Errorf("own rules: %q differs", got)
	}
}

// Elements of a set that is one rule's alone are part of that rule's digest and of no other's.
func TestScanForeignDigests(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft")
	}
	k := newScanning(t, dataplane.NFT, 4)
	k.load("filter", ":tw-a - [0:0]; :tw-b - [0:0]; -A tw-a -p tcp")
	digests := func(ports string) []uint64 {
		k.nft("flush chain ip filter tw-a", "add rule ip filter tw-a ip protocol tcp accept", "add rule ip filter tw-a tcp dport "+ports,
			"add rule ip filter tw-a ip protocol tcp accept")
		c := k.scan("filter", "tw-a").Chains["tw-a"]
		if c.Digest != k.scan("filter").Chains["tw-a"].Digest || len(c.Digests) != 3 {
			t.Fatalf("%s: %+v", ports, c)
		}
		return c.Digests
	}
	one := digests("{ 1, 2 } drop")
	for _, ports := range []string{"{ 1, 3 } drop", "vmap { 1 : drop, 2 : jump tw-b }"} {
		other := digests(ports)
		if one[0] != other[0] || one[0] != one[2] || one[1] == other[1] || one[2] != other[2] {
			t.Errorf("%s: %x, before %x", ports, other, one)
		}
	}
	if again := digests("{ 2, 1 } drop"); !slices.Equal(again, one) {
		t.Errorf("again %x, before %x", again, one)
	}
}
