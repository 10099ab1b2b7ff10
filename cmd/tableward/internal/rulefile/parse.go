// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Parse reads a file. The error is an *Error.
func Parse(name string, data []byte, opts Options) (*File, error) {
	input, err := rules.ParseRestore(data)
	var syntax *rules.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, &Error{File: name, Err: syntax}
	case err != nil:
		return nil, Unreadable(name, err)
	}
	b := newBuilder(name, opts)
	if err := b.directives(data); err != nil {
		return nil, &Error{File: name, Err: err}
	}
	b.index(input)
	if err := b.build(input); err != nil {
		return nil, &Error{File: name, Err: err}
	}
	return b.finish(), nil
}

// builder turns the lines of a file into messages.
type builder struct {
	opts   Options
	file   *File
	label  string
	v      rules.IPVersion // of tables that do not say
	tables map[rules.TableID]*table
	drafts []*draft
	run    *draft // the kernel-chain lines that the next line may continue
	places map[int]*directive
}

// table is what the file says about one table, in all its blocks.
type table struct {
	id     rules.TableID
	chains map[string]*declared
	listed map[place]*draft // rules of kernel chains, to keep each once
}

// place is a rule in a kernel chain.
type place struct{ chain, rule string }

// declared is a chain that the file declares.
type declared struct {
	first      rules.Line // its first declaration
	block      int
	draft      *draft // nil until the declaration has been reached
	mayBeEmpty bool   // ":chain" said so; -N alone does not
}

// draft is a message that is being gathered.
type draft struct {
	Message
	chain string
	edits []transaction.Edit // of a kernel chain
	rules []rules.Rule       // of a declared chain
}

func newBuilder(name string, opts Options) *builder {
	b := &builder{
		opts: opts, label: opts.Label, v: rules.IPv4, tables: map[rules.TableID]*table{},
		places: map[int]*directive{},
		file:   &File{Name: name, Owner: opts.Owner},
	}
	if b.label == "" {
		b.label = filepath.Base(name)
	}
	if b.file.Owner == "" {
		b.file.Owner = OwnerOf(name)
	}
	if opts.IPv6 || isV6(name) {
		b.v = rules.IPv6
	}
	return b
}

func (b *builder) table(block rules.Block) *table {
	id := rules.TableID{IPVersion: block.IPVersion, Name: block.Table}
	if id.IPVersion == 0 {
		id.IPVersion = b.v
	}
	t := b.tables[id]
	if t == nil {
		t = &table{id: id, chains: map[string]*declared{}, listed: map[place]*draft{}}
		b.tables[id] = t
	}
	return t
}

// index notes where each chain is declared first, so that a use above it is recognised.
func (b *builder) index(input *rules.Input) {
	for i, block := range input.Blocks {
		t := b.table(block)
		for _, l := range block.Lines {
			if l.Command != rules.Declare && l.Command != rules.NewChain || rules.IsBuiltin(block.Table, l.Chain) {
				continue
			}
			if t.chains[l.Chain] == nil {
				t.chains[l.Chain] = &declared{first: l, block: i}
				b.file.Declared = append(b.file.Declared, Declaration{Table: t.id, Line: l})
			}
		}
	}
}

func (b *builder) build(input *rules.Input) *rules.SyntaxError {
	for i, block := range input.Blocks {
		t := b.table(block)
		b.run = nil
		for _, l := range block.Lines {
			if err := b.line(t, i, l); err != nil {
				return err
			}
			if !isKernelLine(t, l) {
				b.run = nil // whatever stands between ends a run
			}
		}
	}
	if err := b.checkPlaces(); err != nil {
		return err
	}
	return b.checkEmpty()
}

// isKernelLine tells whether a line is about a rule of a kernel chain.
func isKernelLine(t *table, l rules.Line) bool {
	switch l.Command {
	case rules.Append, rules.Insert:
		return t.chains[l.Chain] == nil
	case rules.Delete:
		return true
	}
	return false
}

func (b *builder) line(t *table, block int, l rules.Line) *rules.SyntaxError {
	switch l.Command {
	case rules.Declare:
		return b.declare(t, block, l)
	case rules.NewChain:
		return b.newChain(t, l)
	case rules.Append, rules.Insert, rules.Delete:
		return b.ruleLine(t, l)
	case rules.DeleteChain:
		return b.deleteChain(t, l)
	case rules.Flush:
		return b.flush(t, l)
	}
	return refuseCommand(l)
}

// checkEmpty refuses a chain that -N declares and that has no rule: to read it as a wish
// would empty the chain, and who writes -N seldom means that.
func (b *builder) checkEmpty() *rules.SyntaxError {
	for _, d := range b.file.Declared {
		c := b.tables[d.Table].chains[d.Line.Chain]
		if !c.mayBeEmpty && len(c.draft.rules) == 0 {
			return fail(c.first, c.first.Column,
				"chain %s is declared and has no rule: to have it empty, write \":%s - [0:0]\"", d.Line.Chain, d.Line.Chain)
		}
	}
	return nil
}

// finish makes the messages. What a later line took the last rule of is none.
func (b *builder) finish() *File {
	for _, d := range b.drafts {
		switch {
		case d.Body != nil:
		case d.edits != nil:
			d.Body = transaction.EditRules{Chain: d.chain, Edits: d.edits, NoStub: !b.opts.StubMissing}
			d.Head = d.Rules[0]
		case d.Head.Command == rules.Declare || d.Head.Command == rules.NewChain:
			d.Body = transaction.RewriteChains{Chains: []rules.Chain{{Name: d.chain, Rules: d.rules}}}
		default:
			continue
		}
		m := d.Message
		m.ID = fmt.Sprintf("%s#%d", b.label, len(b.file.Messages)+1)
		b.file.Messages = append(b.file.Messages, m)
	}
	return b.file
}

// add begins a message with a line.
func (b *builder) add(t *table, l rules.Line, body transaction.Body) *draft {
	d := &draft{chain: l.Chain, Message: Message{
		Table: t.id, Head: l,
		Message: transaction.Message{Owner: b.file.Owner, Priority: b.opts.Priority, Body: body},
	}}
	b.drafts = append(b.drafts, d)
	return d
}

func fail(l rules.Line, column int, format string, args ...any) *rules.SyntaxError {
	return &rules.SyntaxError{Line: l.Number, Column: column, Text: l.Text, Reason: fmt.Sprintf(format, args...)}
}
