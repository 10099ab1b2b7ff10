// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"net/netip"
	"strings"

	"github.com/tableward/tableward/rules"
)

// What the simulator knows of rules: enough that the usual mistakes are refused, in the
// tools' words. Whatever it does not know it takes.

// Targets that the kernel takes in one table only.
var targetTable = map[string]string{
	"DNAT": "nat", "REDIRECT": "nat", "SNAT": "nat", "MASQUERADE": "nat", "NETMAP": "nat",
	"REJECT": "filter", "CT": "raw", "NOTRACK": "raw",
	"TTL": "mangle", "HL": "mangle", "DSCP": "mangle", "TOS": "mangle", "CHECKSUM": "mangle",
	"TCPOPTSTRIP": "mangle", "TPROXY": "mangle",
}

// Targets and matches that are refused below some built-in chains: PREROUTING 1, INPUT 2,
// FORWARD 4, OUTPUT 8, POSTROUTING 16.
var targetForbid = map[string]uint8{
	"DNAT": 2 | 16, "REDIRECT": 2 | 16,
	"SNAT":       1 | 8,
	"MASQUERADE": 1 | 2 | 4 | 8,
	"CLASSIFY":   1 | 2,
	"TPROXY":     2 | 4 | 8 | 16,
}

var matchForbid = map[string]uint8{
	"owner":    1 | 2 | 4,
	"mac":      8 | 16,
	"realm":    1,
	"cgroup":   1 | 4,
	"socket":   4 | 8 | 16,
	"rpfilter": 2 | 4 | 8 | 16,
}

// Options that are refused below some, by nf_tables only in the built-in chain itself.
var optionForbid = map[string]uint8{
	"--clamp-mss-to-pmtu": 1 | 2,
	"--dir in":            8 | 16,
	"--dir out":           1 | 2,
	"--src-group":         8 | 16,
	"--dst-group":         1 | 2,
	"--limit-iface-in":    8 | 16,
	"--limit-iface-out":   1 | 2,
	"--physdev-out":       8, // but see examiner.bridged
	"--physdev-is-out":    8,
}

var matches, matches4, matches6 = words(`addrtype bpf cgroup cluster comment connbytes connlabel
	connlimit connmark conntrack cpu dccp devgroup dscp ecn esp hashlimit helper ipcomp iprange ipvs
	length limit mac mark multiport nfacct osf owner physdev pkttype policy quota rateest recent
	rpfilter sctp set socket standard state statistic string tcp tcpmss time tos u32 udp udplite ah`),
	words(`icmp realm ttl`), words(`dst eui64 frag hbh hl icmp6 icmpv6 ipv6header mh rt srh`)

// Targets that release 1.8.9 does not have, for either or for one IP version.
var noTarget, noTarget4, noTarget6 = words(`MIRROR NAT SAME`), words(`DNPT HL SNPT`), words(`CLUSTERIP ECN TTL ULOG`)

// hasTarget tells whether the tools have an extension of that name.
func hasTarget(v rules.IPVersion, name string) bool {
	absent := noTarget4
	if v == rules.IPv6 {
		absent = noTarget6
	}
	return rules.IsExtension(name) && !noTarget[name] && !absent[name]
}

// Protocols whose option letters --dport and --sport exist once -p names them.
var portProtocols = words(`tcp udp sctp dccp udplite 6 17 132 33 136`)

// Options whose value may look like an option.
var textOptions = words(`--comment --log-prefix --nflog-prefix --string --hex-string --name --hashlimit-name
	--label --bytecode --path`)

// Options with two values.
var pairOptions = words(`--match-set --add-set --del-set --map-set --tcp-flags`)

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

func isTarget(w string) bool { return w == "-j" || w == "-g" || w == "--jump" || w == "--goto" }

// takesWord tells whether the word behind w is its value, whatever it looks like.
func takesWord(w string) bool {
	switch w {
	case "-s", "-d", "-p", "-i", "-o", "-m", "-j", "-g", "--source", "--src", "--destination", "--dst", "--protocol",
		"--proto", "--in-interface", "--out-interface", "--match", "--jump", "--goto", "--dport", "--sport",
		"--destination-port", "--source-port":
		return true
	}
	return textOptions[w] || pairOptions[w]
}

func isBogus(s string) bool { return strings.HasPrefix(s, "bogus") || strings.HasPrefix(s, "nosuch") }

func checkInterface(name string) *wordError {
	if len(name) > 15 {
		return &wordError{text: "interface name `" + name + "' must be shorter than IFNAMSIZ (15)"}
	}
	return nil
}

// checkPort looks at single ports only; the tools let a range run over.
func checkPort(v string) *wordError {
	if isBogus(v) || v != "" && strings.Trim(v, "0123456789") == "" && (len(v) > 5 || atoi(v) > 65535) {
		return &wordError{text: "invalid port/service `" + v + "' specified"}
	}
	return nil
}

// checkAddresses looks at a list of addresses with masks. Names are not found: a namespace
// of rules has no resolver that could be relied on.
func checkAddresses(v rules.IPVersion, list string) *wordError {
	for one := range strings.SplitSeq(list, ",") {
		host, mask, masked := strings.Cut(one, "/")
		if masked && !validMask(v, mask) {
			return &wordError{text: "invalid mask `" + mask + "' specified"}
		}
		if !validHost(v, host) {
			return &wordError{text: "host/network `" + host + "' not found"}
		}
	}
	return nil
}

func validMask(v rules.IPVersion, mask string) bool {
	if mask != "" && strings.Trim(mask, "0123456789") == "" {
		if v == rules.IPv6 {
			return len(mask) <= 3 && atoi(mask) <= 128
		}
		return len(mask) <= 2 && atoi(mask) <= 32
	}
	return validHost(v, mask)
}

func validHost(v rules.IPVersion, host string) bool {
	a, err := netip.ParseAddr(host)
	if v == rules.IPv6 {
		return err == nil && a.Is6() && a.Zone() == ""
	}
	if err == nil {
		return a.Is4()
	}
	// "10" and "10.1" are networks to the tools.
	parts := strings.Split(host, ".")
	for _, p := range parts {
		if p == "" || len(p) > 3 || strings.Trim(p, "0123456789") != "" || atoi(p) > 255 {
			return false
		}
	}
	return len(parts) <= 4
}
