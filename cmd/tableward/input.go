// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/rules"
)

// fileSet is the files of a command: those that can be used and why the others cannot.
type fileSet struct {
	names   []string // all, as given
	files   []*rulefile.File
	refused []*rulefile.Error
}

// loadFiles reads and parses what the arguments name: files, folders, "-" for stdin. The
// error is about the arguments.
func loadFiles(args []string, stdin io.Reader, f *flags) (*fileSet, error) {
	names, err := fileNames(args)
	if err != nil {
		return nil, err
	}
	set := &fileSet{names: names}
	labels := rulefile.Labels(names)
	for i, name := range names {
		set.load(name, stdin, f.fileOptions(labels[i]))
	}
	set.refuse(rulefile.Clashes(set.files))
	return set, nil
}

// fileNames replaces each folder by its *.rules files, sorted.
func fileNames(args []string) ([]string, error) {
	var names []string
	for _, arg := range args {
		if arg == "-" && slices.Contains(names, "-") {
			return nil, errors.New("- is given twice: standard input can be read once")
		}
		if st, err := os.Stat(arg); arg == "-" || err != nil || !st.IsDir() {
			names = append(names, arg)
			continue
		}
		inside, err := folderFiles(arg)
		if err != nil {
			return nil, err
		}
		names = append(names, inside...)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no file: %q has no *.rules files", args)
	}
	return names, nil
}

// folderFiles returns the *.rules files of a folder, sorted.
func folderFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == ".rules" {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

func (s *fileSet) load(name string, stdin io.Reader, opts rulefile.Options) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		s.refused = append(s.refused, rulefile.Unreadable(name, err))
		return
	}
	file, err := rulefile.Parse(name, data, opts)
	var refused *rulefile.Error
	if errors.As(err, &refused) {
		s.refused = append(s.refused, refused)
		return
	}
	s.files = append(s.files, file)
}

// refuse takes files out, with their reasons.
func (s *fileSet) refuse(why map[*rulefile.File]*rulefile.Error) {
	s.files = slices.DeleteFunc(s.files, func(f *rulefile.File) bool {
		if why[f] != nil {
			s.refused = append(s.refused, why[f])
		}
		return why[f] != nil
	})
	slices.SortStableFunc(s.refused, func(a, b *rulefile.Error) int {
		return slices.Index(s.names, a.File) - slices.Index(s.names, b.File)
	})
}

// tellPolicies says once that policies are ignored.
func (s *fileSet) tellPolicies(w io.Writer) {
	for _, f := range s.files {
		if f.PoliciesIgnored {
			fmt.Fprintf(w, "note: policies of built-in chains are ignored (%s); use --policies to set them\n", f.Name)
			return
		}
	}
}

// declared returns the chains that the files declare in each table.
func (s *fileSet) declared() map[rules.TableID]map[string]bool {
	out := map[rules.TableID]map[string]bool{}
	for _, f := range s.files {
		for _, d := range f.Declared {
			if out[d.Table] == nil {
				out[d.Table] = map[string]bool{}
			}
			out[d.Table][d.Line.Chain] = true
		}
	}
	return out
}

// messages returns the messages of all files, in order.
func (s *fileSet) messages() []*filed {
	var out []*filed
	for _, f := range s.files {
		for i := range f.Messages {
			out = append(out, &filed{file: f, Message: &f.Messages[i]})
		}
	}
	return out
}

// filed is a message and its file.
type filed struct {
	file *rulefile.File
	*rulefile.Message
}

// tables returns the tables of messages, 4 before 6, then by name.
func tables(msgs []*filed) []rules.TableID {
	var ids []rules.TableID
	for _, m := range msgs {
		if !slices.Contains(ids, m.Table) {
			ids = append(ids, m.Table)
		}
	}
	slices.SortFunc(ids, rules.TableID.Compare)
	return ids
}
