// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// verdicts are the targets that libxt_standard serves without a module of their name.
var verdicts = []string{"ACCEPT", "DROP", "QUEUE", "RETURN"}

// extensions are the targets of iptables and ip6tables 1.4.7 to 1.8.13, sorted. Source: the
// modules lib{xt,ipt,ip6t}_NAME.so of 1.8.9, which 1.8.13 has too, and the extensions folder
// of the 1.4 series (MIRROR, SAME). NAT is no target but a module of that name, so that a
// jump to a chain NAT would load it.
var extensions = []string{
	"AUDIT", "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNMARK", "CONNSECMARK", "CT", "DNAT",
	"DNPT", "DSCP", "ECN", "HL", "HMARK", "IDLETIMER", "LED", "LOG", "MARK", "MASQUERADE",
	"MIRROR", "NAT", "NETMAP", "NFLOG", "NFQUEUE", "NOTRACK", "RATEEST", "REDIRECT", "REJECT",
	"SAME", "SECMARK", "SET", "SNAT", "SNPT", "SYNPROXY", "TCPMSS", "TCPOPTSTRIP", "TEE",
	"TOS", "TPROXY", "TRACE", "TTL", "ULOG",
}

// IsVerdict tells whether name is ACCEPT, DROP, QUEUE or RETURN.
func IsVerdict(name string) bool {
	switch name {
	case "ACCEPT", "DROP", "QUEUE", "RETURN":
		return true
	}
	return false
}

// IsExtension tells whether name is a target that a module of iptables 1.4.7 to 1.8.13
// serves, of either IP version.
func IsExtension(name string) bool {
	_, found := slices.BinarySearch(extensions, name)
	return found
}

// SimilarTarget returns the verdict or extension that name is one edit away from: one letter
// more, less or other, or two neighbours swapped. It returns "" when there is none, when name
// is one itself, and when name is not all capital letters, as chains seldom are.
func SimilarTarget(name string) string {
	for i := 0; i < len(name); i++ {
		if name[i] < 'A' || name[i] > 'Z' {
			return ""
		}
	}
	if IsVerdict(name) || IsExtension(name) {
		return ""
	}
	for _, known := range [][]string{verdicts, extensions} {
		for _, target := range known {
			if oneEdit(name, target) {
				return target
			}
		}
	}
	return ""
}

// oneEdit tells whether the restricted Damerau-Levenshtein distance of a and b is 1.
func oneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		if i == len(a) {
			return false
		}
		return a[i+1:] == b[i+1:] ||
			i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}

// maxChainName is XT_EXTENSION_MAXNAMELEN less its NUL: bytes, not characters.
const maxChainName = 28

// CheckChainName reports why name cannot be the name of a user chain: it is not 1 to 28
// bytes of UTF-8, begins like an option, or has a blank, a double quote or a control
// character, with which a tool refuses it or prints it so that it reads back as another.
// Names of verdicts and extensions are not judged here: see IsVerdict and IsExtension.
func CheckChainName(name string) error {
	switch {
	case name == "":
		return errors.New("a chain name is missing")
	case len(name) > maxChainName:
		return fmt.Errorf("chain name %q has %d bytes: at most %d", name, len(name), maxChainName)
	case name[0] == '-' || name[0] == '!':
		return fmt.Errorf("chain name %q begins with %q like an option", name, name[:1])
	case !utf8.ValidString(name):
		return fmt.Errorf("chain name %q is not UTF-8", name)
	}
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case isBlank(c):
			return fmt.Errorf("chain name %q has a blank", name)
		case c == '"':
			return fmt.Errorf("chain name %q has a double quote", name)
		case c < ' ' || c == 0x7F:
			return fmt.Errorf("chain name %q has a control character", name)
		}
	}
	return nil
}
