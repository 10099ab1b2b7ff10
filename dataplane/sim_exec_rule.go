// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"

	"github.com/tableward/tableward/rules"
)

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
	if c == nil || !c.real && (cmd.op == 'd' || cmd.op == 'R') {
		if cmd.op == 'D' {
			return r.failed(cmd.line, badRule)
		}
		return r.failed(cmd.line, noChain)
	}
	switch cmd.op {
	case 'A':
		t.realize(c)
		t.insert(c, len(c.rules), e)
	case 'I':
		i := max(cmd.index, 1)
		if i > len(c.rules)+1 {
			return r.failed(cmd.line, "Index of insertion too big")
		}
		t.realize(c)
		cmd.last = cmd.index > 1 && i == len(c.rules)+1
		t.insert(c, i-1, e)
	case 'R':
		if cmd.index > len(c.rules) {
			return r.failed(cmd.line, "Index of replacement too big")
		}
		if have := c.rules[cmd.index-1]; have.dead && t.kernelSays(cmd.rule, c) == "" {
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
