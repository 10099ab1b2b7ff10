// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"net/netip"
	"strings"

	"github.com/tableward/tableward/rules"
)

// plain gathers what a rule says while its words are gone through. If it says nothing but
// addresses, interfaces, a protocol, ports of tcp and udp, comments, and a verdict or a
// chain, we know how the tools read it back without asking them: they print the parts in one
// order and each in one form. Anything else makes it odd.
type plain struct {
	odd bool
	not bool // "!" stands before the word to come

	src, dst, in, out, protocol plainPart

	srcs, dsts []string // where there are several addresses, of a rule each

	blocks [3]plainBlock // matches in the order in which they came
	n      int
}

type plainPart struct {
	text    string
	not     bool
	present bool
}

// plainBlock is "-m name" and its options.
type plainBlock struct {
	name, comment string
	sport, dport  plainPart
}

// put notes one part; any part comes once.
func (p *plain) put(to *plainPart, text string, ok bool) {
	if p.odd = p.odd || !ok || to.present; !p.odd {
		*to = plainPart{text, p.not, true}
	}
	p.not = false
}

// option notes an option that has one value. The value has passed the examiner.
func (p *plain) option(option, value string) {
	if p.odd {
		return
	}
	switch option {
	case "-s", "--source", "--src", "-d", "--destination", "--dst": // see examiner.address
	case "-i", "--in-interface":
		p.put(&p.in, value, value != "" && value != "+")
	case "-o", "--out-interface":
		p.put(&p.out, value, value != "" && value != "+")
	case "-p", "--protocol", "--proto":
		name, ok := plainProtocols[value]
		p.put(&p.protocol, name, ok)
	case "-m", "--match":
		p.match(value)
	case "--sport", "--source-port":
		text, ok := plainPorts(value)
		if b := p.portBlock(); b != nil {
			p.put(&b.sport, text, ok && !(text == "" && p.not))
		}
	case "--dport", "--destination-port":
		text, ok := plainPorts(value)
		if b := p.portBlock(); b != nil {
			p.put(&b.dport, text, ok && !(text == "" && p.not))
		}
	case "--comment":
		p.comment(value)
	case "-j", "-g", "--jump", "--goto":
		p.odd = p.not || rules.IsExtension(value)
	default:
		p.odd = true
	}
}

func (p *plain) match(name string) {
	p.odd = p.odd || p.not || p.n == len(p.blocks) || name != "tcp" && name != "udp" && name != "comment"
	for _, b := range p.blocks[:p.n] {
		p.odd = p.odd || b.name == name
	}
	if !p.odd {
		p.blocks[p.n] = plainBlock{name: name}
		p.n++
	}
}

// portBlock returns the block whose ports are meant, that of the protocol, which the first
// port brings where no -m did.
func (p *plain) portBlock() *plainBlock {
	for i := range p.blocks[:p.n] {
		if b := &p.blocks[i]; b.name != "comment" {
			return b
		}
	}
	not := p.not
	p.not = false
	if p.match(p.protocol.text); p.odd || p.blocks[p.n-1].name == "comment" {
		p.odd = true
		return nil
	}
	p.not = not
	return &p.blocks[p.n-1]
}

func (p *plain) comment(text string) {
	p.odd = p.odd || p.not || p.n == 0 || len(text) > 255 || strings.Contains(text, "\n")
	if p.odd {
		return
	}
	b := &p.blocks[p.n-1]
	if p.odd = b.name != "comment" || b.comment != "" || text == ""; !p.odd {
		b.comment = text
	}
}

// text returns the rule as the tools read it back, nil if that is not known.
func (p *plain) text(dst []byte, sr *simRule) []byte {
	if p.odd || p.not {
		return nil
	}
	dst = p.src.append(dst, "-s ")
	dst = p.dst.append(dst, "-d ")
	dst = p.in.append(dst, "-i ")
	dst = p.out.append(dst, "-o ")
	dst = p.protocol.append(dst, "-p ")
	for i := range p.blocks[:p.n] {
		b := &p.blocks[i]
		dst = append(append(separate(dst), "-m "...), b.name...)
		if b.name == "comment" {
			if b.comment == "" {
				return nil
			}
			dst = rules.AppendWord(append(dst, " --comment "...), b.comment)
			continue
		}
		if b.name != p.protocol.text || p.protocol.not {
			return nil
		}
		dst = b.sport.append(dst, "--sport ")
		dst = b.dport.append(dst, "--dport ")
	}
	if sr.target == "" {
		return dst
	}
	option := "-j "
	if sr.isGoto {
		option = "-g "
	}
	return rules.AppendWord(append(separate(dst), option...), sr.target)
}

// several notes a list of addresses.
func (p *plain) several(v rules.IPVersion, to *plainPart, list *[]string, s string) {
	ok := !p.not
	for one := range strings.SplitSeq(s, ",") {
		text, good := plainAddress(v, one)
		ok = ok && good
		*list = append(*list, text)
	}
	p.put(to, "", ok)
}

// texts is text for a rule that stands for several: the first, and the others in sr.more.
func (p *plain) texts(dst []byte, sr *simRule) []byte {
	var first []byte
	for _, src := range orOne(p.srcs, p.src.text) {
		for _, addr := range orOne(p.dsts, p.dst.text) {
			p.src.text, p.dst.text = src, addr
			text := p.text(dst[len(dst):], sr)
			if text == nil {
				return nil
			}
			if first == nil {
				first = append([]byte{}, text...)
				continue
			}
			next := *sr
			next.more = nil
			next.setText(string(text))
			sr.more = append(sr.more, &next)
		}
	}
	return first
}

func orOne(list []string, one string) []string {
	if len(list) > 0 {
		return list
	}
	return []string{one}
}

func separate(dst []byte) []byte {
	if len(dst) > 0 {
		dst = append(dst, ' ')
	}
	return dst
}

func (p plainPart) append(dst []byte, option string) []byte {
	if p.text == "" {
		return dst
	}
	dst = separate(dst)
	if p.not {
		dst = append(dst, "! "...)
	}
	return rules.AppendWord(append(dst, option...), p.text)
}

// plainProtocols are those that all releases print by name, in the spellings that need no
// look at the machine's own list.
var plainProtocols = map[string]string{
	"tcp": "tcp", "udp": "udp", "icmp": "icmp", "icmpv6": "ipv6-icmp", "ipv6-icmp": "ipv6-icmp",
	"sctp": "sctp", "esp": "esp", "ah": "ah",
	"6": "tcp", "17": "udp", "1": "icmp", "58": "ipv6-icmp", "132": "sctp", "50": "esp", "51": "ah",
}

// plainPorts returns a port or a range as it is read back: "" for all ports.
func plainPorts(s string) (string, bool) {
	from, to, isRange := strings.Cut(s, ":")
	if !isPort(from) || isRange && !isPort(to) {
		return "", false
	}
	switch {
	case !isRange:
		return s, true
	case from == to:
		return from, true
	case from == "0" && to == "65535":
		return "", true
	}
	return s, atoi(from) < atoi(to)
}

// isPort tells whether s is a port in digits, without leading zeros.
func isPort(s string) bool {
	if s == "" || len(s) > 5 || s[0] == '0' && s != "0" {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return len(s) < 5 || atoi(s) <= 65535
}

// plainAddress returns an address with its prefix as it is read back: "" for any address.
func plainAddress(v rules.IPVersion, s string) (string, bool) {
	host, length, masked := strings.Cut(s, "/")
	a, err := netip.ParseAddr(host)
	if err != nil || a.Is4() != (v == rules.IPv4) || a.Zone() != "" {
		return "", false
	}
	bits := a.BitLen()
	if masked {
		if !isPort(length) || atoi(length) > bits {
			return "", false
		}
		bits = atoi(length)
	}
	p, _ := a.Prefix(bits)
	switch {
	case bits == 0:
		return "", true
	case a.Is4() && masked && p.Addr() == a:
		return s, true
	case a.Is6() && oddlyPrinted(p.Addr()):
		return "", false
	}
	return p.String(), true
}

// oddlyPrinted tells whether the C library prints the address with a dotted end.
func oddlyPrinted(a netip.Addr) bool {
	b := a.As16()
	for _, c := range b[:10] {
		if c != 0 {
			return false
		}
	}
	return b[10] != 0 || b[11] != 0 || b[12] != 0 || b[13] != 0
}
