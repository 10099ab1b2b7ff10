// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
	"github.com/tableward/tableward/rules"
)

// tableDiff is what would change in one table.
type tableDiff struct {
	id     rules.TableID
	chains []chainDiff // those that change: built-in ones in the tools' order, then by name
}

// chainDiff has a chain's lines as they are and as they would be: its declaration, then its
// rules. nil is a chain that does not exist.
type chainDiff struct {
	name          string
	before, after []string
}

func diffTables(id rules.TableID, before, after rules.Snapshot) tableDiff {
	d := tableDiff{id: id}
	names := map[string]bool{}
	for _, snap := range []rules.Snapshot{before, after} {
		for name := range snap.Chains {
			names[name] = true
		}
	}
	order := rules.BuiltinChains(id.Name)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !rules.IsBuiltin(id.Name, name) {
			order = append(order, name)
		}
	}
	for _, name := range order {
		c := chainDiff{name, chainLines(before, name), chainLines(after, name)}
		if !slices.Equal(c.before, c.after) {
			d.chains = append(d.chains, c)
		}
	}
	return d
}

func chainLines(snap rules.Snapshot, name string) []string {
	c, found := snap.Chains[name]
	if !found {
		return nil
	}
	policy := c.Policy
	if policy == "" {
		policy = "-"
	}
	out := []string{":" + name + " " + policy + " [0:0]"}
	for _, r := range c.Rules {
		out = append(out, strings.TrimSuffix("-A "+name+" "+r.Text, " "))
	}
	return out
}

// text is the unified diff, "" when nothing changes. Lines are counted in each chain: rule n
// is line n+1.
func (d tableDiff) text() string {
	if len(d.chains) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s (kernel)\n+++ %s (files)\n", d.id, d.id)
	for _, c := range d.chains {
		b.WriteString(c.hunks())
	}
	return b.String()
}

// mostCells bounds the cost of finding the shortest difference of two chains, which grows
// with the product of their lines.
const mostCells = 4_000_000

func (c chainDiff) hunks() string {
	if len(c.before)*len(c.after) > mostCells {
		return c.oneHunk()
	}
	text := msglog.Diff("", "", joinLines(c.before), joinLines(c.after))
	_, text, _ = strings.Cut(text, "\n") // the names
	_, text, _ = strings.Cut(text, "\n")
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "@@ ") {
			line = strings.TrimSuffix(line, "\n") + " " + c.name + "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// oneHunk is the difference without a search: all that lies between the equal lines at both
// ends.
func (c chainDiff) oneHunk() string {
	head, tail := 0, 0
	shorter := min(len(c.before), len(c.after))
	for head < shorter && c.before[head] == c.after[head] {
		head++
	}
	for tail < shorter-head && c.before[len(c.before)-1-tail] == c.after[len(c.after)-1-tail] {
		tail++
	}
	old, new := c.before[head:len(c.before)-tail], c.after[head:len(c.after)-tail]
	var b strings.Builder
	fmt.Fprintf(&b, "@@ -%s +%s @@ %s\n", span(head, len(old)), span(head, len(new)), c.name)
	for _, l := range old {
		b.WriteString("-" + l + "\n")
	}
	for _, l := range new {
		b.WriteString("+" + l + "\n")
	}
	return b.String()
}

// span is a range of lines: of an empty one, the line before it is named.
func span(before, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", before)
	}
	return fmt.Sprintf("%d,%d", before+1, n)
}

func joinLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
