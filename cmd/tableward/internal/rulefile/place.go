// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"strings"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// directive is a comment "# place: ..." and says where the rule in the next line stands.
type directive struct {
	line   rules.Line // the comment: only Number, Text and Column
	op     transaction.Op
	anchor transaction.Anchor
	used   bool
}

const placeForms = `"before chain NAME", "before comment TEXT", "after chain NAME", "after comment TEXT" or "near"`

// directives finds the comments that say a place, by the number of the line that each is about:
// the next one that is neither blank nor a comment. To restore they are comments like any.
func (b *builder) directives(data []byte) *rules.SyntaxError {
	var open *directive
	number := 0
	for text := range strings.Lines(string(data)) {
		number++
		text = strings.TrimRight(text, "\r\n")
		body := strings.TrimLeft(text, " \t")
		switch {
		case body == "":
		case body[0] != '#':
			if open != nil {
				b.places[number], open = open, nil
			}
		default:
			said, found := strings.CutPrefix(strings.TrimLeft(body[1:], " \t"), "place:")
			if !found {
				continue
			}
			line := rules.Line{Number: number, Text: text, Column: len(text) - len(said) + 1}
			if open != nil {
				return fail(line, line.Column, "a second place for one rule: line %d says one", open.line.Number)
			}
			var err *rules.SyntaxError
			if open, err = b.directive(line, said); err != nil {
				return err
			}
		}
	}
	if open != nil {
		b.places[0] = open
	}
	return nil
}

// directive reads what stands behind "# place:"; nil for words that do not begin like a place,
// which are odd but may have been written before such comments meant anything.
func (b *builder) directive(line rules.Line, said string) (*directive, *rules.SyntaxError) {
	words, err := rules.SplitWords(said)
	if err != nil {
		return nil, fail(line, line.Column, "%v", err)
	}
	var texts []string
	for _, w := range words {
		texts = append(texts, w.Text)
	}
	var first string
	if len(texts) > 0 {
		first = texts[0]
		line.Column += words[0].Column - 1
	}
	d := &directive{line: line}
	switch first {
	case "near":
		d.op = transaction.InsertNear
		if len(texts) == 1 {
			return d, nil
		}
	case "before":
		d.op = transaction.InsertBefore
	case "after":
		d.op = transaction.InsertAfter
	default:
		b.file.Findings = append(b.file.Findings, Finding{line, line.Column,
			fmt.Sprintf("this comment says no place and is ignored: a place is %s", placeForms)})
		return nil, nil
	}
	if d.op != transaction.InsertNear && len(texts) == 3 {
		switch texts[1] {
		case "chain":
			d.anchor = transaction.JumpTo(texts[2])
			return d, nil
		case "comment":
			d.anchor = transaction.Commented(texts[2])
			return d, nil
		}
	}
	return nil, fail(line, line.Column, "%q is no place: write %s", strings.TrimSpace(said), placeForms)
}

// placeFor returns the directive about a line, nil where there is none.
func (b *builder) placeFor(l rules.Line) *directive {
	d := b.places[l.Number]
	if d != nil {
		d.used = true
	}
	return d
}

// checkPlaces refuses a place that is no rule's.
func (b *builder) checkPlaces() *rules.SyntaxError {
	var first *directive
	for _, d := range b.places {
		if !d.used && (first == nil || d.line.Number < first.line.Number) {
			first = d
		}
	}
	if first == nil {
		return nil
	}
	return fail(first.line, first.line.Column,
		"the next line is not one that a place can be said of: a rule of a chain that the file does not declare, with -A")
}
