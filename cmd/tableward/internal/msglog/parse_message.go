// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"errors"
	"strconv"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// draft is a message while its line is read.
type draft struct {
	Message
	bodies  int
	refused *transaction.Error // the first text that is no rule
}

// messageLine reads a line that is a message.
func (p *parser) messageLine(n *node) {
	d := &draft{}
	d.Table.IPVersion = rules.IPv4
	e := Entry{line: p.line, column: n.at + 1, At: -1, Message: &d.Message}
	fields := map[string]func(*node){
		"at":       func(n *node) { e.At = p.at(n) },
		"id":       func(n *node) { d.ID = p.id(n) },
		"owner":    func(n *node) { d.Owner = p.str(n) },
		"priority": func(n *node) { d.Priority = p.integer(n) },
		"ip":       func(n *node) { d.Table.IPVersion = p.ip(n) },
		"table":    func(n *node) { d.Table.Name = p.table(n) },
	}
	for name, read := range bodies {
		fields[name] = func(n *node) { d.bodies++; d.Body = read(p, d, n) }
	}
	p.object(n, fields)
	p.needAt(n, e.At >= 0)
	p.complete(n, d)
	p.log.Entries = append(p.log.Entries, e)
}

// complete judges a message as a whole.
func (p *parser) complete(n *node, d *draft) {
	_, everywhere := d.Body.(transaction.InSync)
	switch {
	case d.ID == "":
		p.fail(n.at, "a message needs an id")
	case d.bodies != 1:
		p.fail(n.at, "a message is one of rewrite, delete, insert, remove, policy, stub, handover, refresh, insync, endgrace, cleanup; this one is "+
			strconv.Itoa(d.bodies)+" of them")
	case everywhere && d.Table.Name != "":
		p.fail(n.get("table").at, "insync is said to all tables, so it names none")
	case !everywhere && d.Table.Name == "":
		p.fail(n.at, "the table is not named")
	}
	if e := d.refused; e != nil {
		e.Table, e.ID, e.Owner = d.Table, d.ID, d.Owner
		d.Refused = e
	}
}

func (p *parser) id(n *node) string {
	id := p.str(n)
	if p.ids[id] {
		p.fail(n.at, "id "+strconv.Quote(id)+" is given twice")
	}
	p.ids[id] = true
	return id
}

// bodies has what reads each kind of message.
var bodies = map[string]func(p *parser, d *draft, n *node) transaction.Body{
	"rewrite": (*parser).rewrite,
	"delete": func(p *parser, _ *draft, n *node) transaction.Body {
		return transaction.DeleteChains{Chains: p.strs(n)}
	},
	"handover": (*parser).handOver,
	"insert":   (*parser).insert,
	"remove":   (*parser).remove,
	"policy":   (*parser).policy,
	"stub":     (*parser).stub,
	"refresh": func(p *parser, _ *draft, n *node) transaction.Body {
		p.yes(n)
		return transaction.Refresh{}
	},
	"insync": func(p *parser, _ *draft, n *node) transaction.Body {
		p.yes(n)
		return transaction.InSync{}
	},
	"endgrace": func(p *parser, _ *draft, n *node) transaction.Body {
		p.yes(n)
		return transaction.EndGrace{}
	},
	"cleanup": func(p *parser, _ *draft, n *node) transaction.Body {
		p.yes(n)
		return transaction.Cleanup{}
	},
}

func (p *parser) rewrite(d *draft, n *node) transaction.Body {
	var b transaction.RewriteChains
	p.members(n, func(m member) {
		b.Chains = append(b.Chains, rules.Chain{Name: m.key, Rules: p.rules(d, m.key, m.val)})
	})
	if len(b.Chains) == 0 {
		p.fail(n.at, "no chain is named")
	}
	return b
}

func (p *parser) stub(d *draft, n *node) transaction.Body {
	var b transaction.OverrideStub
	count := 0
	p.members(n, func(m member) {
		count++
		b.Chain = m.key
		if b.Remove = m.val.val == nil; !b.Remove {
			b.Rules = p.rules(d, m.key, m.val)
		}
	})
	if count != 1 {
		p.fail(n.at, "one chain is wanted here")
	}
	return b
}

func (p *parser) insert(d *draft, n *node) transaction.Body {
	var chain, rule string
	e := transaction.Edit{Op: transaction.InsertTop}
	places := 0
	p.object(n, map[string]func(*node){
		"chain": func(n *node) { chain = p.str(n) },
		"rule":  func(n *node) { rule = p.str(n) },
		"at": func(n *node) {
			places++
			e.Op = map[string]transaction.Op{
				"top": transaction.InsertTop, "near": transaction.InsertNear, "bottom": transaction.InsertBottom,
			}[p.word(n, "top", "near", "bottom")]
		},
		"before": func(n *node) { places, e.Op, e.Anchor = places+1, transaction.InsertBefore, p.anchor(n) },
		"after":  func(n *node) { places, e.Op, e.Anchor = places+1, transaction.InsertAfter, p.anchor(n) },
	})
	if places > 1 {
		p.fail(n.at, "a rule has one place: at, before or after")
	}
	e.Rule = d.rule(chain, rule)
	return transaction.EditRules{Chain: p.chain(n, chain), Edits: []transaction.Edit{e}}
}

// anchor reads {"chain":"NAME"} or {"comment":"TEXT"}. Whether it makes sense is the message's
// affair.
func (p *parser) anchor(n *node) transaction.Anchor {
	var a transaction.Anchor
	given := 0
	p.object(n, map[string]func(*node){
		"chain":   func(n *node) { given, a = given+1, transaction.JumpTo(p.str(n)) },
		"comment": func(n *node) { given, a = given+1, transaction.Commented(p.str(n)) },
	})
	if given != 1 {
		p.fail(n.at, "an anchor is the chain that a rule jumps to or the comment of a rule")
	}
	return a
}

func (p *parser) remove(d *draft, n *node) transaction.Body {
	var chain, rule string
	keep := false
	p.object(n, map[string]func(*node){
		"chain": func(n *node) { chain = p.str(n) },
		"rule":  func(n *node) { rule = p.str(n) },
		"keep":  func(n *node) { keep = p.boolean(n) },
	})
	return transaction.RemoveRule(p.chain(n, chain), d.rule(chain, rule), keep)
}

func (p *parser) policy(_ *draft, n *node) transaction.Body {
	var b transaction.SetPolicy
	p.object(n, map[string]func(*node){
		"chain":  func(n *node) { b.Chain = p.str(n) },
		"target": func(n *node) { b.Policy = p.str(n) },
	})
	b.Chain = p.chain(n, b.Chain)
	return b
}

func (p *parser) handOver(_ *draft, n *node) transaction.Body {
	var b transaction.HandOver
	p.object(n, map[string]func(*node){
		"chains": func(n *node) { b.Chains = p.strs(n) },
		"to":     func(n *node) { b.To = p.str(n) },
	})
	if len(b.Chains) == 0 {
		p.fail(n.at, "no chain is named")
	}
	return b
}

func (p *parser) chain(n *node, name string) string {
	if name == "" {
		p.fail(n.at, "the chain is not named")
	}
	return name
}

func (p *parser) rules(d *draft, chain string, n *node) []rules.Rule {
	out := []rules.Rule{}
	for _, text := range p.strs(n) {
		out = append(out, d.rule(chain, text))
	}
	return out
}

// rule reads the text of a rule. Text that is none is the message's fault, not the log's:
// the first one is what the message's answer will be about.
func (d *draft) rule(chain, text string) rules.Rule {
	r, err := rules.ParseRule(text)
	var syntax *rules.SyntaxError
	if errors.As(err, &syntax) && d.refused == nil {
		d.refused = &transaction.Error{
			Chain: chain, Rule: text, Column: syntax.Column, Reason: syntax.Reason, Err: syntax,
		}
	}
	return r
}
