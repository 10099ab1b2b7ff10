// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"fmt"
	"strings"
)

// ParseRestore parses restore input as people write it. It stops at the first problem, with
// a *SyntaxError of its line and column.
//
// Accepted beyond what the tools take: CRLF line ends, a missing last newline, blanks behind
// COMMIT, and between tables the lines "# ip: 4" and "# ip: 6", which say the IP version of
// the blocks below them. Refused though the tools take it: what ParseRule and CheckChainName
// refuse, control characters, text that is not UTF-8, commands that print, attached
// arguments ("-Achain"). Whether chains are declared, and before their use, is not judged.
func ParseRestore(data []byte) (*Input, error) {
	p := restoreParser{input: &Input{}}
	for rest := data; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		rest = after
		p.number++
		p.line = string(bytes.TrimSuffix(line, []byte{'\r'}))
		if err := p.parseLine(); err != nil {
			err.Line, err.Text = p.number, p.line
			return nil, err
		}
	}
	if p.block != nil {
		return nil, &SyntaxError{p.number, len(p.line) + 1, p.line,
			fmt.Sprintf("table %s not committed: no COMMIT at the end of the input", p.block.Table)}
	}
	return p.input, nil
}

type restoreParser struct {
	input  *Input
	block  *Block // the open table
	ip     IPVersion
	number int
	line   string
	words  []Word // of the line at hand; kept to save allocations
}

// fail makes an error of the line at hand; ParseRestore adds number and text.
func (p *restoreParser) fail(column int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Column: column, Reason: fmt.Sprintf(format, args...)}
}

func (p *restoreParser) parseLine() *SyntaxError {
	if err := checkLine(p.line); err != nil {
		return err
	}
	begin := skipBlanks(p.line, 0)
	if begin == len(p.line) {
		return nil
	}
	switch c := p.line[begin]; {
	case c == '#':
		return p.comment(begin)
	case c == '-' || c == '[':
		return p.commandLine(begin)
	case begin > 0 && (c == '*' || c == ':' || c == 'C'):
		return p.fail(begin+1, "*table, :chain and COMMIT stand at the begin of a line")
	case c == '*':
		return p.table()
	case c == ':':
		return p.declare()
	case strings.TrimRight(p.line, " \t") == "COMMIT":
		return p.commit()
	}
	return p.fail(begin+1, "unknown kind of line: neither *table, :chain, a command such as -A, COMMIT nor a # comment")
}

// comment reads "# ip: 4" and "# ip: 6". Other words behind "# ip:" are a comment like any,
// unless they are meant as a version.
func (p *restoreParser) comment(begin int) *SyntaxError {
	text := strings.Trim(p.line[begin+1:], " \t")
	version, found := strings.CutPrefix(text, "ip:")
	if !found {
		return nil
	}
	version = strings.TrimLeft(version, " \t")
	var ip IPVersion
	switch version {
	case "4":
		ip = IPv4
	case "6":
		ip = IPv6
	default:
		if isNumber(strings.TrimLeft(version, "ipvIPV")) {
			return p.fail(begin+1, `unknown IP version %q: write "# ip: 4" or "# ip: 6"`, version)
		}
		return nil
	}
	if p.block != nil {
		return p.fail(begin+1, `"# ip: %d" inside of table %s: it stands between tables`, ip, p.block.Table)
	}
	p.ip = ip
	return nil
}

func (p *restoreParser) table() *SyntaxError {
	if p.block != nil {
		return p.fail(1, "table %s not committed before line %d", p.block.Table, p.number)
	}
	at := skipBlanks(p.line, 1)
	end := skipWord(p.line, at)
	name := p.line[at:end]
	if !IsTable(name) {
		return p.fail(at+1, "unknown table %q: one of filter, mangle, nat, raw, security", name)
	}
	if extra := skipBlanks(p.line, end); extra < len(p.line) {
		return p.fail(extra+1, "unexpected word after the table's name")
	}
	p.input.Blocks = append(p.input.Blocks, Block{IPVersion: p.ip, Table: name, Number: p.number})
	p.block = &p.input.Blocks[len(p.input.Blocks)-1]
	return nil
}

func (p *restoreParser) commit() *SyntaxError {
	if p.block == nil {
		return p.fail(1, "COMMIT outside of a table")
	}
	p.block = nil
	return nil
}

// declare reads ":chain POLICY [packets:bytes]". The tools cut this line at blanks, without
// quoting.
func (p *restoreParser) declare() *SyntaxError {
	if p.block == nil {
		return p.fail(1, "chain outside of a table")
	}
	at := skipBlanks(p.line, 1)
	end := skipWord(p.line, at)
	chain := p.line[at:end]
	if err := CheckChainName(chain); err != nil {
		return p.fail(at+1, "%v", err)
	}
	policyAt := skipBlanks(p.line, end)
	policyEnd := skipWord(p.line, policyAt)
	if policyAt == policyEnd {
		return p.fail(len(p.line)+1, `a policy is missing: write ":%s - [0:0]"`, chain)
	}
	countersAt := skipBlanks(p.line, policyEnd)
	countersEnd := skipWord(p.line, countersAt)
	if countersAt < countersEnd && !isCounters(p.line[countersAt:countersEnd]) {
		return p.fail(countersAt+1, "unexpected word: counters are [packets:bytes]")
	}
	if extra := skipBlanks(p.line, countersEnd); extra < len(p.line) {
		return p.fail(extra+1, "unexpected word after the counters")
	}
	p.add(Line{Command: Declare, Chain: chain, Policy: p.line[policyAt:policyEnd], Column: at + 1})
	return nil
}

// add appends a line to the open table.
func (p *restoreParser) add(l Line) {
	l.Number, l.Text = p.number, p.line
	p.block.Lines = append(p.block.Lines, l)
}

func skipBlanks(s string, i int) int {
	for i < len(s) && isBlank(s[i]) {
		i++
	}
	return i
}

func skipWord(s string, i int) int {
	for i < len(s) && !isBlank(s[i]) {
		i++
	}
	return i
}

// isCounters tells whether s is "[packets:bytes]".
func isCounters(s string) bool {
	if len(s) < 2 || s[0] != '[' || s[len(s)-1] != ']' {
		return false
	}
	packets, bytes, found := strings.Cut(s[1:len(s)-1], ":")
	return found && isNumber(packets) && isNumber(bytes)
}

func isNumber(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
