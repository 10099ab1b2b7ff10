// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"strings"
)

// simRefusal is what the nf_tables kernel says about one line.
type simRefusal struct {
	line  int
	chain string // of the rule, "" if it is not about one
	text  string
}

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
	t.counts = slices.ContainsFunc(t.cmds, simCmd.isCounting)
	for i := range t.cmds {
		if te := t.exec(r, &t.cmds[i]); te != nil {
			return te
		}
	}
	if t.crash {
		return &toolError{139, ""}
	}
	if len(t.refused) == 0 && t.check() != "" {
		t.replay(r)
	}
	if len(t.refused) > 0 {
		return r.kernel(t.refused)
	}
	t.exhume()
	if len(t.undo) > 0 && r.only == nil {
		r.sim.gen.Add(1)
	}
	t.clear()
	return nil
}

// replay finds the lines that nf_tables names when the whole table does not pass: it goes
// through the block again, validating after each rule, and names every rule after which
// the table is bad, innocent or not.
func (t *simTable) replay(r *simRun) {
	cmds, counts := slices.Clone(t.cmds), t.counts
	t.rollback()
	t.begin()
	t.counts = counts
	flushed := flushedLater(cmds)
	var refused []simRefusal
	for i := range cmds {
		cmd := &cmds[i]
		if flushed[i] {
			continue
		}
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

// flushedLater marks the commands that the nft tool takes back, because a later -F empties
// their chain.
func flushedLater(cmds []simCmd) []bool {
	gone := make([]bool, len(cmds))
	chains := make(map[string]bool)
	for i, c := range slices.Backward(cmds) {
		switch c.op {
		case 'F':
			chains[c.chain] = true
		case 'A', 'I', 'R', 'D', 'd':
			gone[i] = chains[c.chain] || chains[""]
		}
	}
	return gone
}

func refusedRule(cmd *simCmd, errno string) simRefusal {
	op := "APPEND"
	switch cmd.op {
	case 'I':
		if !cmd.last {
			op = "INSERT"
		}
	case 'R':
		op = "REPLACE"
	case 'D', 'd':
		op = "DELETE"
	}
	return simRefusal{cmd.line, cmd.chain, "RULE_" + op + " failed (" + errno + "): rule in chain " + cmd.chain}
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
