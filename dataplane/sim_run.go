// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"

	"github.com/tableward/tableward/rules"
)

// simRun is one run of a restore tool: it goes through the input once, line by line, and
// ends at the first error. Legacy executes each command as it is read; nft gathers them and
// executes them at COMMIT, so its parse errors come before all others.
type simRun struct {
	sim     *Sim
	v       rules.IPVersion
	only    *simTable // the one table that may be named, or nil: any of sim
	foreign bool      // it is somebody else's

	t    *simTable // the open block's table, locked unless it is only
	line int

	last byte // the command that was executed last, see zero
}

// maxLine is how many bytes of a line, with its end, the tools read at once; the rest
// counts as the next line.
const maxLine = 10239

// answer runs the tool and says what it said.
func (r *simRun) answer(input []byte) error {
	if te := r.run(input); te != nil {
		return Classify(te.exit, te.stderr, input)
	}
	return nil
}

func (r *simRun) run(input []byte) (te *toolError) {
	defer func() {
		if r.t != nil {
			r.close()
		}
	}()
	for len(input) > 0 {
		raw := input
		if n := bytes.IndexByte(input, '\n'); n >= 0 {
			raw = input[:n+1]
		}
		raw = raw[:min(len(raw), maxLine)]
		input = input[len(raw):]
		r.line++
		if te := r.one(raw); te != nil {
			return te
		}
	}
	if r.t != nil {
		return r.plain(1, "COMMIT expected at line "+itoa(r.line+1))
	}
	return nil
}

// one handles one line; raw has its line end, unless it is the last or was cut.
func (r *simRun) one(raw []byte) *toolError {
	nl := raw[len(raw)-1] == '\n'
	text := raw
	if nl {
		text = raw[:len(raw)-1]
	}
	switch {
	case len(text) == 0, text[0] == '#':
		return nil
	case r.t != nil && string(text) == "COMMIT":
		// Without a line end the legacy tool would not take it; but Kernel adds what is missing.
		te := r.t.commit(r)
		r.close()
		return te
	case text[0] == '*' && r.t == nil:
		return r.open(text[1:])
	case r.t == nil:
		return r.failed(r.line, "")
	case text[0] == ':':
		return r.declare(text[1:])
	}
	return r.command(text, nl)
}

// close ends the block; without a commit before it nothing of it stays.
func (r *simRun) close() {
	t := r.t
	r.t = nil
	t.rollback()
	if r.only == nil {
		t.mu.Unlock()
	}
}

func (r *simRun) open(text []byte) *toolError {
	name := string(field(&text))
	if name == "" {
		return r.parse(r.program() + ": line " + itoa(r.line) + " table name invalid")
	}
	if !rules.IsTable(name) {
		if r.sim.backend == Legacy {
			return r.parse(r.program() + ": unable to initialize table '" + name + "'")
		}
		return r.parse(r.program() + ": line " + itoa(r.line) + " table name '" + name + "' invalid")
	}
	t := r.only
	switch {
	case t == nil:
		t = r.sim.table(rules.TableID{IPVersion: r.v, Name: name})
		t.mu.Lock()
	case t.id.Name != name:
		return r.parse(r.program() + ": line " + itoa(r.line) + " table name '" + name + "' invalid")
	}
	t.begin()
	if r.foreign {
		t.foreign++
	}
	r.t = t
	return nil
}

// declare handles ":chain policy [packets:bytes]", after the colon.
func (r *simRun) declare(text []byte) *toolError {
	t, legacy := r.t, r.sim.backend == Legacy
	name := field(&text)
	if len(name) == 0 {
		return r.parse(r.program() + ": line " + itoa(r.line) + " chain name invalid")
	}
	if legacy && len(name) > maxChainName {
		return r.parse("Invalid chain name `" + string(name) + "' (28 chars max)")
	}
	c := t.chains[string(name)]
	if legacy && c == nil && rules.IsVerdict(string(name)) {
		return r.parse("error creating chain '" + string(name) + "':File exists")
	}
	policy := field(&text)
	if len(policy) == 0 {
		return r.parse(r.program() + ": line " + itoa(r.line) + " policy invalid")
	}
	cmd := simCmd{op: ':', line: r.line}
	if c == nil {
		cmd.chain = string(name)
	} else {
		cmd.chain = c.name
	}
	if string(policy) != "-" {
		cmd.arg = string(policy)
	}
	if legacy {
		return t.exec(r, &cmd)
	}
	if c == nil || c.hook == 0 {
		if te := r.nameNFT(cmd.chain); te != nil {
			return te
		}
	}
	t.cmds = append(t.cmds, cmd)
	return nil
}

// nameNFT is what the nft tools ask of a new chain's name; the legacy ones ask it of -N
// and of every command, but not of a declaration.
func (r *simRun) nameNFT(name string) *toolError {
	switch {
	case name != "" && (name[0] == '-' || name[0] == '!'):
		return r.parse("chain name not allowed to start with `" + name[:1] + "'")
	case len(name) > maxChainName:
		return r.parse("chain name `" + name + "' too long (must be under 29 chars)")
	case rules.IsVerdict(name):
		return r.parse("chain name may not clash with target name")
	}
	return nil
}

// command handles any other line of a block: [counters] -A chain rule, and the like.
func (r *simRun) command(text []byte, nl bool) *toolError {
	if text[0] == '[' {
		rest, ok := skipCounters(text)
		if !ok {
			return r.parse("Bad line " + itoa(r.line) + ": need ]")
		}
		text = rest
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	// The plain case, "-A chain rule", is worth a way of its own: a rule seen before is not
	// taken apart again.
	if len(text) > 3 && string(text[:3]) == "-A " && nl {
		rest := text[3:]
		i := bytes.IndexByte(rest, ' ')
		if i > 0 && plainName(rest[:i]) {
			name, rest := rest[:i], rest[i+1:]
			sr := r.t.ruleOf(rest)
			if sr.commands || sr.words > maxWords-2 {
				return r.slow(text)
			}
			return r.queue('A', 0, name, nil, sr)
		}
	}
	return r.slow(text)
}

// queue checks a command and puts it, once for each rule that it stands for.
func (r *simRun) queue(op byte, index int, chain []byte, arg []byte, sr *simRule) *toolError {
	t := r.t
	c := t.chains[string(chain)]
	cmd := simCmd{op: op, line: r.line, index: index, rule: sr, arg: string(arg)}
	if c != nil {
		cmd.chain = c.name
	} else {
		cmd.chain = string(chain)
	}
	if sr != nil {
		if sr.nothing && sr.err == nil {
			if op == 'R' {
				return &toolError{139, ""} // it looks at what it has not read
			}
			return nil
		}
		if te := r.checkRule(op, cmd.chain, sr); te != nil {
			return te
		}
	}
	switch {
	case sr == nil || sr.more == nil:
		return r.put(cmd)
	case op == 'R':
		return r.parse("Replacement rule does not specify a unique address")
	}
	// The tools do with one after the other, each time with the same index.
	for _, cmd.rule = range append([]*simRule{sr}, sr.more...) {
		if te := r.put(cmd); te != nil {
			return te
		}
	}
	return nil
}

// put executes a command (legacy) or keeps it for COMMIT (nft).
func (r *simRun) put(cmd simCmd) *toolError {
	if r.sim.backend == Legacy {
		return r.t.exec(r, &cmd)
	}
	r.t.cmds = append(r.t.cmds, cmd)
	return nil
}

// checkRule is what the tools find wrong with a rule while they read it.
func (r *simRun) checkRule(op byte, chain string, sr *simRule) *toolError {
	if sr.err != nil {
		return r.bad(sr.err)
	}
	for _, set := range sr.sets {
		if !r.sim.hasSet(r.v, set) {
			return r.parse("Set " + set + " doesn't exist.\n")
		}
	}
	switch {
	case op == 'D' && sr.counted:
		return r.parse("Illegal option `-c' with this command")
	case len(chain) > maxChainName:
		return r.parse("chain name `" + chain + "' too long (must be under 29 chars)")
	case sr.in && (chain == "OUTPUT" || chain == "POSTROUTING"):
		return r.parse("Can't use -i with " + chain + "\n")
	case sr.out && (chain == "INPUT" || chain == "PREROUTING"):
		return r.parse("Can't use -o with " + chain + "\n")
	}
	if r.sim.backend == Legacy && sr.target != "" && !rules.IsVerdict(sr.target) && r.t.chains[sr.target] == nil {
		if sr.isGoto {
			return r.parse("goto '" + sr.target + "' is not a chain")
		}
		if !hasTarget(r.v, sr.target) {
			return r.parse("Couldn't load target `" + sr.target + "':No such file or directory\n")
		}
	}
	if r.sim.backend == Legacy && sr.isGoto && rules.IsVerdict(sr.target) {
		return r.parse("goto '" + sr.target + "' is not a chain")
	}
	return nil
}
