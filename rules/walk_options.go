// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"sync"
)

// load notes what a part changes for those after it.
func (w *walk) load(p *part) {
	switch p.name {
	case "match":
		m, known := knownMatches[p.value.text()]
		w.loaded |= m.module
		w.plugin = w.plugin || !known
		switch m.module {
		case ofSet, ofRecent:
			w.setOf = m.module
		case ofString:
			w.toOf = m.module
		case ofEcn:
			w.ecnOf = m.module
		}
	case "jump":
		w.target = p.value.text()
		switch {
		case w.target == "NETMAP":
			w.toOf = ofNetmap
		case w.target == "ECN":
			w.ecnOf = ofEcnTarget
		case !IsVerdict(w.target) && !IsExtension(w.target):
			w.plugin = true // a chain, or a target that is not known here
		}
	case "goto":
		w.target = ""
	}
}

// coreName returns the long name of a short option that a rule may have, "" for any other.
func coreName(letter byte) string {
	switch letter {
	case 's':
		return "source"
	case 'd':
		return "destination"
	case 'p':
		return "protocol"
	case 'i':
		return "in-interface"
	case 'o':
		return "out-interface"
	case 'm':
		return "match"
	case 'j':
		return "jump"
	case 'g':
		return "goto"
	case 'c':
		return "set-counters"
	case 'f':
		return "fragments"
	}
	return ""
}

// resolve returns the full name of a long option, "" if it is not certain, and what it takes.
func (w *walk) resolve(written string) (string, position) {
	switch written {
	case "src":
		return "source", inValue
	case "dst":
		return "destination", inValue
	case "proto":
		if w.loaded&ofPolicy != 0 { // which has an option of that name
			return "proto", inValue
		}
		return "protocol", inValue
	case "set":
		switch w.setOf {
		case ofRecent:
			return written, inOption
		case ofSet:
			return written, inValue
		}
		return "", inBoth
	case "ecn-tcp-cwr", "ecn-tcp-ece":
		switch w.ecnOf {
		case ofEcn:
			return written, inOption
		case ofEcnTarget:
			return written, inValue
		}
		return "", inBoth
	}
	if o, known := longOptions[written]; known {
		return written, o.next
	}
	return abbreviated(written)
}

// sortedOptions has the long options that are known, in order.
var sortedOptions = sync.OnceValue(func() []string {
	names := make([]string, 0, len(longOptions))
	for name := range longOptions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
})

// abbreviated is resolve for a name that is not there in full. Where one of iptables itself is
// among those it may stand for, it stands for that one or is refused: those are always there.
func abbreviated(written string) (string, position) {
	all := sortedOptions()
	from, _ := slices.BinarySearch(all, written)
	to := from
	for to < len(all) && strings.HasPrefix(all[to], written) {
		to++
	}
	if to == from {
		return "", inBoth
	}
	arity := longOptions[all[from]].next
	core := ""
	for _, name := range all[from:to] {
		if _, ok := coreOptions[name]; ok && core == "" {
			core = name
		}
		if longOptions[name].next != arity {
			arity = inBoth
		}
	}
	switch {
	case to == from+1:
		return all[from], arity
	case core != "":
		if long, ok := map[string]string{"src": "source", "dst": "destination", "proto": "protocol"}[core]; ok {
			core = long
		}
		return core, coreOptions[core].next
	}
	return "", arity
}
