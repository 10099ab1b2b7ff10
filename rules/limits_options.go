// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
)

// stray judges a word that is no option and belongs to none.
func (c *check) stray(p *part) *RuleError {
	if c.loose || c.plugin || p.written.raw == "!" {
		return nil
	}
	return c.fail(p, `quote a value that has blanks: "two words"`, "%q belongs to no option", p.written.text())
}

// unknown judges an option that is not known, or an abbreviation of several.
func (c *check) unknown(p *part) *RuleError {
	written := p.written.text()
	if c.plugin || c.protocol == strangeProtocol || !strings.HasPrefix(written, "--") {
		return nil
	}
	name := written[len("--"):]
	all := sortedOptions()
	if at, _ := slices.BinarySearch(all, name); at < len(all) && strings.HasPrefix(all[at], name) {
		return nil
	}
	similar := similarOption(name)
	if similar == "" {
		return nil
	}
	return c.fail(p, fmt.Sprintf("did you mean --%s?", similar), "unknown option %s", written)
}

// hasValue judges whether the value of an option is there.
func (c *check) hasValue(p *part) *RuleError {
	if p.arity != inValue || c.plugin && !isCore(p.name) {
		return nil
	}
	none := func(why string) *RuleError {
		return c.fail(p, "write the value behind "+p.written.text()+", or leave the option out", "--%s has no value%s", p.name, why)
	}
	if p.missing {
		return none("")
	}
	value := p.value.raw
	switch {
	case value == "" || value == `""`:
		if refusesEmpty(p.name) {
			return none("")
		}
	case p.attached || takesTwo(p.name):
	case p.value.optionLike() && neverDashed(p.name):
		return none(fmt.Sprintf(": %q is the next word", p.value.text()))
	case value == "!", takesValue(value):
		// Taken for the value. The word behind then belongs to nothing.
		after, more := c.peek()
		if !more || !after.bare() {
			return nil
		}
		if value == "!" {
			return c.failValue(p, value, 0, "write ! before "+p.written.text(), `"!" stands behind its option`)
		}
		return none(fmt.Sprintf(": %q is the next word", value))
	}
	return nil
}

func isCore(name string) bool {
	_, core := coreOptions[name]
	return core
}

// refusesEmpty tells whether the tools refuse an empty value or make something else of it:
// port 0 of udp, and of --physdev-in text that no tool reads back.
func refusesEmpty(name string) bool {
	switch name {
	case "source", "destination", "protocol", "in-interface", "out-interface", "physdev-in", "physdev-out",
		"dport", "sport", "destination-port", "source-port",
		"dports", "sports", "ports", "destination-ports", "source-ports",
		"src-range", "dst-range", "ctstate", "state", "mark", "limit", "log-prefix", "nflog-prefix",
		"to-destination", "to-source":
		return true
	}
	return false
}

// neverDashed tells whether no value of the option begins with "-". Interfaces may.
func neverDashed(name string) bool {
	return name == "source" || name == "destination" || name == "protocol"
}

// takesValue tells whether word is an option that takes a value.
func takesValue(word string) bool {
	switch {
	case len(word) == 2 && word[0] == '-':
		return shortOptions[word[1]].next == inValue
	case strings.HasPrefix(word, "--"):
		return longOptions[word[2:]].next == inValue
	}
	return false
}

// single refuses an option that has come before.
func (c *check) single(p *part) *RuleError {
	bit := uint8(1) << strings.IndexByte("sdpiof", p.name[0])
	if c.once&bit != 0 {
		return c.fail(p, "write it once", "a second --%s", p.name)
	}
	c.once |= bit
	return nil
}

// apart refuses a value in the same word as an option of which 1.8.9 takes the whole word.
func (c *check) apart(p *part) *RuleError {
	if !p.attached {
		return nil
	}
	return c.fail(p, fmt.Sprintf("write %s %s", p.written.text(), p.value.text()),
		"the value of %s in the same word: iptables 1.8.9 takes the whole word for it", p.written.text())
}

func (c *check) fragments(p *part) *RuleError {
	if c.wrong(IPv4) {
		return c.fail(p, "write -m frag", "-f is for IPv4 only")
	}
	return nil
}

// icmpType judges an option that only the module of one IP version has.
func (c *check) icmpType(p *part, v IPVersion, other string) *RuleError {
	switch {
	case c.plugin || c.protocol == strangeProtocol:
	case c.wrong(v):
		return c.fail(p, "write "+other, "--%s is for IPv%d only", p.name, v)
	case v == IPv4:
		return c.needs(p, ofICMP, "icmp")
	default:
		return c.needs(p, ofICMP, "ipv6-icmp")
	}
	return nil
}

// needs judges an option that the module of a protocol has, which -p loads or -m.
func (c *check) needs(p *part, m module, protocol string) *RuleError {
	if c.protocol != noProtocol || c.loaded&m != 0 || c.plugin {
		return nil
	}
	return c.fail(p, fmt.Sprintf("write -p %s before it", protocol), "--%s without a protocol", p.name)
}

// notBefore refuses a "!" before an option that has no opposite.
func (c *check) notBefore(p *part) *RuleError {
	if !p.not {
		return nil
	}
	return c.fail(p, "write ! before the option that it is meant for", "! before %s", p.written.text())
}

func (c *check) match(p *part) *RuleError {
	name := p.value.text()
	m, known := knownMatches[name]
	v := m.version
	if !known {
		if similar := similarMatch(name); similar != "" {
			return c.failValue(p, name, 0, "did you mean "+similar+"?", "unknown match %s", name)
		}
		return nil
	}
	if !c.wrong(v) {
		return nil
	}
	advice := c.otherTable()
	switch name {
	case "icmp":
		advice = "write -m icmp6"
	case "icmp6", "icmpv6", "ipv6-icmp":
		advice = "write -m icmp"
	case "ttl":
		advice = "write -m hl"
	case "hl":
		advice = "write -m ttl"
	}
	return c.failValue(p, name, 0, advice, "match %s is for IPv%d only", name, v)
}

func (c *check) jump(p *part) *RuleError {
	name := p.value.text()
	if name == "DROP" && c.id.Name == "nat" {
		return c.failValue(p, name, 0, "drop in the table filter, mangle or raw", "the table nat takes no -j DROP")
	}
	v := targetVersion(name)
	if !c.wrong(v) {
		return nil
	}
	advice := c.otherTable()
	switch name {
	case "TTL":
		advice = "write -j HL"
	case "HL":
		advice = "write -j TTL"
	}
	return c.failValue(p, name, 0, advice, "target %s is for IPv%d only", name, v)
}

// wrong tells whether what belongs to one IP version stands in a table of the other.
func (c *check) wrong(v IPVersion) bool {
	return v == IPv4 && c.id.IPVersion == IPv6 || v == IPv6 && c.id.IPVersion == IPv4
}

func (c *check) otherTable() string {
	return fmt.Sprintf("write the rule for the table %s", TableID{IPv4 + IPv6 - c.id.IPVersion, c.id.Name})
}
