// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// declare reads ":chain POLICY".
func (b *builder) declare(t *table, block int, l rules.Line) *rules.SyntaxError {
	if rules.IsBuiltin(t.id.Name, l.Chain) {
		b.policy(t, l)
		return nil
	}
	if l.Policy != "-" {
		return fail(l, policyColumn(l), "policy %s of chain %s: only a built-in chain has one, write \":%s - [0:0]\"", l.Policy, l.Chain, l.Chain)
	}
	c := t.chains[l.Chain]
	switch {
	case c.draft == nil:
		c.draft = b.add(t, l, nil)
	case c.block != block || len(c.draft.Rules) > 0:
		// The tool would flush the chain here, and what stands above would be lost.
		return fail(l, l.Column, "chain %s is declared a second time: line %d declares it", l.Chain, c.first.Number)
	}
	c.mayBeEmpty = true
	return nil
}

// policy reads the policy of a built-in chain.
func (b *builder) policy(t *table, l rules.Line) {
	switch {
	case l.Policy == "-":
	case b.opts.Policies:
		b.add(t, l, transaction.SetPolicy{Chain: l.Chain, Policy: l.Policy})
	default:
		b.file.PoliciesIgnored = true
	}
}

func (b *builder) newChain(t *table, l rules.Line) *rules.SyntaxError {
	if rules.IsBuiltin(t.id.Name, l.Chain) {
		return fail(l, l.Column, "chain %s is built in: it cannot be made", l.Chain)
	}
	c := t.chains[l.Chain]
	if c.draft != nil {
		return fail(l, l.Column, "chain %s is declared a second time: line %d declares it", l.Chain, c.first.Number)
	}
	c.draft = b.add(t, l, nil)
	return nil
}

// ruleLine reads -A, -I and -D.
func (b *builder) ruleLine(t *table, l rules.Line) *rules.SyntaxError {
	if l.Command == rules.Insert && l.Index > 1 {
		return fail(l, wordColumn(l, 2), "-I %s %d: a place among rules of others is not kept; leave the number out for the top, or name the rule to stand by: \"# place: before chain NAME\" above an -A", l.Chain, l.Index)
	}
	if err := b.declaredAbove(t, l, l.Chain, l.Column); err != nil {
		return err
	}
	target := l.Rule.Jump()
	if err := b.declaredAbove(t, l, target, TargetColumn(l)); err != nil {
		return err
	}
	c := t.chains[l.Chain]
	if c == nil || l.Command == rules.Delete {
		b.kernelLine(t, l, target)
		return nil
	}
	c.draft.Rules = append(c.draft.Rules, l)
	if l.Command == rules.Insert {
		c.draft.rules = slices.Insert(c.draft.rules, 0, l.Rule)
	} else {
		c.draft.rules = append(c.draft.rules, l.Rule)
	}
	return nil
}

// declaredAbove refuses the use of a chain above its declaration.
func (b *builder) declaredAbove(t *table, l rules.Line, chain string, column int) *rules.SyntaxError {
	c := t.chains[chain]
	if c == nil || c.draft != nil {
		return nil
	}
	return fail(l, column, "chain %s is used above its declaration in line %d", chain, c.first.Number)
}

// kernelLine adds a rule of a kernel chain to the run of such lines.
func (b *builder) kernelLine(t *table, l rules.Line, target string) {
	at := place{l.Chain, l.Rule.String()}
	edit := transaction.Edit{Op: transaction.InsertBottom, Rule: l.Rule}
	switch l.Command {
	case rules.Insert:
		edit.Op = transaction.InsertFirst
	case rules.Delete:
		edit.Op = transaction.Ban
	default:
		if d := b.placeFor(l); d != nil {
			edit.Op, edit.Anchor = d.op, d.anchor
		}
	}
	if l.Command != rules.Delete && !b.keepOnce(t, l, at) {
		return
	}
	if b.run == nil || b.run.chain != l.Chain {
		b.run = b.add(t, l, nil)
	}
	b.run.edits = append(b.run.edits, edit)
	b.run.Rules = append(b.run.Rules, l)
	if l.Command == rules.Delete {
		delete(t.listed, at)
		return
	}
	t.listed[at] = b.run
	if target != "" && t.chains[target] == nil {
		b.file.Hooks = append(b.file.Hooks, Hook{Table: t.id, Target: target, Line: l, Column: TargetColumn(l)})
	}
}

// keepOnce tells whether a rule that a kernel chain may already list is listed by this line.
// Of two copies the one that the tool would leave nearer to the top is kept, since it is the
// one that decides: a later -I wins, a later -A does not.
func (b *builder) keepOnce(t *table, l rules.Line, at place) bool {
	earlier := t.listed[at]
	if earlier == nil {
		return true
	}
	i := len(earlier.Rules) - 1
	for earlier.Rules[i].Command == rules.Delete || earlier.Rules[i].Rule.String() != at.rule {
		i--
	}
	b.file.Findings = append(b.file.Findings, Finding{l, l.RuleColumn,
		fmt.Sprintf("this rule of chain %s stands in line %d too: it is kept once", l.Chain, earlier.Rules[i].Number)})
	if l.Command == rules.Append {
		return false
	}
	earlier.Rules = slices.Delete(earlier.Rules, i, i+1)
	if earlier.edits = slices.Delete(earlier.edits, i, i+1); len(earlier.edits) == 0 {
		earlier.edits = nil
	}
	return true
}

func (b *builder) deleteChain(t *table, l rules.Line) *rules.SyntaxError {
	if l.Chain == "" {
		return fail(l, wordColumn(l, 0), "-X without a chain would delete every chain: name the chains")
	}
	if err := b.declaredAbove(t, l, l.Chain, l.Column); err != nil {
		return err
	}
	b.add(t, l, transaction.DeleteChains{Chains: []string{l.Chain}})
	return nil
}

// flush reads -F, which says nothing where the chain is declared and empty still.
func (b *builder) flush(t *table, l rules.Line) *rules.SyntaxError {
	if l.Chain == "" {
		return fail(l, wordColumn(l, 0), "-F without a chain would flush the rules of others")
	}
	if err := b.declaredAbove(t, l, l.Chain, l.Column); err != nil {
		return err
	}
	switch c := t.chains[l.Chain]; {
	case c == nil:
		return fail(l, l.Column, "-F %s: the file does not declare this chain, so its rules are those of others", l.Chain)
	case len(c.draft.Rules) > 0:
		return fail(l, l.Column, "-F %s below a rule of the chain: take the rules above out", l.Chain)
	}
	return nil
}

// refuseCommand is for what would act on the table as it happens to be.
func refuseCommand(l rules.Line) *rules.SyntaxError {
	command, advice := "", ""
	switch l.Command {
	case rules.Policy:
		command, advice = "-P", "write \":"+l.Chain+" "+l.Policy+" [0:0]\" and use --policies"
	case rules.Replace:
		command, advice = "-R", "declare the chain and write all its rules"
	case rules.Rename:
		command, advice = "-E", "declare the chain under its new name and delete the old one with -X"
	case rules.Zero:
		command, advice = "-Z", "a file says rules, counters are left alone"
	default:
		command, advice = "-D with a number", "write the rule"
	}
	return fail(l, wordColumn(l, 0), "%s is refused in a rules file: %s", command, advice)
}

// TargetColumn returns the column of the word that a rule's line jumps to.
func TargetColumn(l rules.Line) int {
	words, _ := rules.SplitWords(l.Text)
	for i, w := range words {
		if w.Column < l.RuleColumn {
			continue
		}
		option, attached := strings.CutSuffix(w.Text, l.Rule.Target())
		if attached && (isJump(option) || option == "" && i > 0 && isJump(words[i-1].Text)) {
			return w.Column + len(option)
		}
	}
	return l.RuleColumn
}

// isJump tells whether a word is -j or -g in one of their forms, with "--jump=" for a target
// in the same word.
func isJump(word string) bool {
	word = strings.TrimSuffix(word, "=")
	return word == "-j" || word == "-g" ||
		len(word) > 2 && (strings.HasPrefix("--jump", word) || strings.HasPrefix("--goto", word))
}

// wordColumn returns the column of word i of a line, counters not counted.
func wordColumn(l rules.Line, i int) int {
	words, _ := rules.SplitWords(l.Text)
	if len(words) == 0 {
		return 1
	}
	if end := strings.IndexByte(words[0].Text, ']') + 1; end > 0 && end < len(words[0].Text) {
		words[0].Column += end // "[1:2]-A"
	} else if end > 0 {
		words = words[1:]
	}
	return words[min(i, len(words)-1)].Column
}

// policyColumn returns the column of the policy of a declaration, which is cut at blanks.
func policyColumn(l rules.Line) int {
	rest := l.Text[l.Column-1+len(l.Chain):]
	return l.Column + len(l.Chain) + len(rest) - len(strings.TrimLeft(rest, " \t"))
}
