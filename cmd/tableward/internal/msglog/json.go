// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// node is a JSON value with its place. The standard decoder into structs keeps neither the
// place nor fields that are given twice, and a log is to be refused with both.
type node struct {
	at  int // offset in its line
	val any // string, json.Number, bool, nil, []*node or []member
}

type member struct {
	key string
	at  int
	val *node
}

// get returns the member of an object, nil if there is none.
func (n *node) get(key string) *node {
	members, _ := n.val.([]member)
	for _, m := range members {
		if m.key == key {
			return m.val
		}
	}
	return nil
}

// parseJSON reads one line.
func parseJSON(line []byte) (*node, int, error) {
	if !utf8.Valid(line) {
		return nil, 1 + invalidAt(line), errors.New("not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(line, &whole); err != nil {
		column := len(bytes.TrimRight(line, "\r\n"))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			column = min(int(syntax.Offset), column)
		}
		return nil, max(column, 1), errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	w := walker{line: line, dec: json.NewDecoder(bytes.NewReader(line))}
	w.dec.UseNumber()
	return w.value(w.next()), 0, nil
}

func invalidAt(line []byte) int {
	at := 0
	for at < len(line) {
		r, size := utf8.DecodeRune(line[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// walker turns the tokens of a line, known to be valid, into nodes.
type walker struct {
	line []byte
	dec  *json.Decoder
}

type token struct {
	at  int
	val json.Token
}

func (w *walker) next() token {
	at := int(w.dec.InputOffset())
	for at < len(w.line) && strings.IndexByte(" \t\r\n,:", w.line[at]) >= 0 {
		at++
	}
	val, _ := w.dec.Token() // the line is valid
	return token{at, val}
}

func (w *walker) value(t token) *node {
	n := &node{at: t.at, val: t.val}
	switch t.val {
	case json.Delim('['):
		items := []*node{}
		for w.dec.More() {
			items = append(items, w.value(w.next()))
		}
		w.next()
		n.val = items
	case json.Delim('{'):
		members := []member{}
		for w.dec.More() {
			key := w.next()
			name, _ := key.val.(string)
			members = append(members, member{name, key.at, w.value(w.next())})
		}
		w.next()
		n.val = members
	}
	return n
}

// cursor takes nodes of one line apart and keeps the first error, so that the code that
// describes the format need not speak of errors at each step.
type cursor struct {
	line int
	err  *Error
}

func (c *cursor) fail(at int, reason string) {
	if c.err == nil {
		c.err = &Error{Line: c.line, Column: at + 1, Reason: reason}
	}
}

// object hands each member of an object to the function of its name.
func (c *cursor) object(n *node, fields map[string]func(*node)) {
	c.members(n, func(m member) {
		take := fields[m.key]
		if take == nil {
			c.fail(m.at, "unknown field "+strconv.Quote(m.key))
			return
		}
		take(m.val)
	})
}

// members hands each member of an object to f; a name given twice is refused.
func (c *cursor) members(n *node, f func(member)) {
	members, ok := n.val.([]member)
	if !ok {
		c.fail(n.at, "an object is wanted here")
		return
	}
	seen := map[string]bool{}
	for _, m := range members {
		if seen[m.key] {
			c.fail(m.at, strconv.Quote(m.key)+" is given twice")
		}
		seen[m.key] = true
		f(m)
	}
}

func (c *cursor) items(n *node) []*node {
	items, ok := n.val.([]*node)
	if !ok {
		c.fail(n.at, "an array is wanted here")
	}
	return items
}

func (c *cursor) str(n *node) string {
	s, ok := n.val.(string)
	if !ok {
		c.fail(n.at, "a string is wanted here")
	}
	return s
}

func (c *cursor) strs(n *node) []string {
	var out []string
	for _, item := range c.items(n) {
		out = append(out, c.str(item))
	}
	return out
}

func (c *cursor) boolean(n *node) bool {
	b, ok := n.val.(bool)
	if !ok {
		c.fail(n.at, "true or false is wanted here")
	}
	return b
}

// yes takes a member that can only be true.
func (c *cursor) yes(n *node) bool {
	b, ok := n.val.(bool)
	if !ok || !b {
		c.fail(n.at, "true is wanted here, or leave the field out")
	}
	return b
}

func (c *cursor) integer(n *node) int {
	number, ok := n.val.(json.Number)
	if !ok {
		c.fail(n.at, "a whole number is wanted here")
		return 0
	}
	i, err := strconv.Atoi(number.String())
	if err != nil {
		c.fail(n.at, "a whole number is wanted here")
	}
	return i
}

// word takes one of several words.
func (c *cursor) word(n *node, words ...string) string {
	s := c.str(n)
	for _, w := range words {
		if s == w {
			return s
		}
	}
	c.fail(n.at, strconv.Quote(s)+": one of "+strings.Join(words, ", ")+" is wanted here")
	return s
}
