// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
)

// RuleError says what the tools would refuse in a rule, or silently take for something else,
// and what to write instead.
type RuleError struct {
	Rule   string // the rule's text
	Column int    // from 1, in bytes, in Rule
	Word   string // what is wrong
	Reason string
	Advice string
}

// Error returns three lines: the place, the reason and the advice, the rule, and a caret
// under the column.
func (e *RuleError) Error() string {
	line, caret := (&SyntaxError{Column: e.Column, Text: e.Rule}).picture()
	return fmt.Sprintf("column %d: %s: %s\n%s\n%s^", e.Column, e.Reason, e.Advice, line, caret)
}

// CheckRule judges a rule for a table without asking the tools: it returns a *RuleError for
// what iptables-restore 1.8.9 refuses, or reads as something else without a word, and nil for
// what it takes and for what only the tool can judge.
//
// Found are:
//   - text over the length that is kept (comments, log prefixes, some names), interface names
//     over 15 bytes, over 15 ports of -m multiport;
//   - addresses, matches, targets, ICMP and reject types of the other IP version;
//   - prefix lengths and ports out of range, of which udp and conntrack make others;
//   - --dport, --syn, --icmp-type, --to-ports without the -p or -m that they need;
//   - a second -s, -d, -p, -i, -o or -f, and a "!" where none may stand;
//   - options whose value is missing or empty, and words that belong to no option;
//   - a match or a long option that does not exist and is one edit from one that does;
//   - -j DROP in nat.
//
// Left to the tool are names that it must resolve, and matches, targets and options that a
// module of somebody else may serve. What depends on the chain that the rule stands in, on
// the kernel, or on what exists is not judged; the name of a target is taken for the target
// even where a chain has it.
//
// Refused on account of one backend or of one release are --nflog-prefix over 63 bytes, of
// which nft keeps 127; and a value in the same word as -s, -d, -p, -i or -o ("-ieth0"), for
// which 1.8.9 takes the whole word, so that the rule is refused or matches nothing.
func CheckRule(id TableID, r Rule) error {
	c := check{id: id, walk: walk{text: r.text}}
	if err := c.run(); err != nil {
		return err
	}
	return nil
}

type check struct {
	walk
	id TableID

	once     uint8 // a bit for each option that may come once, and did
	protocol protocol
	proto    piece // what -p says
	protoNot bool  // "! -p"
	// needsProtocol is what is wrong unless a -p comes after it.
	needsProtocol *RuleError
	// loose: words that follow may belong to the part before.
	loose bool
}

func (c *check) run() *RuleError {
	var p part
	for c.next(&p) {
		if err := c.part(&p); err != nil {
			return err
		}
		if c.loose && p.isOption && p.value.column == 0 {
			if after, more := c.peek(); more && !after.bare() {
				return nil // its value, or an option: what follows may be read wrongly
			}
		}
	}
	if c.protocol == noProtocol {
		return c.needsProtocol
	}
	return nil
}

func (c *check) part(p *part) *RuleError {
	if !p.isOption {
		return c.stray(p)
	}
	c.loose = p.arity == inBoth
	if p.name == "" {
		return c.unknown(p)
	}
	return cmp.Or(c.hasValue(p), c.option(p))
}

// option judges what a known option means.
func (c *check) option(p *part) *RuleError {
	switch p.name {
	case "source", "destination":
		return cmp.Or(c.single(p), c.apart(p), c.addresses(p))
	case "protocol":
		return cmp.Or(c.single(p), c.apart(p), c.setProtocol(p))
	case "in-interface", "out-interface":
		return cmp.Or(c.single(p), c.apart(p), c.interfaceName(p))
	case "fragments":
		return cmp.Or(c.single(p), c.fragments(p))
	case "match":
		return cmp.Or(c.notBefore(p), c.match(p))
	case "jump":
		return cmp.Or(c.notBefore(p), c.jump(p))
	case "goto":
		return c.notBefore(p)
	case "dport", "sport", "destination-port", "source-port":
		return cmp.Or(c.portOwner(p), c.onePort(p))
	case "dports", "sports", "ports", "destination-ports", "source-ports":
		return cmp.Or(c.listOwner(p), c.portList(p))
	}
	return cmp.Or(c.matchOption(p), c.targetOption(p))
}

// matchOption judges an option of a match.
func (c *check) matchOption(p *part) *RuleError {
	switch p.name {
	case "comment":
		return c.length(p, maxComment, theToolsCut)
	case "physdev-in", "physdev-out":
		return c.interfaceName(p)
	case "name":
		if c.loaded&ofRecent != 0 {
			return c.length(p, maxRecentName, theToolsCut)
		}
	case "hashlimit-name":
		return c.length(p, maxHashlimitName, theToolsCut)
	case "helper":
		if c.target != "CT" { // which has an option of that name
			return c.length(p, maxHelper, theToolsCut)
		}
	case "genre":
		return c.length(p, maxGenre, theToolsCut)
	case "icmp-type":
		return c.icmpType(p, IPv4, "--icmpv6-type")
	case "icmpv6-type":
		return c.icmpType(p, IPv6, "--icmp-type")
	case "syn", "tcp-flags", "tcp-option":
		return c.needs(p, ofPorts, "tcp")
	case "mask": // of recent; others have numbers
		return c.host(p, p.value.text(), 0)
	case "src-range", "dst-range":
		return c.addressRange(p, p.value.text(), 0)
	case "ctorigsrc", "ctorigdst", "ctreplsrc", "ctrepldst", "tunnel-src", "tunnel-dst":
		return c.address(p, p.value.text(), 0, false)
	case "ctorigsrcport", "ctorigdstport", "ctreplsrcport", "ctrepldstport":
		return c.portNumbers(p, p.value.text(), 0, ":")
	}
	return nil
}

// targetOption judges an option of the target.
func (c *check) targetOption(p *part) *RuleError {
	name := p.name
	if name == "to" && c.toOf == 0 {
		name = "abbreviated to"
	}
	switch c.target {
	case "LOG":
		if name == "log-prefix" {
			return c.length(p, maxLogPrefix, theToolsCut)
		}
	case "NFLOG":
		if name == "nflog-prefix" {
			return c.length(p, maxNFLogPrefix, "the legacy tools cut")
		}
	case "REJECT":
		if name == "reject-with" {
			return c.rejectType(p)
		}
	case "DNAT", "SNAT":
		if name == "to-destination" || name == "to-source" || name == "abbreviated to" {
			return c.natAddress(p)
		}
	case "REDIRECT", "MASQUERADE":
		if name == "to-ports" || name == "abbreviated to" {
			return c.natPorts(p)
		}
	case "NETMAP":
		if name == "to" && c.toOf == ofNetmap {
			return c.address(p, p.value.text(), 0, false)
		}
	case "TEE":
		return c.teeOption(p)
	case "TPROXY":
		return c.tproxyOption(p)
	case "IDLETIMER":
		if name == "label" {
			return c.length(p, maxTimerLabel, theToolsCut)
		}
	case "RATEEST":
		if name == "rateest-name" {
			return c.length(p, maxEstimator, theToolsCut)
		}
	}
	return nil
}

func (c *check) teeOption(p *part) *RuleError {
	switch p.name {
	case "gateway":
		return c.address(p, p.value.text(), 0, false)
	case "oif":
		return c.interfaceName(p)
	}
	return nil
}

func (c *check) tproxyOption(p *part) *RuleError {
	switch p.name {
	case "on-ip":
		return c.address(p, p.value.text(), 0, false)
	case "on-port":
		return c.portNumbers(p, p.value.text(), 0, "")
	}
	return nil
}

// fail says what is wrong with the option as it is written.
func (c *check) fail(p *part, advice, format string, args ...any) *RuleError {
	return &RuleError{c.text, p.written.column, p.written.text(), fmt.Sprintf(format, args...), advice}
}

// failValue says what is wrong with word, which stands offset bytes into the option's value.
func (c *check) failValue(p *part, word string, offset int, advice, format string, args ...any) *RuleError {
	column := p.value.column
	if !p.value.quoted {
		column += offset
	}
	return &RuleError{c.text, column, word, fmt.Sprintf(format, args...), advice}
}
