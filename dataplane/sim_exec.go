// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"

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
	case 'D', 'd', 'R', 'Z':
		return true
	case 'X':
		return c.chain == ""
	}
	return c.op == 'I' && c.index > 1
}

func (c simCmd) isFlush() bool { return c.op == 'F' }

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
	switch {
	case cmd.op == ':' && c != nil && c.hook != 0:
		r.last = 'P'
	case cmd.op != ':' && cmd.op != 'Z':
		r.last = cmd.op
	}
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
			t.realize(c)
			t.execFlush(c)
			return nil
		}
		for _, c := range t.chains {
			t.execFlush(c)
		}
	case 'Z':
		return t.zero(r, cmd, c)
	}
	return nil
}

// zero is -Z. We have no counters; but nft writes them with the policy that it has read.
func (t *simTable) zero(r *simRun, cmd *simCmd, c *simChain) *toolError {
	if cmd.chain != "" && (c == nil || !c.real) {
		switch r.last { // nft finds its words by what it did before
		case 'P':
			return r.failed(cmd.line, "Bad built-in chain name")
		case 'D':
			return r.failed(cmd.line, badRule)
		}
		return r.failed(cmd.line, noChain)
	}
	if r.sim.backend == Legacy {
		return nil
	}
	for _, z := range t.chains {
		if z.hook != 0 && z.touched == t.seq && (c == nil || c == z) {
			z.policy = t.policyBefore(z)
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
		c.created = t.seq
	}
	t.realize(c)
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
	case cmd.arg != "ACCEPT" && cmd.arg != "DROP":
		return r.failed(cmd.line, "Bad policy name")
	case c == nil || c.hook == 0:
		return r.failed(cmd.line, "Bad built-in chain name")
	}
	t.realize(c)
	t.touch(c)
	c.policy = cmd.arg
	return nil
}

func (t *simTable) rename(r *simRun, cmd *simCmd, c *simChain) *toolError {
	legacy := r.sim.backend == Legacy
	switch {
	case t.chains[cmd.arg] != nil, legacy && rules.IsVerdict(cmd.arg):
		return r.failed(cmd.line, "File exists")
	case c == nil:
		return r.failed(cmd.line, noChain)
	case c.hook != 0:
		// The nft tool would rename the base chain. Nothing of ours may ask for that.
		return r.failed(cmd.line, errInval)
	case legacy:
		t.renameNow(c, cmd.arg)
		return nil
	}
	// The nft tool knows the chain by its old name up to COMMIT, and so does the kernel.
	errno := ""
	switch {
	case c.created == t.seq:
		errno = errNoFile // the tool names it by a handle that it does not have yet
	case slices.ContainsFunc(t.renames, func(have simRename) bool { return have.to == cmd.arg }):
		errno = "File exists"
	}
	if errno != "" {
		t.refused = append(t.refused, simRefusal{cmd.line, "", "CHAIN_RENAME failed (" + errno + "): chain " + cmd.arg})
	}
	t.renames = append(t.renames, simRename{c, cmd.arg})
	return nil
}

func (t *simTable) renameNow(c *simChain, to string) {
	for from := range t.refs[c.name] {
		t.own(from)
		for i, e := range from.rules {
			if e.jump && e.target == c.name {
				t.link(from, e, -1)
				from.rules[i].simRule = e.retarget(to)
				t.link(from, from.rules[i], 1)
			}
		}
	}
	t.undo = append(t.undo, simUndo{chain: c, name: c.name, kind: undoRename})
	delete(t.chains, c.name)
	c.name = to
	t.chains[to] = c
}

// knowsRule tells whether the nft tool knows of a rule in c: it reads those of the kernel
// only when it has to.
func (t *simTable) knowsRule(c *simChain) bool {
	return slices.ContainsFunc(c.rules, func(e simEntry) bool { return !e.dead && (t.counts || e.seq == t.seq) })
}

// execDelete is -X. The nft tool forgets the chain whatever the kernel will say; so do we.
func (t *simTable) execDelete(r *simRun, cmd *simCmd, c *simChain) *toolError {
	gone := []*simChain{c}
	if cmd.chain == "" {
		gone = gone[:0]
		for _, c := range t.chains {
			if c.hook == 0 || r.sim.backend == NFT && c.real && c.empty() && c.policy == "ACCEPT" {
				gone = append(gone, c)
			}
		}
		slices.SortFunc(gone, func(a, b *simChain) int { return a.born - b.born })
	}
	for _, c := range gone {
		switch busy := c != nil && (!c.empty() || len(t.refs[c.name]) > 0); {
		case c == nil, !c.real:
			return r.failed(cmd.line, noChain)
		case r.sim.backend == Legacy && (busy || c.hook != 0):
			return r.failed(cmd.line, "")
		case c.hook != 0 && (c.policy != "ACCEPT" || t.knowsRule(c)):
			return r.failed(cmd.line, "Directory not empty")
		case busy:
			t.refused = append(t.refused, simRefusal{cmd.line, "", "CHAIN_DEL failed (" + errBusy + "): chain " + c.name})
		}
		if c.hook == 0 {
			t.remove(c)
		} else {
			t.touch(c)
			c.real = false
		}
	}
	return nil
}
