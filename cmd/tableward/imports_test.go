// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The picture of the packages: what each may import of the module, and which packages
// nobody else may import. Tests may import more.
var (
	mayImport = map[string][]string{
		"rules":       {},
		"transaction": {"rules"},
		"dataplane":   {"rules"},
		"actors":      {"rules", "transaction", "dataplane"},
		"cmd":         {"rules", "transaction", "dataplane", "actors", "cmd"},
	}
	onlyIn = map[string][]string{
		"github.com/asynkron/protoactor-go":   {"actors"},
		"github.com/cenkalti/backoff":         {"actors"},
		"github.com/spf13/cobra":              {"cmd"},
		"os/exec":                             {"dataplane", "cmd"},
		"github.com/rs/zerolog":               {"actors", "cmd"},
		"golang.org/x/sys":                    {"dataplane", "cmd"},
		"github.com/google/go-cmp":            {"cmd"},
		"github.com/vishvananda":              {},
		"github.com/prometheus/client_golang": {},
	}
	pure = []string{"transaction"} // no clock, no goroutine's tools, no files, no log
)

func TestImports(t *testing.T) {
	const module = "github.com/tableward/tableward/"
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		pkg, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
		if strings.Contains(rel, "testns") {
			return nil // for tests only
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if inside, ok := strings.CutPrefix(name, module); ok {
				top, _, _ := strings.Cut(inside, "/")
				if top != pkg && !slices.Contains(mayImport[pkg], top) {
					t.Errorf("%s imports %s: %s may import only %v", rel, inside, pkg, mayImport[pkg])
				}
			}
			for prefix, where := range onlyIn {
				if strings.HasPrefix(name, prefix) && !slices.Contains(where, pkg) {
					t.Errorf("%s imports %s, which only %v may", rel, name, where)
				}
			}
			if slices.Contains(pure, pkg) && slices.Contains([]string{"time", "os", "sync", "context", "log", "net"}, name) {
				t.Errorf("%s imports %s: %s is pure", rel, name, pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
