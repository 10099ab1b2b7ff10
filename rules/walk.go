// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// walk goes through a rule's text option by option, as getopt does. Where scan judges every
// word that may be an option, walk follows the one reading that the tool has: it knows what
// options take from the table, and which module an option belongs to from what was loaded
// before it. What it cannot tell it says.
//
// It makes no garbage while values have no escapes.
type walk struct {
	text   string
	at     int    // of the next word in text
	rest   string // letters of a word of short options that are still to come
	restAt int    // the column of the first of them

	loaded module
	target string // the latest -j or -g
	// plugin: a match, target or protocol was named that is not known here, and whose
	// options are not either.
	plugin bool
	// Which module serves an option that several have: the one that was loaded last.
	setOf, toOf, ecnOf module
}

// module is a set of the matches and targets whose options are told apart.
type module uint32

const (
	ofPorts module = 1 << iota // tcp, udp, sctp, dccp
	ofMultiport
	ofPolicy
	ofString
	ofSet
	ofRecent
	ofEcn
	ofICMP      // icmp or icmp6
	ofNetmap    // the target
	ofEcnTarget // the target
)

// piece is a word, or the value within one.
type piece struct {
	raw    string // as it stands in the text
	quoted bool   // raw is quoted as AppendWord does
	column int    // from 1
}

func (p piece) text() string {
	if !p.quoted {
		return p.raw
	}
	text, _ := quotedAt(p.raw, 1)
	return text
}

// optionLike tells whether getopt takes the word for an option where one may stand.
func (p piece) optionLike() bool {
	raw := p.raw
	if p.quoted {
		raw = raw[1 : len(raw)-1]
	}
	return len(raw) > 1 && raw[0] == '-'
}

// bare tells whether the word is neither like an option nor the "!" before one.
func (p piece) bare() bool { return !p.optionLike() && p.raw != "!" }

// part is an option with what belongs to it, or a word that belongs to none.
type part struct {
	not     bool  // a "!" stands before it
	written piece // the option as it is written, without a value in the same word
	// name is the long option in full; "" for a word that is no option, and for an option
	// that is not known or whose abbreviation fits several.
	name     string
	isOption bool
	// arity says what the option takes; inBoth where that is not known, and then what
	// follows may have been read wrongly.
	arity    position
	attached bool // the value stands in the same word
	missing  bool // the rule ends where the value should be
	value    piece
	second   piece // of an option that takes two words
}

// next reads the next part and tells whether there was one.
func (w *walk) next(p *part) bool {
	*p = part{}
	if w.rest != "" {
		w.short(p, w.rest, w.restAt)
		w.load(p)
		return true
	}
	word, ok := w.word()
	if !ok {
		return false
	}
	if word.raw == "!" {
		if after, more := w.word(); more {
			p.not, word = true, after
		}
	}
	p.written = word
	if !word.optionLike() {
		return true
	}
	if text := word.text(); text[1] == '-' {
		w.long(p, text)
	} else {
		w.short(p, text[1:], word.column+1)
	}
	w.load(p)
	return true
}

// word reads the next word of the text, which is canonical: one blank between words, and
// quotes only around a whole one.
func (w *walk) word() (piece, bool) {
	if w.at >= len(w.text) {
		return piece{}, false
	}
	from := w.at
	end := from
	quoted := w.text[from] == '"'
	if quoted {
		for end++; w.text[end] != '"'; end++ {
			if w.text[end] == '\\' {
				end++
			}
		}
		end++
	} else if n := strings.IndexByte(w.text[from:], ' '); n >= 0 {
		end += n
	} else {
		end = len(w.text)
	}
	w.at = end + 1
	return piece{w.text[from:end], quoted, from + 1}, true
}

// peek is word without going on.
func (w *walk) peek() (piece, bool) {
	at := w.at
	word, ok := w.word()
	w.at = at
	return word, ok
}

// short reads one short option of a word: letters is what the word has from it on.
func (w *walk) short(p *part, letters string, column int) {
	w.rest = ""
	if p.written.raw == "" || len(p.written.raw) > len("-x") {
		p.written = piece{"-" + letters[:1], false, max(p.written.column, column-1)}
	}
	p.isOption, p.name, p.arity = true, coreName(letters[0]), inValue
	switch p.name {
	case "":
		p.arity = inBoth
	case "fragments":
		p.arity = inOption
	}
	switch {
	case p.arity == inOption && len(letters) > 1:
		w.rest, w.restAt = letters[1:], column+1
	case p.arity == inValue && len(letters) > 1:
		p.value, p.attached = piece{letters[1:], false, column + 1}, true
		w.secondOf(p)
	default:
		w.values(p)
	}
}

// long reads a long option.
func (w *walk) long(p *part, text string) {
	written, value, assigned := strings.Cut(text[2:], "=")
	p.isOption = true
	p.name, p.arity = w.resolve(written)
	if !assigned {
		w.values(p)
		return
	}
	column := p.written.column + len("--") + len(written) + len("=")
	if p.written.quoted {
		column++
	}
	p.value, p.attached = piece{value, false, column}, true
	p.written = piece{text[:len("--")+len(written)], false, p.written.column}
	w.secondOf(p)
}

// values reads the words that belong to an option.
func (w *walk) values(p *part) {
	switch p.arity {
	case inValue:
		var ok bool
		p.value, ok = w.word()
		p.missing = !ok
		w.secondOf(p)
	case inBoth:
		if after, ok := w.peek(); ok && after.bare() {
			p.value, _ = w.word()
		}
	}
}

// secondOf reads the second word of an option that takes two.
func (w *walk) secondOf(p *part) {
	if !takesTwo(p.name) {
		return
	}
	if after, ok := w.peek(); ok && after.bare() {
		p.second, _ = w.word()
	}
}

// takesTwo tells whether the tool takes a second word for the option by itself.
func takesTwo(name string) bool {
	switch name {
	case "match-set", "add-set", "del-set", "map-set", "set", "tcp-flags", "chunk-types", "set-counters":
		return true
	}
	return false
}
