// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AppendSaved appends v as text of a line for each chain and rule, which ParseSaved reads. A rule
// has no newline. The table is not in it.
//
//	chain "tw-web" ours 9f86d081884c7d65 2 "web"
//	-p tcp -m tcp --dport 80 -j ACCEPT
//	-j DROP
//	chain "FORWARD" foreign 2c26b46b68ffc68f - ""
//	listed top 1 "web"
//	-j tw-web
//	-j tw-web
//
// Behind a chain's digest is the number of its rules, "-" where they are not known. Behind
// "listed" are the list and the number of lines of its canon; the rule itself comes first.
func AppendSaved(dst []byte, v Saved) []byte {
	for _, k := range v.Chains {
		dst = append(dst, "chain "...)
		dst = strconv.AppendQuote(dst, k.Name)
		dst = append(append(append(dst, ' '), k.Content.String()...), ' ')
		dst = strconv.AppendUint(dst, k.Digest, 16)
		if k.Known {
			dst = strconv.AppendInt(append(dst, ' '), int64(len(k.Rules)), 10)
		} else {
			dst = append(dst, " -"...)
		}
		dst = strconv.AppendQuote(append(dst, ' '), k.Owner)
		dst = append(dst, '\n')
		if k.Known {
			dst = appendLines(dst, k.Rules)
		}
		for _, l := range k.Listed {
			dst = append(append(append(dst, "listed "...), l.List...), ' ')
			dst = strconv.AppendInt(dst, int64(len(l.Canon)), 10)
			dst = strconv.AppendQuote(append(dst, ' '), l.Owner)
			dst = appendLines(append(append(append(dst, '\n'), l.Text...), '\n'), l.Canon)
		}
	}
	return dst
}

func appendLines(dst []byte, lines []string) []byte {
	for _, l := range lines {
		dst = append(append(dst, l...), '\n')
	}
	return dst
}

// ParseSaved reads what AppendSaved wrote. What it returns shares the memory of text. An error
// names the line.
func ParseSaved(text string) (v Saved, err error) {
	p := savedParser{rest: text, lines: make([]string, 0, strings.Count(text, "\n"))}
	for p.rest != "" && p.err == nil {
		word, args, _ := strings.Cut(p.line(), " ")
		n := len(v.Chains)
		switch {
		case word == "chain":
			v.Chains = append(v.Chains, p.chain(args))
		case word == "listed" && n > 0 && v.Chains[n-1].Content == Foreign:
			v.Chains[n-1].Listed = append(v.Chains[n-1].Listed, p.listed(args))
		default:
			p.fail("%q", word)
		}
	}
	if p.err != nil {
		return Saved{}, p.err
	}
	return v, nil
}

// savedParser goes through text line by line.
type savedParser struct {
	rest  string
	n     int      // of the line read last
	lines []string // of all chains, so that they are one allocation
	err   error
}

func (p *savedParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("line %d: %s is not understood", p.n, fmt.Sprintf(format, args...))
	}
}

func (p *savedParser) line() string {
	p.n++
	i := strings.IndexByte(p.rest, '\n')
	if i < 0 {
		p.fail("a line without an end")
		p.rest = ""
		return ""
	}
	line := p.rest[:i]
	p.rest = p.rest[i+1:]
	return line
}

// take reads the next n lines.
func (p *savedParser) take(count string) []string {
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 || n > cap(p.lines)-len(p.lines) {
		p.fail("the number of lines %q", count)
		return nil
	}
	from := len(p.lines)
	for range n {
		p.lines = append(p.lines, p.line())
	}
	return p.lines[from:len(p.lines):len(p.lines)]
}

// chain reads `"NAME" CONTENT DIGEST COUNT "OWNER"`, and the lines that follow.
func (p *savedParser) chain(args string) SavedChain {
	var k SavedChain
	var rest string
	k.Name, rest = p.quoted(args)
	words := strings.SplitN(strings.TrimPrefix(rest, " "), " ", 4)
	if len(words) < 4 {
		p.fail("chain %s", args)
		return k
	}
	var err error
	k.Content = Content(slices.Index(contentWords[:], words[0])) // 255 for none
	if k.Digest, err = strconv.ParseUint(words[1], 16, 64); err != nil || k.Content == Absent || int(k.Content) >= len(contentWords) {
		p.fail("chain %s", args)
	}
	k.Owner, rest = p.quoted(words[3])
	if rest != "" {
		p.fail("%q behind the owner", rest)
	}
	if words[2] != "-" {
		k.Known, k.Rules = true, p.take(words[2])
	}
	return k
}

// listed reads `LIST COUNT "OWNER"`, and the lines that follow.
func (p *savedParser) listed(args string) ListedRule {
	var l ListedRule
	words := strings.SplitN(args, " ", 3)
	if len(words) < 3 || !slices.Contains([]string{"top", "bottom", "placed"}, words[0]) {
		p.fail("listed %s", args)
		return l
	}
	l.List = words[0]
	var rest string
	if l.Owner, rest = p.quoted(words[2]); rest != "" {
		p.fail("%q behind the owner", rest)
	}
	l.Text = p.line()
	if words[1] != "0" {
		l.Canon = p.take(words[1])
	}
	return l
}

// quoted reads the quoted word that text begins with.
func (p *savedParser) quoted(text string) (word, rest string) {
	q, err := strconv.QuotedPrefix(text)
	if err == nil {
		word, err = strconv.Unquote(q)
	}
	if err != nil {
		p.fail("%s", text)
		return "", ""
	}
	return word, text[len(q):]
}
