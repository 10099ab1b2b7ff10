// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

// A block is one try at the kernel and the answers that came of it. Without input the
// kernel was not asked: the runtime could tell by itself.
type block struct {
	input   []byte
	err     error
	answers []actors.Answer
	deletes int      // best-effort blocks that followed
	deleted []string // chains that those deleted
}

// blocks cuts the events of a table into blocks.
func blocks(events []actors.Event) []block {
	out := []block{{}}
	for _, e := range events {
		last := &out[len(out)-1]
		switch e.Kind {
		case actors.EventRead:
			out = append(out, block{})
		case actors.EventRestore:
			if e.Delete {
				last.deletes++
				if e.Err == nil {
					last.deleted = append(last.deleted, lines(e.Input, rules.DeleteChain)...)
				}
				continue
			}
			out = append(out, block{input: e.Input, err: e.Err})
		case actors.EventAnswer:
			if e.Answer.Kind != "insync" {
				last.answers = append(last.answers, *e.Answer)
			}
		}
	}
	return slices.DeleteFunc(out, func(b block) bool {
		return b.input == nil && len(b.answers) == 0 && len(b.deleted) == 0
	})
}

// owners are those whose messages the block brought into the kernel, sorted.
func (b *block) owners() []string {
	var out []string
	for _, a := range b.answers {
		if a.Owner != "" {
			out = append(out, a.Owner)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lines returns the chains that commands of one kind in a block name.
func lines(input []byte, c rules.Command) []string {
	var out []string
	each(input, func(l rules.Line) {
		if l.Command == c {
			out = append(out, l.Chain)
		}
	})
	return out
}

// stubs returns the chains that a block makes stubs of, and what they do.
func stubs(input []byte) (names, verdicts []string) {
	each(input, func(l rules.Line) {
		if l.Command == rules.Append && strings.Contains(l.Rule.String(), `"tableward: missing chain"`) {
			names, verdicts = append(names, l.Chain), append(verdicts, l.Rule.Target())
		}
	})
	return names, verdicts
}

func each(input []byte, f func(rules.Line)) {
	in, err := rules.ParseRestore(input)
	if err != nil {
		return // the runtime writes none that cannot be read
	}
	for _, b := range in.Blocks {
		for _, l := range b.Lines {
			f(l)
		}
	}
}

// commands counts the lines between *table and COMMIT.
func commands(input []byte) int { return bytes.Count(input, []byte("\n")) - 2 }
