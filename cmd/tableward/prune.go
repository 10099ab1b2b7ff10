// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// pruneOwner speaks for what --prune takes away; pruneLabel stands for a file in the ids of
// its messages, and can be no file's name on a command line.
const (
	pruneOwner = "prune"
	pruneLabel = "--prune"
)

// pruner makes the messages that take away what has a prefix and is declared by no file.
type pruner struct {
	live     *live
	prefixes []string
	declared map[rules.TableID]map[string]bool
	stderr   io.Writer
	file     *rulefile.File // that of its messages
}

// prune adds the messages of --prune to the files. With a refused file there are none: what
// that file declares is not known, and would be taken away for a slip of the pen.
func (l *live) prune(set *fileSet, prefixes []string, stderr io.Writer) {
	if n := len(set.refused); n > 0 {
		fmt.Fprintf(stderr, "note: nothing is pruned: %s refused, and may declare what would go\n", plural(n, "file"))
		return
	}
	p := &pruner{
		live: l, prefixes: prefixes, declared: set.declared(), stderr: stderr,
		file: &rulefile.File{Name: pruneLabel, Owner: pruneOwner},
	}
	for _, id := range l.pruneTables(set) {
		if snap := l.snapshot(id); snap != nil {
			p.table(id, *snap)
		}
	}
	if len(p.file.Messages) > 0 {
		set.files = append(set.files, p.file)
	}
}

// pruneTables returns the tables to look at: those of the files, and all others that are in
// use. Legacy tools make a table that they read, so only those that are there are read.
func (l *live) pruneTables(set *fileSet) []rules.TableID {
	ids := tables(set.messages())
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		for _, name := range []string{"filter", "mangle", "nat", "raw", "security"} {
			id := rules.TableID{IPVersion: v, Name: name}
			if !slices.Contains(ids, id) && (l.info.Backend != "legacy" || legacyTableInUse(l.netns, id)) {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, rules.TableID.Compare)
	return ids
}

func hasPrefix(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// goes tells whether a chain is to go.
func (p *pruner) goes(id rules.TableID, name string) bool {
	return hasPrefix(p.prefixes, name) && !rules.IsBuiltin(id.Name, name) && !p.declared[id][name]
}

// table makes the messages of one table: first the rules of kernel chains that jump to what
// goes, then the chains.
func (p *pruner) table(id rules.TableID, snap rules.Snapshot) {
	var gone []string
	names := slices.Sorted(maps.Keys(snap.Chains))
	for _, name := range names {
		if p.goes(id, name) {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, name := range names {
		if !p.goes(id, name) && !p.declared[id][name] {
			p.rulesOf(id, snap.Chains[name], gone)
		}
	}
	for _, name := range gone {
		p.add(id, transaction.DeleteChains{Chains: []string{name}})
	}
}

// rulesOf removes the rules of one kernel chain that jump to what goes.
func (p *pruner) rulesOf(id rules.TableID, c rules.SavedChain, gone []string) {
	var edits []transaction.Edit
	reached := map[string]bool{}
	seen := map[string]bool{}
	for _, r := range c.Rules {
		target := r.Rule.Jump()
		if r.Err != nil || !slices.Contains(gone, target) {
			continue
		}
		reached[target] = true
		if !seen[r.Text] { // one removal takes every copy
			seen[r.Text] = true
			edits = append(edits, transaction.Edit{Op: transaction.Remove, Rule: r.Rule})
		}
	}
	for _, target := range c.Jumps {
		if slices.Contains(gone, target) && !reached[target] {
			fmt.Fprintf(p.stderr, "warning: a rule of chain %s of %s jumps to chain %s and cannot be named by its text: chain %s stays until that rule is gone\n",
				c.Name, id, target, target)
		}
	}
	if len(edits) > 0 {
		p.add(id, transaction.EditRules{Chain: c.Name, Edits: edits})
	}
}

func (p *pruner) add(id rules.TableID, body transaction.Body) {
	p.file.Messages = append(p.file.Messages, rulefile.Message{Table: id, Message: transaction.Message{
		ID: fmt.Sprintf("%s#%d", pruneLabel, len(p.file.Messages)+1), Owner: pruneOwner, Body: body,
	}})
}
