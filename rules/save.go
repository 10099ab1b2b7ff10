// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ParseSave parses save output of iptables or ip6tables, 1.4.7 and later, with or without
// counters, while it is printed.
//
// A rule that could not be sent again is kept with its Err. A rule whose quote does not close
// goes on in the next line, since a comment may hold a newline. The error is a *SyntaxError
// for a line that no save prints, which means that output was damaged, or the error of r. A
// table that ends without COMMIT is no error; it is not Complete.
func ParseSave(r io.Reader) (*Ruleset, error) {
	p := saveParser{in: bufio.NewReaderSize(r, 64<<10), set: &Ruleset{}}
	for {
		line, err := p.read()
		if err == io.EOF {
			return p.set, nil
		}
		if err != nil {
			return nil, err
		}
		if err := p.parseLine(line); err != nil {
			return nil, err
		}
	}
}

type saveParser struct {
	in     *bufio.Reader
	set    *Ruleset
	table  *SavedTable    // the open table
	chains map[string]int // index of its chains
	number int            // of the line read last
	begun  int            // of the line that is parsed
}

// read returns the next line without its newline, io.EOF behind the last.
func (p *saveParser) read() (string, error) {
	line, err := p.in.ReadString('\n')
	if err != nil && (err != io.EOF || line == "") {
		return "", err
	}
	p.number++
	return strings.TrimSuffix(line, "\n"), nil
}

func (p *saveParser) fail(line, format string, args ...any) error {
	return &SyntaxError{p.begun, 1, line, fmt.Sprintf(format, args...)}
}

func (p *saveParser) parseLine(line string) error {
	p.begun = p.number
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case line[0] == '#':
		p.comment(line)
		return nil
	case line[0] == '*':
		return p.begin(line)
	case p.table == nil:
		return p.fail(line, "damaged output: a line outside of a table")
	case line[0] == ':':
		return p.chain(line)
	case line == "COMMIT":
		p.table.Complete = true
		p.table = nil
		return nil
	}
	return p.rule(line)
}

// comment looks for "# Table `filter' is incompatible, use 'nft' tool.", which iptables-nft
// prints, with exit 0, instead of a table.
func (p *saveParser) comment(line string) {
	rest, found := strings.CutPrefix(line, "# Table `")
	if !found {
		return
	}
	if name, what, found := strings.Cut(rest, "'"); found && strings.HasPrefix(what, " is incompatible") {
		p.set.Incompatible = append(p.set.Incompatible, name)
	}
}

func (p *saveParser) begin(line string) error {
	name := line[1:]
	if name == "" || strings.ContainsAny(name, " \t#\"") {
		return p.fail(line, "damaged output: not the name of a table")
	}
	p.set.Tables = append(p.set.Tables, SavedTable{Name: name})
	p.table = &p.set.Tables[len(p.set.Tables)-1]
	p.chains = map[string]int{}
	return nil
}

// chain reads ":chain POLICY [packets:bytes]". Kernels may hold any name without a blank.
func (p *saveParser) chain(line string) error {
	fields := strings.Fields(line[1:])
	if len(fields) < 2 || len(fields) > 3 || len(fields) == 3 && !isCounters(fields[2]) {
		return p.fail(line, "damaged output: not the declaration of a chain")
	}
	name, policy := fields[0], fields[1]
	if _, exists := p.chains[name]; exists {
		return p.fail(line, "damaged output: chain %q is declared twice", name)
	}
	if policy == "-" {
		policy = ""
	}
	p.chains[name] = len(p.table.Chains)
	p.table.Chains = append(p.table.Chains,
		SavedChain{Name: name, Policy: policy, Full: true, Digest: emptyDigest})
	return nil
}

// rule reads "[packets:bytes] -A chain rule" and the lines on which the rule goes on.
func (p *saveParser) rule(line string) error {
	rest := line
	if rest[0] == '[' {
		end := strings.IndexByte(rest, ']') + 1
		if !isCounters(rest[:end]) {
			return p.fail(line, "damaged output: unknown kind of line")
		}
		rest = strings.TrimLeft(rest[end:], " ")
	}
	rest, found := strings.CutPrefix(rest, "-A ")
	if !found {
		return p.fail(line, "damaged output: unknown kind of line")
	}
	name, text, _ := strings.Cut(rest, " ")
	index, declared := p.chains[name]
	if !declared {
		return p.fail(line, "damaged output: a rule of chain %q, which is not declared", name)
	}
	text, err := p.wholeRule(text)
	if err != nil {
		return err
	}
	p.table.Chains[index].add(strings.Trim(text, " \t"))
	return nil
}

// wholeRule reads on until the quotes of a rule are closed.
func (p *saveParser) wholeRule(text string) (string, error) {
	if strings.IndexByte(text, '"') < 0 {
		return text, nil
	}
	var state savedWords
	if state.feed(text); !state.quoted {
		return text, nil
	}
	var whole strings.Builder
	whole.WriteString(text)
	for state.quoted {
		line, err := p.read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		state.feed("\n" + line)
		whole.WriteByte('\n')
		whole.WriteString(line)
	}
	return whole.String(), nil
}

// add appends a rule and what follows from it.
func (c *SavedChain) add(text string) {
	rule, jump := savedRule(text)
	c.Rules = append(c.Rules, rule)
	c.Digest = addDigest(c.Digest, rule.Text)
	if jump == "" {
		return
	}
	if at, found := slices.BinarySearch(c.Jumps, jump); !found {
		c.Jumps = slices.Insert(c.Jumps, at, jump)
	}
}

// The digest is FNV-1a with 64 bits, each rule ended by a byte that no text has.
const (
	emptyDigest uint64 = 14695981039346656037
	digestPrime uint64 = 1099511628211
)

func addDigest(digest uint64, text string) uint64 {
	for i := 0; i < len(text); i++ {
		digest = (digest ^ uint64(text[i])) * digestPrime
	}
	return (digest ^ 0xFF) * digestPrime
}
