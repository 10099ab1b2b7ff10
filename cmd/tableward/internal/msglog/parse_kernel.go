// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"strings"

	"github.com/tableward/tableward/rules"
)

// kernelLine reads a line that says what happens to the kernel.
func (p *parser) kernelLine(n *node) {
	e := Entry{line: p.line, column: n.get("kernel").at + 1, At: -1}
	p.object(n, map[string]func(*node){
		"at":     func(n *node) { e.At = p.at(n) },
		"kernel": func(n *node) { e.Kernel = p.kernel(n) },
	})
	p.needAt(n, e.At >= 0)
	p.log.Entries = append(p.log.Entries, e)
}

func (p *parser) needAt(n *node, has bool) {
	if !has {
		p.fail(n.at, `the line has no "at"`)
	}
}

func (p *parser) kernel(n *node) *Kernel {
	k := &Kernel{IPVersion: rules.IPv4}
	deeds := 0
	deed := func(f func(*node)) func(*node) {
		return func(n *node) { deeds++; f(n) }
	}
	p.object(n, map[string]func(*node){
		"ip":      func(n *node) { k.IPVersion = p.ip(n) },
		"table":   func(n *node) { k.Table = p.table(n) },
		"restore": deed(func(n *node) { k.Restore = p.str(n) }),
		"holds":   deed(func(n *node) { k.Holds = p.str(n) }),
		"fail":    deed(func(n *node) { k.Fail = p.fault(n) }),
		"sets":    deed(func(n *node) { k.AddSets = p.sets(n) }),
		"nosets":  deed(func(n *node) { k.DropSets = p.sets(n) }),
	})
	if deeds != 1 {
		p.fail(n.at, "one of restore, holds, fail, sets, nosets is wanted here")
	}
	if k.Holds != "" && k.Table == "" {
		k.Table = firstTable(k.Holds)
	}
	if k.Table == "" && (k.Holds != "" || k.Fail != nil) {
		p.fail(n.at, "the table is not named")
	}
	return k
}

// firstTable returns the first table that restore input or save text names, if it is one.
func firstTable(text string) string {
	for _, name := range tablesOf(text) {
		return name
	}
	return ""
}

// tablesOf returns the tables that restore input names.
func tablesOf(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "*"); ok && rules.IsTable(name) {
			out = append(out, name)
		}
	}
	return out
}

func (p *parser) fault(n *node) *Fault {
	f := &Fault{Times: 1}
	ways := 0
	way := func(take func(*node)) func(*node) {
		return func(n *node) { ways++; take(n) }
	}
	p.object(n, map[string]func(*node){
		"on":     func(n *node) { f.On = p.word(n, "modify", "delete", "read", "any") },
		"times":  func(n *node) { f.Times = p.integer(n) },
		"stderr": func(n *node) { f.Stderr = p.str(n) },
		"exit":   way(func(n *node) { f.Exit = p.integer(n) }),
		"hang":   way(func(n *node) { f.Hang = p.yes(n) }),
		"killed": way(func(n *node) { f.Killed = p.yes(n) }),
		"spawn":  way(func(n *node) { f.Spawn = p.word(n, "ENOMEM", "EAGAIN", "ENOENT", "EACCES") }),
	})
	switch {
	case f.On == "":
		p.fail(n.at, `the fault does not say "on" what: modify, delete, read or any`)
	case ways != 1:
		p.fail(n.at, "one of exit, hang, killed, spawn is wanted here")
	case f.Times < 1:
		p.fail(n.at, "times is at least 1")
	case f.Exit == 0 && !f.Hang && !f.Killed && f.Spawn == "":
		p.fail(n.at, "exit status 0 is no fault")
	}
	return f
}
