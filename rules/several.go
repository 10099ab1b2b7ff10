// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// Several tells whether the tools may make more than one rule of this one, or a number that
// only they know: "-s 10.0.0.1,10.0.0.2" is two, and a host's name as many as it has addresses.
func (r Rule) Several() bool {
	if !strings.Contains(r.text, "-s") && !strings.Contains(r.text, "-d") {
		return false // neither is in --source and --destination, nor in -s and -d
	}
	w := walk{text: r.text}
	for p := (part{}); w.next(&p); {
		if (p.name == "source" || p.name == "destination") && !oneAddress(p.value.text()) {
			return true
		}
	}
	return false
}

// oneAddress tells whether a value is an address or a network in numbers.
func oneAddress(value string) bool {
	letters := "0123456789./"
	if strings.Contains(value, ":") {
		letters = "0123456789abcdefABCDEF.:/"
	}
	return value != "" && strings.Trim(value, letters) == ""
}
