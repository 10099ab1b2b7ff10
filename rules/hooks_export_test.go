// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"maps"
	"slices"
)

// HookFeatures returns the features of hooks.json and those that there are hints for, sorted.
func HookFeatures() (features, hinted []string) {
	var file hooksFile
	if err := json.Unmarshal(hooksJSON, &file); err != nil {
		panic(err)
	}
	for _, row := range file.Refused {
		features = append(features, row.Feature)
	}
	slices.Sort(features)
	return slices.Compact(features), slices.Sorted(maps.Keys(hints))
}

// RefusalsAtLength is RefusalsOf without the quick answer.
func RefusalsAtLength(backend string, id TableID, r Rule) []Refusal {
	if t := loadHooks().table(backend, id); t != nil {
		return t.refusals(r)
	}
	return nil
}

// MostOptions returns how many matches of a table are refused for options, and how many
// targets: the most of a table each.
func MostOptions() (matches, targets int) {
	count := func(m map[string]*restricted) (n int) {
		for _, x := range m {
			if len(x.options) > 0 {
				n++
			}
		}
		return n
	}
	h := loadHooks()
	for _, tables := range []map[string]*refusalTable{h.nft4, h.nft6, h.legacy4, h.legacy6} {
		for _, t := range tables {
			matches, targets = max(matches, count(t.matches)), max(targets, count(t.targets))
		}
	}
	return matches, targets
}
