// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// Kind returns the rule's text without what the kernel does not look at when it decides
// whether to take the rule: it has the matches, the target, the options and the negations, in
// order, and few values. "-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j web" is of the kind
// "-s -p tcp -m tcp --dport -j >": a jump to a chain is "-j >", a goto "-g >".
//
// In one table, on one backend and below one hook, the kernel takes or refuses all rules of a
// kind alike, but for what the tool itself finds fault with and for chains and sets that are
// missing.
//
// Values are kept of -p, and of the options whose values the checkentry functions of the
// kernel's matches and targets look at (6.18; by source and by trial). Those are mostly words
// of a small vocabulary, as --reject-with or --dir, but also rates, owner ids and others of
// which the kernel refuses some. The values of options that are not known here are kept too.
// Dropped are addresses, ports, interfaces, sets, comments, prefixes, marks and most numbers.
func (r Rule) Kind() string {
	if r.target == "CLUSTERIP" {
		return r.text // it looks at the rule's -d as well
	}
	var buf [256]byte
	kind := buf[:0]
	w := walk{text: r.text}
	for p := (part{}); w.next(&p); {
		if len(kind) > 0 {
			kind = append(kind, ' ')
		}
		kind = w.appendKind(kind, &p)
	}
	return string(kind)
}

func (w *walk) appendKind(kind []byte, p *part) []byte {
	if p.not {
		kind = append(kind, "! "...)
	}
	switch p.name {
	case "source", "destination", "protocol", "in-interface", "out-interface", "match", "jump", "goto", "fragments", "set-counters":
		// One spelling: the first letters are those of the short options, but for one.
		letter := p.name[0]
		if p.name == "set-counters" {
			letter = 'c'
		}
		kind = append(kind, '-', letter)
	case "":
		kind = AppendWord(kind, p.written.text())
	default:
		kind = append(append(kind, "--"...), p.name...)
	}
	switch {
	case p.value.column == 0:
	case p.name == "goto", p.name == "jump" && !IsVerdict(w.target) && !IsExtension(w.target):
		return append(kind, " >"...)
	case p.not && (p.name == "source" || p.name == "destination") && nullMask(p.value.text()):
		return append(kind, " /0"...) // which nft refuses
	case p.name == "" || w.keeps(p):
		kind = append(kind, ' ')
		kind = AppendWord(kind, p.value.text())
		if p.name == "tcp-flags" && p.second.column != 0 {
			kind = append(kind, ' ')
			kind = AppendWord(kind, p.second.text())
		}
	}
	return kind
}

// keeps tells whether the kernel looks at the option's value when it takes a rule.
func (w *walk) keeps(p *part) bool {
	switch p.name {
	case "protocol", "match", "jump",
		"reject-with",          // tcp-reset: with -p tcp only; old ones
		"tcp-flags",            // TCPMSS wants SYN among them
		"src-type", "dst-type", // of addrtype: some not in IPv6
		"dir", "pol", "proto", "mode", "strict", // of policy; mode of statistic
		"limit", "limit-burst", // refused where the product overflows
		"hashlimit", "hashlimit-upto", "hashlimit-above", "hashlimit-burst", "hashlimit-rate-interval",
		"hashlimit-htable-expire", "hashlimit-htable-gcinterval", // not 0
		"hitcount",               // of recent: to 65,535
		"algo",                   // of string: what the kernel has
		"uid-owner", "gid-owner", // no reversed range; mapped ids only
		"helper", "timeout", "label", // CT: must exist; IDLETIMER: not 0; connlabel: to 127
		"type",               // of AUDIT
		"gateway",            // of TEE: not 0.0.0.0
		"queue-balance",      // not over 65,535 queues
		"src-pfx", "dst-pfx", // of SNPT and DNPT: no host bits, to /64
		"bytecode", "object-pinned", // of bpf: a valid program
		"path",                        // of cgroup: must exist
		"selctx",                      // of SECMARK: known to the security module
		"nfacct-name",                 // must exist
		"led-trigger-id", "led-delay", // of LED: alike for all rules
		"rateest-interval", "rateest-ewmalog",
		"rateest", "rateest1", "rateest2", "rateest-name": // must exist; alike for all rules
		return true
	case "name", "hashlimit-name": // a file in /proc
		name := p.value.text()
		return name == "" || name == "." || name == ".." || strings.Contains(name, "/")
	case "string":
		return p.value.text() == ""
	case "from", "to":
		return w.toOf == ofString // of string: in order
	}
	return strings.HasPrefix(p.name, "hmark-") || strings.HasPrefix(p.name, "cluster-")
}

// Matches returns the names behind -m, in order, as often as they are there.
func (r Rule) Matches() []string {
	var names []string
	w := walk{text: r.text}
	for p := (part{}); w.next(&p); {
		if p.name == "match" && p.value.column != 0 {
			names = append(names, p.value.text())
		}
	}
	return names
}
