// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// How many bytes of a text are kept: of what is longer the tools cut the rest off, and exit
// with 0. Measured with 1.8.9 on both backends; nft keeps 127 of --nflog-prefix.
const (
	maxLogPrefix     = 29
	maxNFLogPrefix   = 63
	maxComment       = 255
	maxHashlimitName = 254
	maxRecentName    = 199
	maxHelper        = 29
	maxGenre         = 31
	maxTimerLabel    = 27
	maxEstimator     = 15
)

// maxInterface is IFNAMSIZ less its NUL; the tools count a "+" at the end as well.
const maxInterface = 15

const theToolsCut = "the tools cut"

// length refuses a value over limit bytes, which is cut.
func (c *check) length(p *part, limit int, cuts string) *RuleError {
	if len(p.value.raw) <= limit {
		return nil
	}
	text := p.value.text()
	if len(text) <= limit {
		return nil
	}
	return c.failValue(p, text, 0, fmt.Sprintf("write at most %d bytes", limit),
		"--%s has %d bytes: %s what is over %d off, and exit with 0", p.name, len(text), cuts, limit)
}

func (c *check) interfaceName(p *part) *RuleError {
	name := p.value.text()
	if len(name) <= maxInterface {
		return nil
	}
	return c.failValue(p, name, 0, fmt.Sprintf("write at most %d", maxInterface),
		"the interface name has %d bytes, a + counted", len(name))
}

// addresses judges the list of -s or -d.
func (c *check) addresses(p *part) *RuleError {
	text := p.value.text()
	if p.not && strings.Contains(text, ",") {
		return c.failValue(p, text, 0, "match an ipset, or write a rule that returns for each address",
			"! with several addresses")
	}
	for offset := 0; ; {
		one, _, more := strings.Cut(text[offset:], ",")
		if one == "" {
			return c.failValue(p, text, max(offset-1, 0), "write addresses with one comma between them", "an empty address in a list")
		}
		if err := c.address(p, one, offset, true); err != nil || !more {
			return err
		}
		offset += len(one) + 1
	}
}

// address judges one address, with a mask or without. For some options the tools do not look
// at the address if the mask is null.
func (c *check) address(p *part, text string, offset int, mayIgnore bool) *RuleError {
	if mayIgnore && nullMask(text) {
		return nil
	}
	host, mask := text, ""
	if slash := strings.LastIndexByte(text, '/'); slash >= 0 {
		host, mask = text[:slash], text[slash+1:]
	}
	if err := c.host(p, host, offset); err != nil {
		return err
	}
	limit := 32
	if c.id.IPVersion == IPv6 {
		limit = 128
	}
	if over(mask, limit) {
		return c.failValue(p, text, offset, fmt.Sprintf("write at most /%d", limit), "the prefix length %s is out of range", mask)
	}
	return nil
}

// nullMask tells whether an address has a mask without a bit.
func nullMask(text string) bool {
	slash := strings.LastIndexByte(text, '/')
	return slash >= 0 && slash+1 < len(text) && strings.Trim(text[slash+1:], "0xX.:") == ""
}

// host refuses an address of the other IP version.
func (c *check) host(p *part, host string, offset int) *RuleError {
	v := versionOf(host)
	if !c.wrong(v) {
		return nil
	}
	return c.failValue(p, host, offset, fmt.Sprintf("%s, or an IPv%d address here", c.otherTable(), c.id.IPVersion),
		"%s is an IPv%d address in an IPv%d table", host, v, c.id.IPVersion)
}

// versionOf returns the version of an address, 0 for all else. An IPv4 address mapped into
// IPv6 is both to the tools.
func versionOf(host string) IPVersion {
	if !strings.Contains(host, ":") && (host == "" || host[0] < '0' || host[0] > '9') {
		return 0 // ParseAddr makes an error of it, which costs more
	}
	a, err := netip.ParseAddr(host)
	switch {
	case err != nil || a.Is4In6() || a.Zone() != "":
		return 0
	case a.Is4():
		return IPv4
	}
	return IPv6
}

// addressRange judges "address" or "address-address".
func (c *check) addressRange(p *part, text string, offset int) *RuleError {
	first, last, both := strings.Cut(text, "-")
	err := c.host(p, first, offset)
	if err == nil && both {
		err = c.host(p, last, offset+len(first)+1)
	}
	return err
}

// natAddress judges the value of --to-source and --to-destination: an address or a range,
// in brackets where ports follow it in IPv6, then ports.
func (c *check) natAddress(p *part) *RuleError {
	text := p.value.text()
	hosts, at, ports := text, 0, ""
	if inside, found := strings.CutPrefix(text, "["); found {
		hosts, ports, _ = strings.Cut(inside, "]")
		at, ports = 1, strings.TrimPrefix(ports, ":")
	} else if strings.Count(text, ":") < 2 {
		hosts, ports, _ = strings.Cut(text, ":")
	}
	if err := c.addressRange(p, hosts, at); err != nil || ports == "" {
		return err
	}
	return c.withPorts(p, ports, len(text)-len(ports))
}

// natPorts judges --to-ports.
func (c *check) natPorts(p *part) *RuleError {
	text := p.value.text()
	host, port, colon := strings.Cut(text, ":")
	switch {
	case versionOf(host) != 0 || versionOf(text) != 0:
		return c.failValue(p, text, 0, "write ports here, or -j DNAT --to-destination", "--to-ports takes no address")
	case colon && host != "" && port != "":
		return c.failValue(p, text, 0, "write "+host+"-"+port, "a range of --to-ports has a colon")
	}
	return c.withPorts(p, text, 0)
}

// withPorts judges ports that a target writes into packets: those of some protocol.
func (c *check) withPorts(p *part, ports string, offset int) *RuleError {
	if c.protocol == noProtocol || c.protocol == anyProtocol {
		return c.fail(p, "write -p tcp before it, or udp, sctp, dccp", "ports without a protocol")
	}
	return c.portNumbers(p, ports, offset, "-/")
}

// over tells whether text is a plain decimal number over limit. A leading 0 makes it octal.
func over(text string, limit int) bool {
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' || text[0] == '0' {
			return false
		}
		n = min(n*10+int(text[i]-'0'), 1<<24)
	}
	return n > limit
}
