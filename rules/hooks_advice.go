// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// advice returns the sentence that says where a feature belongs, from all rows about it of one
// combination, and what to write instead.
func advice(feature string, rows []refusedRow) string {
	return feature + " " + belongs(rows) + hints[feature]
}

// belongs says in which tables and chains a feature is taken. A feature's hooks are the same
// in each table that takes it.
func belongs(rows []refusedRow) string {
	refused := make(map[string]bool) // tables
	var reached, direct Hooks
	for _, row := range rows {
		for _, table := range row.Tables {
			refused[table] = refused[table] || row.All
		}
		reached |= hooksOf(row.Reached)
		direct |= hooksOf(row.Direct)
	}
	var tables []string
	var hooks Hooks // of the tables that take it
	for _, table := range []string{"raw", "mangle", "nat", "filter", "security"} {
		if !refused[table] {
			tables = append(tables, table)
			hooks |= hooksOf(builtin[table])
		}
	}
	var where string
	switch {
	case len(tables) == 1:
		where = "is for table " + tables[0] + " only, in "
	case len(tables) < len(builtin):
		where = "is for tables " + list(tables) + " only, in "
	default:
		where = "is for "
	}
	switch {
	case reached != 0:
		return where + "chains reached from " + list((hooks &^ reached).Names()) + " only"
	case direct != 0:
		return where + "no built-in chain but " + list((hooks &^ direct).Names())
	}
	return strings.TrimSuffix(where, ", in ")
}

func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// What several hints say.
const (
	inMangle    = ", where packets are changed: put the rule there"
	inRaw       = ", before connections are tracked: put the rule there"
	noWayOut    = ": in PREROUTING and INPUT no way out is known; there use "
	noWayIn     = ": in OUTPUT and POSTROUTING no way in is known; there use "
	noMAC       = ": in OUTPUT and POSTROUTING no source MAC address is known; there match -s"
	noPort      = ": a bridge chooses the port of what this machine sends later; match the bridge with -o, or only what it forwards by adding --physdev-is-bridged"
	queuesOfWay = ": it is for the interface that a packet leaves by; use --map-mark elsewhere in mangle"
)

// hints say why, and what to write instead, of each feature in hooks.json: the rest of a
// sentence that says where it belongs.
var hints = map[string]string{
	"-j CHECKSUM":    inMangle,
	"-j CLASSIFY":    ": a class is for the interface that a packet leaves by; set a mark with -j MARK here, and classify by -m mark in POSTROUTING",
	"-j CONNSECMARK": ", where security marks are set: put the rule there",
	"-j CT":          inRaw,
	"-j DNAT":        ": a destination is changed before routing; put the rule below PREROUTING for what arrives, below OUTPUT for what this machine sends, and use -j SNAT to change a source",
	"-j DNPT":        ": a destination is changed before routing; use -j SNPT to change the prefix of a source",
	"-j DROP":        ": nat sees only the first packet of a connection; drop in filter, or before routing in raw or mangle",
	"-j DSCP":        inMangle,
	"-j ECN":         inMangle,
	"-j HL":          inMangle,
	"-j MASQUERADE":  ": it takes the address of the interface that a packet leaves by; use -j SNAT below INPUT, and -j DNAT or -j REDIRECT to change a destination",
	"-j NETMAP":      ": put the rule there, below PREROUTING or OUTPUT for destinations, below POSTROUTING or INPUT for sources",
	"-j NOTRACK":     inRaw,
	"-j REDIRECT":    ": a destination is changed before routing; put the rule below PREROUTING for what arrives, below OUTPUT for what this machine sends",
	"-j REJECT":      ": put the rule there, or use -j DROP, which table nat does not take either",

	"-j SET --map-prio":  queuesOfWay,
	"-j SET --map-queue": queuesOfWay,
	"-j SET --map-set":   inMangle + "; --add-set and --del-set are for all tables",

	"-j SNAT":     ": a source is changed after routing; put the rule below POSTROUTING, below INPUT for what this machine gets, and use -j DNAT to change a destination",
	"-j SNPT":     ": a source is changed after routing; use -j DNPT to change the prefix of a destination",
	"-j SYNPROXY": ": it answers for servers here or behind here; put the rule into filter, below INPUT or FORWARD",

	"-j TCPMSS --clamp-mss-to-pmtu": noWayOut + "--set-mss",

	"-j TCPOPTSTRIP": inMangle,
	"-j TOS":         inMangle,
	"-j TPROXY":      ": packets are given to a local socket before routing; use -j REDIRECT below OUTPUT of nat for what this machine sends",
	"-j TRACE":       ": a trace begins where a packet appears; put the rule below PREROUTING, or below OUTPUT for what this machine sends",
	"-j TTL":         inMangle,

	"-m addrtype --limit-iface-in":  noWayIn + "--limit-iface-out",
	"-m addrtype --limit-iface-out": noWayOut + "--limit-iface-in",

	"-m cgroup":               ": only the sender or the receiver on this machine is in a cgroup, and the receiver is not known before routing; mark the connection with -j CONNMARK below OUTPUT and use -m connmark here",
	"-m devgroup --dst-group": noWayOut + "--src-group",
	"-m devgroup --src-group": noWayIn + "--dst-group",
	"-m eui64":                noMAC,
	"-m mac":                  noMAC,
	"-m osf":                  ": it tells the system of a sender elsewhere; match -s or -m owner for what this machine sends",
	"-m owner":                ": only what this machine sends has an owner; mark the connection with -j CONNMARK below OUTPUT and use -m connmark here",

	"-m physdev --physdev-is-out": noPort,
	"-m physdev --physdev-out":    noPort,

	"-m policy --dir in":  noWayIn + "--dir out",
	"-m policy --dir out": noWayOut + "--dir in",

	"-m realm":    ": a realm comes with the route; match -s or -i before routing",
	"-m rpfilter": ": the way back is looked up for what arrives; put the rule there",
	"-m socket":   ": it looks for the socket that will get a packet; use -m owner for what this machine sends, and a mark set with -j MARK below PREROUTING for what is forwarded",
}
