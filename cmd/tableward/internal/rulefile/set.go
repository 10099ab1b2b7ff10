// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tableward/tableward/rules"
)

// Labels returns what stands for each file in the ids of its messages: the base name, or the
// name as given where several files share their base name.
func Labels(names []string) []string {
	count := map[string]int{}
	for _, n := range names {
		count[filepath.Base(n)]++
	}
	labels := make([]string, len(names))
	for i, n := range names {
		labels[i] = filepath.Base(n)
		if count[labels[i]] > 1 {
			labels[i] = n
		}
	}
	return labels
}

// Clashes returns the files of one owner that declare the same chain of the same table, each
// with its reason. Neither can be right: a chain holds what one file says.
func Clashes(files []*File) map[*File]*Error {
	type key struct {
		owner string
		table rules.TableID
		chain string
	}
	type at struct {
		file *File
		line rules.Line
	}
	by := map[key][]at{}
	out := map[*File]*Error{}
	for _, f := range files {
		for _, d := range f.Declared {
			k := key{f.Owner, d.Table, d.Line.Chain}
			by[k] = append(by[k], at{f, d.Line})
		}
	}
	for _, f := range files {
		for _, d := range f.Declared {
			same := by[key{f.Owner, d.Table, d.Line.Chain}]
			if len(same) < 2 {
				continue
			}
			other := same[0]
			if other.file == f {
				other = same[1]
			}
			out[f] = &Error{f.Name, fail(d.Line, d.Line.Column, "chain %s of %s is declared by %s too, and both are of owner %q",
				d.Line.Chain, d.Table, fmt.Sprintf("%s:%d", other.file.Name, other.line.Number), f.Owner)}
			break
		}
	}
	return out
}

// Find returns the line and the column in the file that a refused rule of a message stands
// at: column is its column in the rule, 0 when only the rule is known. Without a rule, or
// where the rule is not one of the message, it is the message's first line.
func (m *Message) Find(chain, rule string, column int) (rules.Line, int) {
	for _, l := range m.Rules {
		if l.Chain == chain && l.Rule.String() == rule {
			return l, columnInLine(l, rule, column)
		}
	}
	return m.Head, max(m.Head.Column, 1)
}

// columnInLine finds a column of a rule's text in the line that it was read from, where
// blanks and quotes may be others: by counting words.
func columnInLine(l rules.Line, rule string, column int) int {
	inRule, _ := rules.SplitWords(rule)
	inLine, _ := rules.SplitWords(l.Text)
	for len(inLine) > 0 && inLine[0].Column < l.RuleColumn {
		inLine = inLine[1:]
	}
	for i, w := range inRule {
		if w.Column == column && i < len(inLine) {
			return inLine[i].Column
		}
	}
	return l.RuleColumn
}

// QuotedColumn returns the column in a rule's line of the word that the tool's words quote,
// `word' or "word", or else that of the rule.
func QuotedColumn(l rules.Line, reason string) int {
	words, _ := rules.SplitWords(l.Text)
	for _, w := range words {
		if w.Column < l.RuleColumn || w.Text == "" {
			continue
		}
		if strings.Contains(reason, "`"+w.Text+"'") || strings.Contains(reason, `"`+w.Text+`"`) {
			return w.Column
		}
	}
	return max(l.RuleColumn, 1)
}
