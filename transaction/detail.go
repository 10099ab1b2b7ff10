// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"strings"

	"github.com/tableward/tableward/rules"
)

// Detail is the error as a person wants it: whose message, where, the rule with a caret at the
// word, what the tool says, what to do, and a command that shows it again. Several lines, each
// with its line feed.
func (e *Error) Detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s", e.ID)
	if e.Owner != "" {
		fmt.Fprintf(&b, " of %s", e.Owner)
	}
	fmt.Fprintf(&b, ", table %s (IPv%d)", e.Table.Name, e.Table.IPVersion)
	if e.Chain != "" {
		fmt.Fprintf(&b, ", chain %s", e.Chain)
	}
	b.WriteByte('\n')
	if e.Rule != "" {
		b.WriteString((&rules.SyntaxError{Column: e.Column, Text: e.Rule}).Picture("  "))
	}
	fmt.Fprintf(&b, "  %s\n", e.Reason)
	if len(e.With) > 0 {
		fmt.Fprintf(&b, "  it fails only together with: %s\n", strings.Join(e.With, ", "))
	}
	if e.Advice != "" {
		fmt.Fprintf(&b, "  what to do: %s\n", e.Advice)
	}
	if e.Command != "" {
		fmt.Fprintf(&b, "  to see it again: %s\n", e.Command)
	}
	return b.String()
}

// Reproduce returns a command line that shows a refusal again in a network namespace of its
// own, which harms nobody; backend is "nft" or "legacy". It is "" where there is no rule to be
// shown. What a rule jumps to is made, and sets that it names are not.
func (e *Error) Reproduce(backend string) string {
	r, err := rules.ParseRule(e.Rule)
	if err != nil || e.Chain == "" {
		return ""
	}
	lines := []string{"*" + e.Table.Name}
	declare := func(name string) {
		if name != "" && !rules.IsBuiltin(e.Table.Name, name) {
			lines = append(lines, ":"+name+" - [0:0]")
		}
	}
	declare(e.Chain)
	if to := r.Jump(); to != e.Chain && rules.CheckChainName(to) == nil && rules.SimilarTarget(to) == "" {
		declare(to)
	}
	lines = append(lines, "-A "+e.Chain+" "+r.String())
	if e.Hook != "" && e.Hook != e.Chain {
		lines = append(lines, "-A "+e.Hook+" -j "+e.Chain)
	}
	lines = append(lines, "COMMIT")
	for i, line := range lines {
		lines[i] = shellQuote(line)
	}
	tool := "iptables-"
	if e.Table.IPVersion == rules.IPv6 {
		tool = "ip6tables-"
	}
	if backend != "" {
		tool += backend + "-"
	}
	return `printf '%s\n' ` + strings.Join(lines, " ") + " | unshare -n " + tool + "restore --noflush"
}

// shellQuote quotes a word for a shell.
func shellQuote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
