// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// examine goes through the words in order and notes the first mistake. It appends the rule
// as it is read back to dst if the rule is plain, and returns nil otherwise.
func (sr *simRule) examine(dst []byte, b Backend, id rules.TableID, ws []string) []byte {
	x := examiner{sr: sr, id: id, words: ws}
	for x.i < len(ws) && sr.err == nil {
		sr.err = x.word()
	}
	if sr.err == nil {
		sr.err = cmp.Or(x.drop, x.src, x.dst)
	}
	if table := targetTable[sr.target]; table != "" && table != id.Name && !sr.isGoto {
		sr.errno = errInval
	}
	if x.bridged {
		sr.here = 0
	}
	if b == Legacy {
		sr.forbid |= sr.here
	}
	if !sr.isGoto {
		sr.forbid |= targetForbid[sr.target]
	}
	if sr.err != nil {
		return nil
	}
	if len(x.plain.srcs)+len(x.plain.dsts) > 0 {
		return x.plain.texts(dst, sr)
	}
	return x.plain.text(dst, sr)
}

type examiner struct {
	sr      *simRule
	id      rules.TableID
	words   []string
	i       int
	once    uint32 // a bit for each letter of an option that may come once, and did
	ports   bool   // --dport exists
	bridged bool   // --physdev-is-bridged, with which physdev takes its other options anywhere

	// What the tools look at when they are through with the words: nat's DROP, then the
	// addresses.
	drop, src, dst *wordError

	plain plain
}

// word handles the word at i and what belongs to it.
func (x *examiner) word() *wordError {
	w := x.words[x.i]
	x.i++
	if w == "!" {
		if x.plain.not {
			return &wordError{text: "multiple consecutive ! not allowed"}
		}
		x.plain.not = true
		return nil
	}
	if w == "" || w[0] != '-' {
		return badArgument(w)
	}
	if takesWord(w) {
		return x.option(w)
	}
	if commandOf(w) != 0 {
		x.sr.commands = true
	}
	switch w {
	case "-t", "--table":
		return &wordError{text: "The -t option cannot be used in " + programMark + ".\n"}
	case "-c", "--set-counters":
		x.plain.odd, x.sr.counted = true, true
		x.i = min(x.i+2, len(x.words))
		return nil
	case "-4", "--ipv4", "-6", "--ipv6":
		if (x.id.IPVersion == rules.IPv4) != (w == "-4" || w == "--ipv4") {
			x.sr.nothing, x.i = true, len(x.words) // the rest of the line is not read
		}
		return nil
	}
	not := x.plain.not
	x.plain.odd, x.plain.not = true, false
	if strings.HasPrefix(w, "--bogus") || strings.HasPrefix(w, "--no-such") || strings.HasPrefix(w, "--nosuch") {
		return unknownOption(w)
	}
	// The value of an option that we do not know, if it has one.
	if x.i < len(x.words) && x.words[x.i] != "" && x.words[x.i][0] != '-' && x.words[x.i] != "!" {
		v := x.words[x.i]
		x.i++
		switch {
		case w == "--dir":
			w += " " + v
		case w == "--to-destination" || w == "--to-source":
			if a, err := netip.ParseAddr(v); err == nil && a.Is4() && x.id.IPVersion == rules.IPv6 {
				return &wordError{text: "Bad IP address \"" + v + "\""}
			}
		}
	}
	x.sr.here |= optionForbid[w]
	x.bridged = x.bridged || w == "--physdev-is-bridged" && !not
	return nil
}

// option handles an option that we know, with its value.
func (x *examiner) option(w string) *wordError {
	if x.i == len(x.words) {
		return needsArgument(w)
	}
	v := x.words[x.i]
	x.i++
	if len(w) > 2 && pairOptions[w] && x.i < len(x.words) {
		x.i++
	}
	if err := x.value(w, v); err != nil {
		return err
	}
	x.plain.option(w, v)
	x.plain.not = false
	return nil
}

// single refuses an option that has come before; it is known by its letter.
func (x *examiner) single(letter byte) *wordError {
	bit := uint32(1) << (letter - 'a')
	if x.once&bit != 0 {
		return &wordError{text: "multiple -" + string(letter) + " flags not allowed"}
	}
	x.once |= bit
	return nil
}

// value handles the value of an option that we know.
func (x *examiner) value(option, v string) (err *wordError) {
	switch option {
	case "-s", "--source", "--src":
		err = x.single('s')
		x.src = x.address(&x.plain.src, &x.plain.srcs, v)
	case "-d", "--destination", "--dst":
		err = x.single('d')
		x.dst = x.address(&x.plain.dst, &x.plain.dsts, v)
	case "-i", "--in-interface":
		x.sr.in = true
		if err = x.single('i'); err == nil {
			err = checkInterface(v)
		}
	case "-o", "--out-interface":
		x.sr.out = true
		if err = x.single('o'); err == nil {
			err = checkInterface(v)
		}
	case "-p", "--protocol", "--proto":
		if err = x.single('p'); err == nil {
			err = x.protocol(v)
		}
	case "-m", "--match":
		return x.match(v)
	case "-j", "-g", "--jump", "--goto":
		return x.target(option, v)
	case "--dport", "--sport", "--destination-port", "--source-port":
		if !x.ports {
			return unknownOption(option)
		}
		return checkPort(v)
	case "--match-set", "--add-set", "--del-set", "--map-set":
		if !slices.Contains(x.sr.sets, v) {
			x.sr.sets = append(x.sr.sets, v)
		}
	}
	return err
}

func (x *examiner) address(to *plainPart, list *[]string, v string) *wordError {
	if strings.Contains(v, ",") {
		x.plain.several(x.id.IPVersion, to, list, v)
		return checkAddresses(x.id.IPVersion, v)
	}
	text, ok := plainAddress(x.id.IPVersion, v)
	x.plain.put(to, text, ok && !(text == "" && x.plain.not))
	if ok {
		return nil
	}
	return checkAddresses(x.id.IPVersion, v)
}

func (x *examiner) protocol(v string) *wordError {
	x.ports = x.ports || portProtocols[strings.ToLower(v)]
	if isBogus(v) || v != "" && strings.Trim(v, "0123456789") == "" && (len(v) > 3 || atoi(v) > 255) {
		return &wordError{text: "unknown protocol \"" + v + "\" specified"}
	}
	return nil
}

func (x *examiner) match(name string) *wordError {
	family := matches4
	if x.id.IPVersion == rules.IPv6 {
		family = matches6
	}
	if !matches[name] && !family[name] {
		return &wordError{text: "Couldn't load match `" + name + "':No such file or directory\n"}
	}
	x.ports = x.ports || portProtocols[name]
	x.sr.forbid |= matchForbid[name]
	return nil
}

func (x *examiner) target(option, name string) *wordError {
	switch {
	case x.sr.target != "":
		return &wordError{text: "multiple -j flags not allowed"}
	case name == "":
		return &wordError{text: "Invalid target name (too short)"}
	case len(name) > maxChainName:
		return &wordError{text: "Invalid target name `" + name + "' (28 chars max)"}
	case strings.ContainsAny(name, " \t\n\v\f\r"):
		return &wordError{text: "Invalid target name `" + name + "'"}
	}
	x.sr.target = name
	x.sr.isGoto = option == "-g" || option == "--goto"
	if name == "DROP" && !x.sr.isGoto && x.id.Name == "nat" {
		x.drop = natDrop
	}
	return nil
}
