// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// simCmd is one command of a block. Its op is the letter of its short option, ':' for a
// declaration, 'd' for -D with an index.
type simCmd struct {
	op    byte
	line  int
	index int // 'I', 'R', 'd'; 0 is not given
	chain string
	arg   string // policy of ':' and 'P', new name of 'E'
	rule  *simRule
	last  bool // 'I' at the end: nft appends
}

// isCounting tells whether the command takes a place among a chain's rules, or looks for one.
func (c simCmd) isCounting() bool {
	switch c.op {
	case 'D', 'd', 'R':
		return true
	}
	return c.op == 'I' && c.index > 0
}

// The tools' words for errno values.
const (
	noChain   = "No chain/target/match by that name"
	badRule   = "Bad rule (does a matching rule exist in that chain?)"
	errBusy   = "Device or resource busy"
	errInval  = "Invalid argument"
	errLinks  = "Too many links"
	errNoFile = "No such file or directory"
)

// exec executes one command on the table.
func (t *simTable) exec(r *simRun, cmd *simCmd) *toolError {
	c := t.chains[cmd.chain]
	switch cmd.op {
	case ':':
		return t.declare(r, cmd, c)
	case 'A', 'I', 'R', 'D', 'd':
		return t.execRule(r, cmd, c)
	case 'N':
		if c != nil {
			return r.failed(cmd.line, "Chain already exists")
		}
		t.create(cmd.chain)
	case 'P':
		return t.setPolicy(r, cmd, c)
	case 'E':
		return t.rename(r, cmd, c)
	case 'X':
		return t.execDelete(r, cmd, c)
	case 'F':
		if cmd.chain != "" && c == nil {
			return r.failed(cmd.line, noChain)
		}
		if c != nil {
			t.execFlush(c)
			return nil
		}
		for _, c := range t.chains {
			t.execFlush(c)
		}
	case 'Z':
		if cmd.chain != "" && c == nil {
			return r.failed(cmd.line, noChain)
		}
	}
	return nil
}

// execFlush is -F. The nft tool takes back what it was about to do with the chain's rules.
func (t *simTable) execFlush(c *simChain) {
	t.flush(c)
	t.refused = slices.DeleteFunc(t.refused, func(f simRefusal) bool { return f.chain == c.name })
}

func (t *simTable) declare(r *simRun, cmd *simCmd, c *simChain) *toolError {
	if c == nil {
		c = t.create(cmd.chain)
	} else if c.hook == 0 {
		t.bury(c)
	}
	if cmd.arg == "" {
		return nil
	}
	if r.sim.backend == NFT && c.hook == 0 {
		return nil // ignored
	}
	te := t.setPolicy(r, cmd, c)
	if te != nil && r.sim.backend == Legacy {
		reason := "Bad policy name"
		if c.hook == 0 {
			reason = "Bad built-in chain name"
		}
		te = &toolError{1, r.program() + " " + r.version() + ": Can't set policy `" + cmd.arg + "' on `" + cmd.chain +
			"' line " + itoa(cmd.line) + ": " + reason + "\n"}
	}
	return te
}

func (t *simTable) setPolicy(r *simRun, cmd *simCmd, c *simChain) *toolError {
	switch {
	case c == nil || c.hook == 0:
		return r.failed(cmd.line, "Bad built-in chain name")
	case cmd.arg != "ACCEPT" && cmd.arg != "DROP":
		return r.failed(cmd.line, "Bad policy name")
	}
	t.touch(c)
	c.policy = cmd.arg
	return nil
}

func (t *simTable) rename(r *simRun, cmd *simCmd, c *simChain) *toolError {
	switch {
	case c == nil:
		return r.failed(cmd.line, noChain)
	case t.chains[cmd.arg] != nil:
		return r.failed(cmd.line, "File exists")
	case c.hook != 0 || rules.IsVerdict(cmd.arg):
		return r.failed(cmd.line, errInval)
	}
	for from := range t.refs[c.name] {
		t.own(from)
		for i, e := range from.rules {
			if e.jump && e.target == c.name {
				t.link(from, e, -1)
				from.rules[i].simRule = e.retarget(cmd.arg)
				t.link(from, from.rules[i], 1)
			}
		}
	}
	t.undo = append(t.undo, simUndo{chain: c, name: c.name, kind: undoRename})
	delete(t.chains, c.name)
	c.name = cmd.arg
	t.chains[c.name] = c
	return nil
}

// execDelete is -X. The nft tool forgets the chain whatever the kernel will say; so do we.
func (t *simTable) execDelete(r *simRun, cmd *simCmd, c *simChain) *toolError {
	gone := []*simChain{c}
	if cmd.chain == "" {
		gone = gone[:0]
		for _, c := range t.chains {
			if c.hook == 0 {
				gone = append(gone, c)
			}
		}
		slices.SortFunc(gone, func(a, b *simChain) int { return strings.Compare(a.name, b.name) })
	}
	for _, c := range gone {
		if c == nil {
			return r.failed(cmd.line, noChain)
		}
		if c.hook != 0 || !c.empty() || len(t.refs[c.name]) > 0 {
			if r.sim.backend == Legacy {
				return r.failed(cmd.line, "")
			}
			t.refused = append(t.refused, simRefusal{cmd.line, "", "CHAIN_DEL failed (" + errBusy + "): chain " + c.name})
		}
		if c.hook == 0 {
			t.remove(c)
		}
	}
	return nil
}

// execRule executes the commands that handle single rules.
func (t *simTable) execRule(r *simRun, cmd *simCmd, c *simChain) *toolError {
	var e simEntry
	if cmd.rule != nil {
		jump, te := t.resolve(r, cmd)
		if te != nil {
			return te
		}
		e = simEntry{simRule: cmd.rule, jump: jump}
	}
	if c == nil {
		if cmd.op == 'D' {
			return r.failed(cmd.line, badRule)
		}
		return r.failed(cmd.line, noChain)
	}
	switch cmd.op {
	case 'A':
		t.insert(c, len(c.rules), e)
	case 'I':
		i := max(cmd.index, 1)
		if i > len(c.rules)+1 {
			return r.failed(cmd.line, "Index of insertion too big")
		}
		cmd.last = cmd.index > 1 && i == len(c.rules)+1
		t.insert(c, i-1, e)
	case 'R':
		if cmd.index > len(c.rules) {
			return r.failed(cmd.line, "Index of replacement too big")
		}
		if have := c.rules[cmd.index-1]; have.dead {
			t.refused = append(t.refused, refusedRule(cmd, errNoFile))
		} else if r.sim.backend == NFT && have.seq == t.seq {
			t.crash = true
		}
		t.delete(c, cmd.index-1)
		t.insert(c, cmd.index-1, e)
	case 'D':
		i := slices.IndexFunc(c.rules, func(have simEntry) bool { return have.text == e.text && have.jump == e.jump })
		if i < 0 {
			return r.failed(cmd.line, badRule)
		}
		t.drop(cmd, c, i)
		return nil
	case 'd':
		if cmd.index > len(c.rules) {
			return r.failed(cmd.line, "Index of deletion too big")
		}
		t.drop(cmd, c, cmd.index-1)
		return nil
	}
	if r.sim.backend == NFT {
		t.askKernel(cmd, c)
	}
	return nil
}

// drop deletes rule i of c. The tool may take it for there when the kernel has it no more.
func (t *simTable) drop(cmd *simCmd, c *simChain, i int) {
	if c.rules[i].dead {
		t.refused = append(t.refused, refusedRule(cmd, errNoFile))
	}
	t.delete(c, i)
}

// resolve tells whether the rule jumps to a chain, and refuses one that is not there.
func (t *simTable) resolve(r *simRun, cmd *simCmd) (jump bool, te *toolError) {
	sr := cmd.rule
	if sr.target == "" || !sr.isGoto && rules.IsVerdict(sr.target) {
		return false, nil
	}
	to := t.chains[sr.target]
	switch {
	case to != nil && to.hook == 0:
		return true, nil
	case to != nil && r.sim.backend == Legacy:
		return false, r.failed(cmd.line, "")
	case to != nil, !sr.isGoto && hasTarget(r.v, sr.target):
		return false, nil
	}
	// The legacy tool has said so when it read the line.
	return false, r.parse("Chain '" + sr.target + "' does not exist")
}
