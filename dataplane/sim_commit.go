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
	if len(t.refused) > 0 && slices.ContainsFunc(t.cmds, simCmd.isFlush) {
		t.again(r, nil)
	}
	if len(t.refused) == 0 && t.check() != "" {
		var refused []simRefusal
		t.again(r, func(cmd *simCmd) {
			if errno := t.check(); errno != "" {
				refused = append(refused, refusedRule(cmd, t.errno(errno)))
			}
		})
		t.refused = refused
	}
	if len(t.refused) > 0 {
		return r.kernel(t.refused)
	}
	t.exhume()
	for _, re := range t.renames {
		if t.chains[re.chain.name] == re.chain {
			t.renameNow(re.chain, re.to)
		}
	}
	if len(t.undo) > 0 && r.only == nil {
		r.sim.gen.Add(1)
	}
	t.clear()
	return nil
}

// again goes through the block once more, as the kernel sees it: without what a later -F
// took back. It calls each after each rule that was written.
//
// The lines that nf_tables names when the whole table does not pass are found that way: the
// kernel validates after each rule, and names every one after which the table is bad,
// innocent or not.
func (t *simTable) again(r *simRun, each func(*simCmd)) {
	cmds, counts := slices.Clone(t.cmds), t.counts
	t.rollback()
	t.begin()
	t.counts = counts
	flushed := flushedLater(cmds)
	for i := range cmds {
		cmd := &cmds[i]
		if flushed[i] {
			continue
		}
		t.exec(r, cmd)
		if each != nil && (cmd.op == 'A' || cmd.op == 'I' || cmd.op == 'R') {
			each(cmd)
		}
	}
	t.cmds = append(t.cmds, cmds...)
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
	if errno := t.kernelSays(cmd.rule, c); errno != "" {
		t.refused = append(t.refused, refusedRule(cmd, errno))
	}
}

func (t *simTable) kernelSays(sr *simRule, c *simChain) string {
	to := t.chains[sr.target]
	switch {
	case sr.errno != "":
		return sr.errno
	case c.hook&(sr.forbid|sr.here) != 0:
		return errInval
	case to != nil && to.hook != 0 && to.real:
		return "Operation not supported"
	case sr.target == "QUEUE" && !sr.isGoto, to != nil && to.hook != 0:
		return errNoFile
	}
	return ""
}
