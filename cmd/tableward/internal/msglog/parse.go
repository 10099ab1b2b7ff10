// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// version is what the first line of a log says under "tableward".
const version = "log/v1"

// Parse reads a log. What is wrong with it is an *Error.
func Parse(r io.Reader) (*Log, error) {
	p := parser{log: &Log{}, ids: map[string]bool{}}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		p.cursor.line++
		if len(bytes.TrimSpace(line)) > 0 {
			if p.one(line); p.err != nil {
				return nil, p.err
			}
		}
		if err != nil {
			break
		}
	}
	if !p.begun {
		return nil, &Error{1, 1, noHeader}
	}
	return p.log, nil
}

const noHeader = `the first line must say "tableward":"` + version + `"`

// parser reads the lines of a log one by one.
type parser struct {
	cursor
	log   *Log
	begun bool // the header has been read
	last  time.Duration
	ids   map[string]bool
}

func (p *parser) one(line []byte) {
	n, column, err := parseJSON(line)
	if err != nil {
		p.fail(column-1, err.Error())
		return
	}
	if !p.begun {
		p.begun = true
		p.header(n)
		return
	}
	if n.get("kernel") != nil {
		p.kernelLine(n)
	} else {
		p.messageLine(n)
	}
}

func (p *parser) header(n *node) {
	v := n.get("tableward")
	if v == nil {
		p.fail(n.at, noHeader)
		return
	}
	h := &p.log.Header
	h.Backend = dataplane.NFT
	p.object(n, map[string]func(*node){
		"tableward": func(n *node) { p.word(n, version) },
		"about":     func(n *node) { h.About = p.str(n) },
		"backend":   func(n *node) { h.Backend = dataplane.Backend(p.word(n, "nft", "legacy")) },
		"prefix":    func(n *node) { h.Prefixes = p.prefixes(n) },
		"owners":    func(n *node) { h.Owners = p.strs(n) },
		"grace":     func(n *node) { h.Grace = p.boolean(n) },
		"seed":      func(n *node) { h.Seed = p.seeds(n) },
		"sets":      func(n *node) { h.Sets = p.sets(n) },
		"timers": func(n *node) {
			if p.boolean(n) {
				p.fail(n.at, "timers are not supported yet")
			}
		},
	})
}

// prefixes has the runtime judge each prefix, so that the column is that of the bad one.
func (p *parser) prefixes(n *node) []string {
	for _, item := range p.items(n) {
		cfg := transaction.Config{
			Table: rules.TableID{IPVersion: rules.IPv4, Name: "filter"}, Prefixes: []string{p.str(item)},
		}
		if err := cfg.Validate(); err != nil {
			p.fail(item.at, err.Error())
		}
	}
	return p.strs(n)
}

func (p *parser) seeds(n *node) []Seed {
	var out []Seed
	for _, item := range p.items(n) {
		s := Seed{IPVersion: rules.IPv4, line: p.line, column: item.at + 1}
		p.object(item, map[string]func(*node){
			"ip":      func(n *node) { s.IPVersion = p.ip(n) },
			"restore": func(n *node) { s.Restore = p.str(n) },
		})
		if s.Restore == "" {
			p.fail(item.at, "a seed needs its restore input")
		}
		out = append(out, s)
	}
	return out
}

func (p *parser) sets(n *node) []Set {
	var out []Set
	for _, item := range p.items(n) {
		s := Set{IPVersion: rules.IPv4}
		p.object(item, map[string]func(*node){
			"ip":   func(n *node) { s.IPVersion = p.ip(n) },
			"name": func(n *node) { s.Name = p.str(n) },
		})
		if s.Name == "" {
			p.fail(item.at, "a set needs its name")
		}
		out = append(out, s)
	}
	return out
}

func (p *parser) ip(n *node) rules.IPVersion {
	v := p.integer(n)
	if v != 4 && v != 6 {
		p.fail(n.at, "IP version 4 or 6 is wanted here")
	}
	return rules.IPVersion(v)
}

func (p *parser) table(n *node) string {
	name := p.str(n)
	if !rules.IsTable(name) {
		p.fail(n.at, "unknown table "+strconv.Quote(name)+": one of filter, mangle, nat, raw, security")
	}
	return name
}

// at reads the time of a line, which must not go backwards.
func (p *parser) at(n *node) time.Duration {
	text := p.str(n)
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d < 0:
		p.fail(n.at, strconv.Quote(text)+" is no time: a duration since the beginning is wanted here, as 10ms or 1m30s")
	case d < p.last:
		p.fail(n.at, text+" is before "+p.last.String()+", the time of a line above")
	}
	p.last = d
	return d
}
