// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"sync"
)

// The matches of iptables and ip6tables 1.8.9, from the modules that both have and from
// asking both for each. icmpv6 and ipv6-icmp are other names of icmp6.
const (
	matchesOfBoth = `
addrtype ah bpf cgroup cluster comment connbytes connlabel connlimit connmark conntrack cpu dccp
devgroup dscp ecn esp hashlimit helper ipcomp iprange ipvs length limit mac mark multiport nfacct
owner physdev pkttype policy quota rateest recent rpfilter sctp set socket state statistic string
tcp tcpmss time tos u32 udp
`
	matchesOf4 = `icmp osf realm ttl`
	matchesOf6 = `dst eui64 frag hbh hl icmp6 icmpv6 ipv6-icmp ipv6header mh rt srh`
)

// match is a match that is known.
type match struct {
	version IPVersion // that has it; 0 for both
	module  module    // if it is told apart
}

var knownMatches = func() map[string]match {
	all := make(map[string]match)
	for list, v := range map[string]IPVersion{matchesOfBoth: 0, matchesOf4: IPv4, matchesOf6: IPv6} {
		for _, name := range strings.Fields(list) {
			all[name] = match{version: v}
		}
	}
	for list, m := range map[string]module{
		"tcp udp sctp dccp": ofPorts, "icmp icmp6 icmpv6 ipv6-icmp": ofICMP, "multiport": ofMultiport,
		"policy": ofPolicy, "string": ofString, "set": ofSet, "recent": ofRecent, "ecn": ofEcn,
	} {
		for _, name := range strings.Fields(list) {
			all[name] = match{all[name].version, m}
		}
	}
	return all
}()

// targetVersion returns the one IP version that has the target, 0 if both have it or neither.
// Measured with 1.8.9: the other one takes the name for a chain's.
func targetVersion(name string) IPVersion {
	switch name {
	case "CLUSTERIP", "ECN", "TTL", "ULOG":
		return IPv4
	case "DNPT", "HL", "SNPT":
		return IPv6
	}
	return 0
}

// strangers are matches of other projects (xtables-addons, Android, router firmware) whose
// names are one edit from one of iptables.
var strangers = []string{"exp", "length2", "quota2"}

// similarMatch returns the match of iptables that name is one edit away from, "" if there is
// none, if name is one, or if it is a known one of somebody else. A name of two letters is
// near too many.
func similarMatch(name string) string {
	if _, known := knownMatches[name]; known || slices.Contains(strangers, name) {
		return ""
	}
	for _, known := range sortedMatches() {
		if len(known) > 2 && oneEdit(name, known) {
			return known
		}
	}
	return ""
}

var sortedMatches = sync.OnceValue(func() []string {
	names := make([]string, 0, len(knownMatches))
	for name := range knownMatches {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
})

// similarOption is similarMatch for a long option, without its "--".
func similarOption(name string) string {
	for _, known := range sortedOptions() {
		if len(known) > 2 && oneEdit(name, known) && forbiddenLetter(known) == 0 {
			return known
		}
	}
	return ""
}
