// SPDX-License-Identifier: Apache-2.0

package rules

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// hooks.json is written by the kernel: see TestHooks of package dataplane, which probes each
// target and match in each table, unreached, reached from each built-in chain, and in it.
//
//go:embed hooks.json
var hooksJSON []byte

// hooksFile is what hooks.json holds. What it has under "unknown", the kernel refused
// everywhere, and so nothing can be said of it.
type hooksFile struct {
	Refused []refusedRow `json:"refused"`
}

// refusedRow is one answer about one feature, of all the combinations of backend and IP
// version ("nft4", "legacy6") and all the tables that gave it.
type refusedRow struct {
	Feature string   `json:"feature"`
	Tables  []string `json:"tables"`
	In      []string `json:"in"`
	All     bool     `json:"all"` // refused in the whole table
	Reached []string `json:"reached"`
	Direct  []string `json:"direct"`
}

// hookTables has the tables of each combination.
type hookTables struct {
	nft4, nft6, legacy4, legacy6 map[string]*refusalTable
}

func (h *hookTables) table(backend string, id TableID) *refusalTable {
	if m := h.combination(backend, id.IPVersion); m != nil {
		return (*m)[id.Name]
	}
	return nil
}

func (h *hookTables) combination(backend string, v IPVersion) *map[string]*refusalTable {
	switch {
	case backend == "nft" && v == IPv4:
		return &h.nft4
	case backend == "nft" && v == IPv6:
		return &h.nft6
	case backend == "legacy" && v == IPv4:
		return &h.legacy4
	case backend == "legacy" && v == IPv6:
		return &h.legacy6
	}
	return nil
}

var loadHooks = sync.OnceValue(func() *hookTables {
	var file hooksFile
	if err := json.Unmarshal(hooksJSON, &file); err != nil {
		panic("rules: the embedded hooks.json: " + err.Error())
	}
	h := new(hookTables)
	for _, backend := range []string{"nft", "legacy"} {
		for _, v := range []IPVersion{IPv4, IPv6} {
			in := backend + string('0'+rune(v))
			*h.combination(backend, v) = tablesOf(slices.DeleteFunc(slices.Clone(file.Refused), func(row refusedRow) bool {
				return !slices.Contains(row.In, in)
			}))
		}
	}
	return h
})

// tablesOf puts the rows of one combination in order.
func tablesOf(rows []refusedRow) map[string]*refusalTable {
	byFeature := make(map[string][]refusedRow)
	for _, row := range rows {
		byFeature[row.Feature] = append(byFeature[row.Feature], row)
	}
	tables := make(map[string]*refusalTable)
	for _, row := range rows {
		r := Refusal{
			Feature: row.Feature, Table: row.All, Reached: hooksOf(row.Reached), Direct: hooksOf(row.Direct),
			Advice: advice(row.Feature, byFeature[row.Feature]),
		}
		for _, name := range row.Tables {
			if tables[name] == nil {
				tables[name] = &refusalTable{targets: make(map[string]*restricted), matches: make(map[string]*restricted)}
			}
			tables[name].add(r)
		}
	}
	return tables
}

// add enters a refusal by the words of its feature: -j or -m, a name, an option, its value.
func (t *refusalTable) add(r Refusal) {
	words := append(strings.Fields(r.Feature), "", "")
	names := t.targets
	if words[0] == "-m" {
		names = t.matches
	}
	x := names[words[1]]
	if x == nil {
		x = new(restricted)
		names[words[1]] = x
	}
	if words[2] == "" {
		x.whole = &r
		return
	}
	x.options = append(x.options, restrictedOption{words[2], words[3], r})
	t.options = append(t.options, words[2])
}

func hooksOf(names []string) Hooks {
	var h Hooks
	for _, name := range names {
		h |= HookOf(name)
	}
	return h
}
