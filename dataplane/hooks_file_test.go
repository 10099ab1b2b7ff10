// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/rules"
)

const hooksFile = "../rules/hooks.json"

// hookTable is what hooks.json holds.
type hookTable struct {
	About   []string    `json:"about"`
	Kernel  string      `json:"kernel"` // "6.18.44"
	Tools   string      `json:"tools"`  // "1.8.9"
	Refused []hookRow   `json:"refused"`
	Unknown []unknowing `json:"unknown"`
}

var aboutHooks = []string{
	"What the kernel refuses of a rule for the targets, matches and options that it names, and where.",
	"all: in the whole table. reached: in user chains that these built-in chains reach. direct: in these themselves.",
	"unknown: refused everywhere by the kernel that was asked, which says nothing about others.",
	"Written by: go test ./dataplane -run TestHooks -update",
}

// hookRow is one answer about a feature, of all tables and combinations that gave it.
type hookRow struct {
	Feature string   `json:"feature"`
	Tables  []string `json:"tables"`
	In      []string `json:"in"` // "nft4", "legacy6"
	All     bool     `json:"all,omitempty"`
	Reached []string `json:"reached,omitempty"`
	Direct  []string `json:"direct,omitempty"`
}

// unknowing is a feature that is refused everywhere.
type unknowing struct {
	Feature string   `json:"feature"`
	In      []string `json:"in"`
}

// hookKey is a feature in a table of a combination.
type hookKey struct{ in, feature, table string }

// everywhere stands in the place of a table for a feature that all tables refuse.
const everywhere = "*"

// expand returns the answers of each combination one by one.
func (h hookTable) expand() map[hookKey]fate {
	out := make(map[hookKey]fate)
	for _, row := range h.Refused {
		for _, in := range row.In {
			for _, table := range row.Tables {
				f := fate{All: row.All}
				for _, name := range row.Reached {
					f.Reached |= rules.HookOf(name)
				}
				for _, name := range row.Direct {
					f.Direct |= rules.HookOf(name)
				}
				out[hookKey{in, row.Feature, table}] = f
			}
		}
	}
	for _, u := range h.Unknown {
		for _, in := range u.In {
			out[hookKey{in, u.Feature, everywhere}] = fate{All: true}
		}
	}
	return out
}

func readHooks(t *testing.T) hookTable {
	t.Helper()
	var h hookTable
	if err := json.Unmarshal([]byte(readFile(t, hooksFile)), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// writeHooks writes one line for each answer; tables and combinations with the same share it.
func writeHooks(t *testing.T, h hookTable, table map[hookKey]fate) {
	t.Helper()
	h.About = aboutHooks
	h.Refused, h.Unknown = rowsOf(table)
	if err := os.WriteFile(hooksFile, h.encode(t), 0o666); err != nil {
		t.Fatal(err)
	}
}

// rowsOf groups answers: first the combinations with the same one in a table, then the tables
// in which the same combinations have the same one.
func rowsOf(table map[hookKey]fate) (refused []hookRow, unknown []unknowing) {
	type answer struct {
		feature, table string
		fate
	}
	combinations := make(map[answer][]string)
	for key, f := range table {
		if f != (fate{}) {
			a := answer{key.feature, key.table, f}
			combinations[a] = append(combinations[a], key.in)
		}
	}
	type group struct {
		feature, in string
		fate
	}
	tables := make(map[group][]string)
	for a, in := range combinations {
		slices.Sort(in)
		if a.table == everywhere {
			unknown = append(unknown, unknowing{a.feature, in})
			continue
		}
		g := group{a.feature, strings.Join(in, " "), a.fate}
		tables[g] = append(tables[g], a.table)
	}
	for g, names := range tables {
		slices.Sort(names)
		refused = append(refused, hookRow{
			Feature: g.feature, Tables: names, In: strings.Fields(g.in),
			All: g.All, Reached: g.Reached.Names(), Direct: g.Direct.Names(),
		})
	}
	slices.SortFunc(refused, func(a, b hookRow) int {
		return cmp.Or(cmp.Compare(a.Feature, b.Feature), slices.Compare(a.Tables, b.Tables), slices.Compare(a.In, b.In))
	})
	slices.SortFunc(unknown, func(a, b unknowing) int { return cmp.Compare(a.Feature, b.Feature) })
	return refused, unknown
}

// encode writes each member of a list on a line of its own.
func (h hookTable) encode(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	line := func(v any, before, behind string) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(before)
		b.Write(text)
		b.WriteString(behind + "\n")
	}
	b.WriteString("{\n\"about\": [\n")
	for i, s := range h.About {
		line(s, "", comma(i, len(h.About)))
	}
	b.WriteString("],\n")
	line(h.Kernel, "\"kernel\": ", ",")
	line(h.Tools, "\"tools\": ", ",")
	b.WriteString("\"refused\": [\n")
	for i, row := range h.Refused {
		line(row, "", comma(i, len(h.Refused)))
	}
	b.WriteString("],\n\"unknown\": [\n")
	for i, u := range h.Unknown {
		line(u, "", comma(i, len(h.Unknown)))
	}
	b.WriteString("]\n}\n")
	return b.Bytes()
}

func comma(i, n int) string {
	if i == n-1 {
		return ""
	}
	return ","
}
