// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// check is what the model says of a rule that the tools are asked about.
func check(v rules.IPVersion, a asked) error {
	r, err := rules.ParseRule(a.rule)
	if err != nil {
		return err
	}
	return rules.CheckRule(rules.TableID{IPVersion: v, Name: a.table}, r)
}

// askEach asks both backends and both IP versions about rules, and shows what they answered.
func askEach(t *testing.T, list func(rules.IPVersion) []asked, show func(t *testing.T, b dataplane.Backend, v rules.IPVersion, got []dataplane.Known)) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		if version := k.Info().Version; !strings.Contains(version, dataplane.SimVersion[1:]) {
			t.Skipf("measured with %s, not with %s", dataplane.SimVersion, version)
		}
		ns := testns.New(t)
		k, err := dataplane.NewKernel(context.Background(), testns.Options(t, ns, b))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		show(t, b, v, answers(t, k, b, v, ns, list(v)))
	})
}

// limit is a rule with a place for a value, the longest that is kept, and one more.
type limit struct {
	v          rules.IPVersion // 0 for both
	rule       string
	most, more string
}

func limits() []limit {
	x := func(n int) string { return strings.Repeat("x", n) }
	ports := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", i+1)
		}
		return b.String()[1:]
	}
	return []limit{
		{rule: "-j LOG --log-prefix %s", most: x(29), more: x(30)},
		{rule: "-j NFLOG --nflog-prefix %s", most: x(63), more: x(64)},
		{rule: "-m comment --comment %s -j RETURN", most: x(255), more: x(256)},
		{rule: "-m comment --comment %s", most: "x" + strings.Repeat("é", 127), more: strings.Repeat("é", 128)},
		{rule: "-m hashlimit --hashlimit-upto 1/sec --hashlimit-name %s", most: x(254), more: x(255)},
		{rule: "-m recent --set --name %s", most: x(199), more: x(200)},
		{rule: "-m helper --helper %s", most: x(29), more: x(30)},
		{rule: "-i %s -j RETURN", most: x(15), more: x(16)},
		{rule: "-o %s", most: x(14) + "+", more: x(15) + "+"},
		{rule: "-m physdev --physdev-in %s", most: x(15), more: x(16)},
		{rule: "-m physdev --physdev-is-bridged --physdev-out %s", most: x(14) + "+", more: x(15) + "+"},
		{rule: "-p tcp -m multiport --dports %s", most: ports(15), more: ports(16)},
		{rule: "-p udp -m multiport --sports %s", most: ports(13) + ",20:30", more: ports(14) + ",20:30"},
		{rule: "-m set --match-set %s src", most: x(31), more: x(32)},
		{rule: "-j %s", most: x(28), more: x(29)},
		{rule: "-j %s", most: strings.Repeat("é", 14), more: strings.Repeat("é", 14) + "x"},
		{v: rules.IPv4, rule: "-j TEE --gateway 10.0.0.1 --oif %s", most: x(15), more: x(16)},
		{v: rules.IPv6, rule: "-j TEE --gateway 2001:db8::1 --oif %s", most: x(15), more: x(16)},
	}
}

// What the model takes the tools take and keep whole; one more they refuse or cut. Only nft
// keeps more, of one.
func TestKernelKeepsWhatCheckRuleTakes(t *testing.T) {
	list := func(v rules.IPVersion) (out []asked) {
		for _, l := range limits() {
			if l.v == 0 || l.v == v {
				out = append(out, asked{"filter", fmt.Sprintf(l.rule, l.most)}, asked{"filter", fmt.Sprintf(l.rule, l.more)})
			}
		}
		return out
	}
	askEach(t, list, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, got []dataplane.Known) {
		rs := list(v)
		i := 0
		for _, l := range limits() {
			if l.v != 0 && l.v != v {
				continue
			}
			whole := func(k dataplane.Known, value string) bool {
				return k.Exit == 0 && len(k.Canon) == 1 && strings.Contains(k.Canon[0], value)
			}
			most, more := got[i], got[i+1]
			if err := check(v, rs[i]); err != nil || !whole(most, l.most) {
				t.Errorf("%s: check %v, tool %+v", rs[i].rule, err, most)
			}
			nftKeeps := b == dataplane.NFT && strings.Contains(l.rule, "nflog-prefix")
			if err := check(v, rs[i+1]); err == nil || whole(more, l.more) != nftKeeps {
				t.Errorf("%s: check %v, tool %+v", rs[i+1].rule, err, more)
			}
			i += 2
		}
	})
}

// A word of 1,023 bytes is read whole, one more refused.
func TestKernelWordLength(t *testing.T) {
	most := "-s " + strings.Repeat("192.0.2.1,", 101) + "198.51.100.10"
	list := func(rules.IPVersion) []asked { return []asked{{"filter", most}, {"filter", most + "0"}} }
	askEach(t, list, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, got []dataplane.Known) {
		if err := check(rules.IPv4, asked{"filter", most}); err != nil {
			t.Error(err)
		}
		if v == rules.IPv4 && len(got[0].Canon) != 102 {
			t.Errorf("%d rules: %s", len(got[0].Canon), got[0].Words)
		}
		if err := check(v, asked{"filter", most + "0"}); err == nil || got[1].Exit == 0 || got[1].Words != "Parameter too long!" {
			t.Errorf("one more: check %v, tool %+v", err, got[1])
		}
	})
}

// fault is a rule that CheckRule refuses. The tools refuse it, or read it as another.
type fault struct {
	v           rules.IPVersion // 0 for both
	table, rule string
	reads       string // "" for what is refused
}

var faults = []fault{
	// The other IP version.
	{6, "filter", "-s 10.0.0.1 -j DROP", ""},
	{6, "filter", "-d 2001:db8::1,10.0.0.0/8 -j DROP", ""},
	{4, "filter", "! -s 2001:db8::/32 -j DROP", ""},
	{4, "filter", "-d ::1 -j DROP", ""},
	{6, "filter", "-m iprange --src-range 10.0.0.1-10.0.0.9", ""},
	{4, "filter", "-m iprange --dst-range 2001:db8::1", ""},
	{6, "filter", "-m conntrack --ctorigdst 10.0.0.1", ""},
	{4, "filter", "-m conntrack --ctreplsrc 2001:db8::/32", ""},
	{4, "filter", "-m policy --dir in --pol ipsec --mode tunnel --tunnel-src 2001:db8::1", ""},
	{6, "filter", "-m recent --set --mask 255.255.255.0", ""},
	{6, "nat", "-p tcp -j DNAT --to-destination 10.0.0.1:80", ""},
	{4, "nat", "-p tcp -j DNAT --to-destination [2001:db8::1]:80", ""},
	{4, "nat", "-j DNAT --to 10.0.0.1-2001:db8::1", ""},
	{4, "nat", "-j SNAT --to-source 2001:db8::1", ""},
	{6, "nat", "-j SNAT --to-source 10.0.0.1-10.0.0.9", ""},
	{6, "nat", "-j NETMAP --to 10.0.0.0/24", ""},
	{4, "nat", "-j NETMAP --to 2001:db8::/64", ""},
	{6, "mangle", "-j TEE --gateway 10.0.0.1", ""},
	{4, "mangle", "-p tcp -j TPROXY --on-port 1 --on-ip ::1", ""},
	{6, "filter", "-p icmp -m icmp --icmp-type 8", ""},
	{6, "filter", "-p icmp --icmp-type 8", ""},
	{4, "filter", "-p ipv6-icmp -m icmp6 --icmpv6-type 1", ""},
	{4, "filter", "-p ipv6-icmp -m icmpv6 --icmpv6-type 1", ""},
	{4, "filter", "-p ipv6-icmp --icmpv6-type 1", ""},
	{6, "filter", "-m ttl --ttl-eq 1", ""},
	{6, "filter", "-m realm --realm 1", ""},
	{6, "filter", "-p tcp -m osf --genre Linux", ""},
	{4, "filter", "-m hl --hl-eq 1", ""},
	{4, "filter", "-m dst", ""},
	{4, "filter", "-m eui64", ""},
	{4, "filter", "-m frag", ""},
	{4, "filter", "-m hbh", ""},
	{4, "filter", "-m ipv6header --header esp", ""},
	{4, "filter", "-p mh -m mh", ""},
	{4, "filter", "-m rt", ""},
	{4, "filter", "-m srh", ""},
	{6, "mangle", "-j TTL --ttl-set 1", ""},
	{6, "mangle", "-p tcp -j ECN --ecn-tcp-remove", ""},
	{4, "mangle", "-j HL --hl-set 1", ""},
	{4, "mangle", "-j SNPT --src-pfx fd00::/64 --dst-pfx fd01::/64", ""},
	{6, "filter", "-f -j DROP", ""},
	{6, "filter", "-j REJECT --reject-with icmp-port-unreachable", ""},
	{6, "filter", "-j REJECT --reject-with host-unreach", ""},
	{6, "filter", "-j REJECT --reject-with TCP-RST", ""},
	{4, "filter", "-j REJECT --reject-with icmp6-adm-prohibited", ""},
	{4, "filter", "-j REJECT --reject-with no-route", ""},

	// Out of range.
	{4, "filter", "-s 10.0.0.1/33", ""},
	{6, "filter", "-s 2001:db8::/129", ""},
	{4, "nat", "-j NETMAP --to 10.0.0.0/33", "-j NETMAP --to 10.0.0.0/32"},
	{4, "filter", "-m conntrack --ctorigsrc 10.0.0.1/33", "-m conntrack --ctorigsrc 10.0.0.1"},
	{0, "filter", "-p tcp --dport 65536", ""},
	{0, "filter", "-p tcp --sport 1:65536", ""},
	{0, "filter", "-p udp --dport 65536", "-p udp -m udp --dport 0"},
	{0, "filter", "-p udp --dport 1:65536", "-p udp -m udp --dport 1:0"},
	{0, "filter", "-p sctp --dport 65536", ""},
	{0, "filter", "-p dccp --dport 65536", "-p dccp -m dccp --dport 0"},
	{0, "filter", "-p tcp -m multiport --dports 1,65536", ""},
	{0, "filter", "-m conntrack --ctorigdstport 70000", "-m conntrack --ctorigdstport 4464"},
	{0, "nat", "-p tcp -j REDIRECT --to-ports 65536", ""},
	{0, "nat", "-p tcp -j MASQUERADE --to-ports 1024-65536", ""},
	{4, "nat", "-p tcp -j DNAT --to-destination 10.0.0.1:65536", ""},
	{6, "nat", "-p tcp -j SNAT --to-source [2001:db8::1]:1-65536", ""},
	{4, "mangle", "-p tcp -j TPROXY --on-port 70000", "-p tcp -j TPROXY --on-port 4464 --on-ip 0.0.0.0 --tproxy-mark 0x0/0x0"},

	// Without what they need.
	{0, "filter", "--dport 80 -p tcp", ""},
	{0, "filter", "-m tcp --dport 80", ""},
	{0, "filter", "-p icmp --dport 80", ""},
	{0, "filter", "-p all --dport 80", ""},
	{0, "filter", "-p esp --sport 80", ""},
	{0, "filter", "-m multiport --dports 80 -p tcp", ""},
	{0, "filter", "-p icmp -m multiport --dports 80", ""},
	{0, "filter", "! -p tcp -m multiport --dports 80", ""},
	{0, "filter", "-p tcp --dports 80", ""},
	{0, "filter", "-p tcp --dport 80,443", ""},
	{0, "filter", "--syn", ""},
	{0, "filter", "--tcp-flags SYN SYN", ""},
	{4, "filter", "--icmp-type 8", ""},
	{6, "filter", "--icmpv6-type 1", ""},
	{0, "nat", "-j REDIRECT --to-ports 80", ""},
	{0, "nat", "-j REDIRECT --to-ports 80 -p tcp", ""},
	{0, "nat", "-p all -j MASQUERADE --to-ports 80", ""},
	{0, "nat", "-j DNAT --to-destination :80", ""},
	{0, "nat", "-p tcp -j REDIRECT --to-ports 10.0.0.1:80", ""},
	{0, "nat", "-p tcp -j REDIRECT --to-ports 80:90", ""},

	// Once, and apart.
	{0, "filter", "-p tcp -p tcp", ""},
	{0, "filter", "-p tcp -m policy --dir in --pol ipsec --protocol esp", ""},
	{4, "filter", "-s 10.0.0.1 --src 10.0.0.2", ""},
	{0, "filter", "-i a -i b", ""},
	{4, "filter", "-f -f", ""},
	{4, "filter", "! -s 10.0.0.1,10.0.0.2", ""},
	{4, "filter", "-s 10.0.0.1,", ""},
	{0, "filter", "-ieth0", "-i -ieth0"},
	{0, "filter", "--in-interface=eth0", ""},
	{0, "filter", "-ptcp", ""},
	{4, "filter", "--source=10.0.0.1", ""},
	{0, "filter", "! -j DROP", ""},
	{0, "filter", "! -m tcp", ""},

	// No value.
	{0, "filter", "-s -j DROP", ""},
	{0, "filter", `-s "" -j DROP`, ""},
	{0, "filter", "-j DROP -s", ""},
	{0, "filter", `-i "" -j DROP`, ""},
	{0, "filter", "-i -j DROP", ""},
	{0, "filter", "-p -j DROP", ""},
	{0, "filter", "-m comment --comment -j DROP", ""},
	{0, "filter", `-j LOG --log-prefix ""`, ""},
	{0, "filter", "-j LOG --log-prefix", ""},
	{0, "filter", `-m conntrack --ctstate "" -j DROP`, ""},
	{0, "filter", "-s ! 10.0.0.1", ""},
	{0, "filter", `-m physdev --physdev-in ""`, "-m physdev --physdev-in"},

	// Words and names.
	{0, "filter", "-m comment --comment two words -j DROP", ""},
	{0, "filter", "-m conntrak --ctstate NEW", ""},
	{0, "filter", "-m conntrack --ctsate NEW", ""},
	{0, "filter", "-p tcp --dprot 80", ""},
	{0, "filter", "--sorce 10.0.0.1", ""},
	{0, "nat", "-j DROP", ""},
}

// What CheckRule refuses the tools refuse as well, or read as something else.
func TestKernelRefusesWhatCheckRuleRefuses(t *testing.T) {
	of := func(v rules.IPVersion) (out []fault) {
		for _, f := range faults {
			if f.v == 0 || f.v == v {
				out = append(out, f)
			}
		}
		return out
	}
	list := func(v rules.IPVersion) (out []asked) {
		for _, f := range of(v) {
			out = append(out, asked{f.table, f.rule})
		}
		return out
	}
	askEach(t, list, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, got []dataplane.Known) {
		for i, f := range of(v) {
			if err := check(v, asked{f.table, f.rule}); err == nil {
				t.Errorf("%s %s: CheckRule takes it", f.table, f.rule)
			}
			switch k := got[i]; {
			case f.reads == "" && k.Exit == 0:
				t.Errorf("%s %s: taken as %q", f.table, f.rule, k.Canon)
			case f.reads != "" && (len(k.Canon) != 1 || k.Canon[0] != f.reads):
				t.Errorf("%s %s: got %+v, want %q", f.table, f.rule, k, f.reads)
			}
		}
	})
}
