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
}

// simRefusal is what the nf_tables kernel says about one line.
type simRefusal struct {
	line int
	text string
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

// commit ends the block that r reads: executes what nft has gathered, asks the kernel, and
// keeps the result if nobody objects.
func (t *simTable) commit(r *simRun) *toolError {
	if r.sim.backend == Legacy {
		if t.check() != "" {
			return r.failed(r.line, "")
		}
		t.clear()
		return nil
	}
	for i := range t.cmds {
		if te := t.exec(r, &t.cmds[i]); te != nil {
			return te
		}
	}
	if len(t.refused) == 0 && t.check() != "" {
		t.replay(r)
	}
	if len(t.refused) > 0 {
		return r.kernel(t.refused)
	}
	if len(t.undo) > 0 {
		r.sim.gen.Add(1)
	}
	t.clear()
	return nil
}

// replay finds the lines that nf_tables names when the whole table does not pass: it goes
// through the block again, validating after each rule, and names every rule after which
// the table is bad, innocent or not.
func (t *simTable) replay(r *simRun) {
	cmds := slices.Clone(t.cmds)
	t.rollback()
	t.begin()
	var refused []simRefusal
	for i := range cmds {
		cmd := &cmds[i]
		t.exec(r, cmd)
		if cmd.op != 'A' && cmd.op != 'I' && cmd.op != 'R' {
			continue
		}
		if errno := t.check(); errno != "" {
			refused = append(refused, refusedRule(cmd, errno))
		}
	}
	t.refused = refused
}

func refusedRule(cmd *simCmd, errno string) simRefusal {
	op := "APPEND"
	switch cmd.op {
	case 'I':
		op = "INSERT"
	case 'R':
		op = "REPLACE"
	}
	return simRefusal{cmd.line, "RULE_" + op + " failed (" + errno + "): rule in chain " + cmd.chain}
}

// kernel is the form in which nft reports what the kernel refused, cut at about 1 KiB.
func (r *simRun) kernel(refused []simRefusal) *toolError {
	var b strings.Builder
	b.WriteString(r.program() + " " + r.version() + ": \n")
	for i, f := range refused {
		if i > 0 && b.Len() > 1000 {
			break
		}
		b.WriteString("line " + itoa(f.line) + ": " + f.text + "\n")
	}
	return &toolError{4, b.String()}
}

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
	case 'F', 'Z':
		switch {
		case cmd.chain != "" && c == nil:
			return r.failed(cmd.line, noChain)
		case cmd.op == 'Z':
		case c != nil:
			t.flush(c)
		default:
			for _, c := range t.chains {
				t.flush(c)
			}
		}
	}
	return nil
}

func (t *simTable) declare(r *simRun, cmd *simCmd, c *simChain) *toolError {
	if c == nil {
		c = t.create(cmd.chain)
	} else if c.hook == 0 {
		t.flush(c)
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
		if c.hook != 0 || len(c.rules) > 0 || len(t.refs[c.name]) > 0 {
			if r.sim.backend == Legacy {
				return r.failed(cmd.line, "")
			}
			t.refused = append(t.refused, simRefusal{cmd.line, "CHAIN_DEL failed (" + errBusy + "): chain " + c.name})
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
		t.insert(c, i-1, e)
	case 'R':
		if cmd.index > len(c.rules) {
			return r.failed(cmd.line, "Index of replacement too big")
		}
		if r.sim.backend == NFT && c.rules[cmd.index-1].seq == t.seq {
			return &toolError{139, ""} // the tool crashes
		}
		t.delete(c, cmd.index-1)
		t.insert(c, cmd.index-1, e)
	case 'D':
		i := slices.IndexFunc(c.rules, func(have simEntry) bool { return have.text == e.text && have.jump == e.jump })
		if i < 0 {
			return r.failed(cmd.line, badRule)
		}
		t.delete(c, i)
		return nil
	case 'd':
		if cmd.index > len(c.rules) {
			return r.failed(cmd.line, "Index of deletion too big")
		}
		t.delete(c, cmd.index-1)
		return nil
	}
	if r.sim.backend == NFT {
		t.askKernel(cmd, c)
	}
	return nil
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
	case to != nil, !sr.isGoto && rules.IsExtension(sr.target):
		return false, nil
	}
	// The legacy tool has said so when it read the line.
	return false, r.parse("Chain '" + sr.target + "' does not exist")
}

// askKernel notes what nf_tables refuses about a rule by itself.
func (t *simTable) askKernel(cmd *simCmd, c *simChain) {
	sr, errno := cmd.rule, ""
	to := t.chains[sr.target]
	switch {
	case sr.wrongTable, c.hook&sr.forbid != 0:
		errno = errInval
	case sr.target == "QUEUE" && !sr.isGoto, to != nil && to.hook != 0:
		errno = errNoFile
	}
	if errno != "" {
		t.refused = append(t.refused, refusedRule(cmd, errno))
	}
}
