// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"net/netip"
	"slices"
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

// Targets and matches that the kernel refuses below some built-in chains.
var targetForbid = map[string]uint8{
	"DNAT": 2 | 16, "REDIRECT": 2 | 16, // INPUT POSTROUTING
	"SNAT":       1 | 8, // PREROUTING OUTPUT
	"MASQUERADE": 1 | 2 | 4 | 8,
}

var matchForbid = map[string]uint8{
	"owner": 1 | 2 | 4, // PREROUTING INPUT FORWARD
	"mac":   8 | 16,    // OUTPUT POSTROUTING
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

// examine goes through the words in order and notes the first mistake.
func (sr *simRule) examine(id rules.TableID, ws []string) {
	x := examiner{sr: sr, id: id, words: ws}
	for x.i < len(ws) && sr.err == nil {
		sr.err = x.word()
	}
	if table := targetTable[sr.target]; table != "" && table != id.Name && !sr.isGoto {
		sr.wrongTable = true
	}
	if !sr.isGoto {
		sr.forbid |= targetForbid[sr.target]
		sr.unconditional = len(ws) == 2 && rules.IsVerdict(sr.target)
	}
}

type examiner struct {
	sr       *simRule
	id       rules.TableID
	words    []string
	i        int
	protocol bool // -p was given
	ports    bool // --dport exists
}

// word handles the word at i and what belongs to it.
func (x *examiner) word() *wordError {
	w := x.words[x.i]
	x.i++
	if w == "!" {
		return nil
	}
	if w == "" || w[0] != '-' {
		return badArgument(w)
	}
	if commandOf(w) != 0 {
		x.sr.commands = true
	}
	if w == "-t" || w == "--table" {
		return &wordError{text: "The -t option cannot be used in " + programMark + ".\n"}
	}
	if takesWord(w) {
		if x.i == len(x.words) {
			return needsArgument(w)
		}
		v := x.words[x.i]
		x.i++
		if pairOptions[w] && x.i < len(x.words) {
			x.i++
		}
		return x.value(w, v)
	}
	if strings.HasPrefix(w, "--bogus") || strings.HasPrefix(w, "--no-such") || strings.HasPrefix(w, "--nosuch") {
		return unknownOption(w)
	}
	// The value of an option that we do not know, if it has one.
	if x.i < len(x.words) && x.words[x.i] != "" && x.words[x.i][0] != '-' && x.words[x.i] != "!" {
		x.i++
	}
	return nil
}

// value handles an option that we know.
func (x *examiner) value(option, v string) *wordError {
	switch option {
	case "-s", "-d", "--source", "--src", "--destination", "--dst":
		return checkAddresses(x.id.IPVersion, v)
	case "-i", "--in-interface":
		x.sr.in = true
		return checkInterface(v)
	case "-o", "--out-interface":
		x.sr.out = true
		return checkInterface(v)
	case "-p", "--protocol", "--proto":
		if x.protocol {
			return &wordError{text: "multiple -p flags not allowed"}
		}
		x.protocol = true
		x.ports = x.ports || portProtocols[strings.ToLower(v)]
		if isBogus(v) || v != "" && strings.Trim(v, "0123456789") == "" && (len(v) > 3 || atoi(v) > 255) {
			return &wordError{text: "unknown protocol \"" + v + "\" specified"}
		}
	case "-m", "--match":
		return x.match(v)
	case "-j", "-g", "--jump", "--goto":
		return x.target(option, v)
	case "--dport", "--sport", "--destination-port", "--source-port":
		if !x.ports {
			return unknownOption(option)
		}
		return checkPort(v)
	case "--match-set", "--add-set", "--del-set", "--map-set":
		if !slices.Contains(x.sr.sets, v) {
			x.sr.sets = append(x.sr.sets, v)
		}
	}
	return nil
}

func (x *examiner) match(name string) *wordError {
	family := matches4
	if x.id.IPVersion == rules.IPv6 {
		family = matches6
	}
	if !matches[name] && !family[name] {
		return &wordError{text: "Couldn't load match `" + name + "':No such file or directory\n"}
	}
	x.ports = x.ports || portProtocols[name]
	x.sr.forbid |= matchForbid[name]
	return nil
}

func (x *examiner) target(option, name string) *wordError {
	switch {
	case x.sr.target != "":
		return &wordError{text: "multiple -j flags not allowed"}
	case name == "":
		return &wordError{text: "Invalid target name (too short)"}
	case len(name) > maxChainName:
		return &wordError{text: "Invalid target name `" + name + "' (28 chars max)"}
	case strings.ContainsAny(name, " \t\n\v\f\r"):
		return &wordError{text: "Invalid target name `" + name + "'"}
	}
	x.sr.target = name
	x.sr.isGoto = option == "-g" || option == "--goto"
	if name == "DROP" && !x.sr.isGoto && x.id.Name == "nat" {
		return &wordError{text: "\nThe \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited.\n\n"}
	}
	return nil
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
