// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
)

const (
	maxPort      = 65535
	maxMultiport = 15 // XT_MULTI_PORTS; a range takes two
)

// protocol is what -p says, as far as options depend on it.
type protocol uint8

const (
	noProtocol       protocol = iota // no -p yet
	anyProtocol                      // -p all
	portProtocol                     // one that --dport is known for
	portlessProtocol                 // one that has no ports
	strangeProtocol                  // another: a module of its name may serve it
)

func protocolOf(name string) protocol {
	switch strings.ToLower(name) {
	case "all", "0":
		return anyProtocol
	case "tcp", "6", "udp", "17", "sctp", "132", "dccp", "33":
		return portProtocol
	case "icmp", "1", "igmp", "2", "gre", "47", "esp", "50", "ah", "51", "icmpv6", "ipv6-icmp", "58":
		return portlessProtocol
	}
	return strangeProtocol
}

func (c *check) setProtocol(p *part) *RuleError {
	c.proto, c.protoNot = p.value, p.not
	c.protocol = protocolOf(p.value.text())
	return nil
}

// portOwner judges whether --dport or --sport exists where it stands. The module of the -p
// before it has them, that of a -m, and multiport, of whose options they are abbreviations.
func (c *check) portOwner(p *part) *RuleError {
	switch {
	case c.plugin || c.protocol == strangeProtocol:
	case c.loaded&ofPorts != 0:
		if c.protocol == noProtocol && c.needsProtocol == nil {
			c.needsProtocol = c.lacksProtocol(p)
		}
	case c.loaded&ofMultiport != 0:
		return c.listOwner(p)
	case c.protocol != portProtocol:
		return c.lacksProtocol(p)
	}
	return nil
}

// listOwner judges whether the options of multiport may stand here. It looks at the -p that
// it finds before them.
func (c *check) listOwner(p *part) *RuleError {
	switch {
	case c.plugin || c.protocol == strangeProtocol:
	case c.loaded&ofMultiport == 0:
		return c.fail(p, "write -m multiport before it", "--%s without its match", p.name)
	case c.protocol != portProtocol:
		return c.lacksProtocol(p)
	case c.protoNot:
		return c.fail(p, "write a rule for each protocol", `multiport with "! -p"`)
	}
	return nil
}

func (c *check) lacksProtocol(p *part) *RuleError {
	if c.protocol == noProtocol {
		return c.fail(p, "write -p tcp before it, or udp, sctp, dccp", "--%s without a protocol", p.name)
	}
	return c.fail(p, "write -p tcp, udp, sctp or dccp", "--%s: protocol %s has no ports", p.name, c.proto.text())
}

// onePort judges the value of --dport or --sport: a port or a range.
func (c *check) onePort(p *part) *RuleError {
	if c.loaded&ofMultiport != 0 {
		return c.portList(p)
	}
	text := p.value.text()
	if strings.Contains(text, ",") && !c.plugin && c.protocol != strangeProtocol {
		list := "dports"
		if p.name[0] == 's' {
			list = "sports"
		}
		return c.failValue(p, text, 0, fmt.Sprintf("write -m multiport --%s %s", list, text), "--%s takes one port or range", p.name)
	}
	return c.portNumbers(p, text, 0, ":")
}

func (c *check) portList(p *part) *RuleError {
	text := p.value.text()
	if n := 1 + strings.Count(text, ",") + strings.Count(text, ":"); n > maxMultiport {
		return c.failValue(p, text, 0, "split them over several rules", "%d ports, a range counted as two: multiport takes %d", n, maxMultiport)
	}
	return c.portNumbers(p, text, 0, ",:")
}

// portNumbers judges the numbers of text, which begins offset bytes into the value and has
// separators between them.
func (c *check) portNumbers(p *part, text string, offset int, separators string) *RuleError {
	for {
		end := strings.IndexAny(text, separators)
		one := text
		if end >= 0 {
			one = text[:end]
		}
		if over(one, maxPort) {
			return c.failValue(p, one, offset, fmt.Sprintf("write 0 to %d", maxPort), "the port %s is out of range", one)
		}
		if end < 0 {
			return nil
		}
		text, offset = text[end+1:], offset+end+1
	}
}
