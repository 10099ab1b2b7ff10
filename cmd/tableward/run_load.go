// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
)

// load reads the files. One that is refused is replaced by its version in force, where there
// is one. What is learned of the kernel on the way can be asked further while ctx lives.
func (d *daemon) load(ctx context.Context) (*fileSet, *live) {
	set := &fileSet{}
	kept := map[*rulefile.File]bool{}
	d.listFiles(set, kept)
	labels := rulefile.Labels(set.names)
	for i, name := range set.names {
		if !slices.ContainsFunc(set.files, named(name)) {
			set.load(name, nil, d.flags.fileOptions(labels[i]))
		}
	}
	l := newLive(ctx, d.kernel, d.flags)
	holds := d.holds()
	l.gone = holds
	for {
		d.keepVersions(set, kept)
		why := d.faults(l, set, holds)
		for f := range kept {
			delete(why, f) // it stays, whatever is against it: nothing else is known of its wishes
		}
		if len(why) == 0 {
			return set, l
		}
		set.refuse(why)
	}
}

// listFiles finds the files that the arguments name. A folder that cannot be read any more
// has all its files kept as they are: that is trouble, and not a wish to have no rules.
func (d *daemon) listFiles(set *fileSet, kept map[*rulefile.File]bool) {
	for _, arg := range d.args {
		st, err := os.Stat(arg)
		if err == nil && st.IsDir() {
			var names []string
			if names, err = folderFiles(arg); err == nil {
				d.folders[arg] = true
				set.names = append(set.names, names...)
				continue
			}
		}
		if !d.folders[arg] {
			set.names = append(set.names, arg) // what is wrong with it is found when it is read
			continue
		}
		set.refused = append(set.refused, rulefile.Unreadable(arg, err))
		for _, f := range d.set.files {
			if filepath.Dir(f.Name) == filepath.Clean(arg) {
				set.names = append(set.names, f.Name)
				set.files = append(set.files, f)
				kept[f] = true
			}
		}
	}
}

// keepVersions puts the versions in force of refused files in their places. The order of
// the files is that of the rules in kernel chains.
func (d *daemon) keepVersions(set *fileSet, kept map[*rulefile.File]bool) {
	for _, e := range set.refused {
		i := slices.IndexFunc(d.set.files, named(e.File))
		if i >= 0 && !kept[d.set.files[i]] {
			set.files = append(set.files, d.set.files[i])
			kept[d.set.files[i]] = true
		}
	}
	slices.SortStableFunc(set.files, func(a, b *rulefile.File) int {
		return slices.Index(set.names, a.Name) - slices.Index(set.names, b.Name)
	})
}

// faults finds what is wrong with files that can be read.
func (d *daemon) faults(l *live, set *fileSet, holds func(rules.TableID, string) bool) map[*rulefile.File]*rulefile.Error {
	why := rulefile.Clashes(set.files)
	if !d.flags.stubMissing {
		for f, e := range l.unmetHooks(set) {
			why[f] = e
		}
	}
	for _, f := range set.files {
		for _, finding := range l.contested(f) {
			if table := tableOf(f, finding.Line); holds(table, finding.Line.Chain) {
				continue // it exists because we made it
			}
			why[f] = &rulefile.Error{File: f.Name, Err: &rules.SyntaxError{
				Line: finding.Line.Number, Column: finding.Column, Text: finding.Line.Text, Reason: finding.Reason,
			}}
		}
	}
	return why
}

// holds returns what tells whether a chain is one that the runtime was given.
func (d *daemon) holds() func(rules.TableID, string) bool {
	return d.ledger.View(nil).HasChain
}

// tableOf returns the table of a declaration of a file.
func tableOf(f *rulefile.File, line rules.Line) rules.TableID {
	for _, decl := range f.Declared {
		if decl.Line.Number == line.Number {
			return decl.Table
		}
	}
	return rules.TableID{}
}

func named(name string) func(*rulefile.File) bool {
	return func(f *rulefile.File) bool { return f.Name == name }
}
