// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
)

// IPVersion is 4 or 6.
type IPVersion uint8

// The two IP versions.
const (
	IPv4 IPVersion = 4
	IPv6 IPVersion = 6
)

// TableID names one table of one IP version: what one table actor owns.
type TableID struct {
	IPVersion IPVersion
	Name      string
}

// String returns "4/filter", the form used in logs, transcripts and output.
func (id TableID) String() string { return fmt.Sprintf("%d/%s", id.IPVersion, id.Name) }

// Compare orders 4 before 6, then by table name: the order of replay and of all output.
func (id TableID) Compare(other TableID) int {
	return cmp.Or(cmp.Compare(id.IPVersion, other.IPVersion), cmp.Compare(id.Name, other.Name))
}

// Validate reports an IP version or a table that does not exist.
func (id TableID) Validate() error {
	if id.IPVersion != IPv4 && id.IPVersion != IPv6 {
		return fmt.Errorf("unknown IP version %d: 4 or 6", id.IPVersion)
	}
	if !IsTable(id.Name) {
		return fmt.Errorf("unknown table %q: one of filter, mangle, nat, raw, security", id.Name)
	}
	return nil
}

// builtin has the built-in chains of each table in the order in which the tools print them.
var builtin = map[string][]string{
	"filter":   {"INPUT", "FORWARD", "OUTPUT"},
	"mangle":   {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	"nat":      {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"raw":      {"PREROUTING", "OUTPUT"},
	"security": {"INPUT", "FORWARD", "OUTPUT"},
}

// IsTable tells whether name is a table that the tools know.
func IsTable(name string) bool { return builtin[name] != nil }

// BuiltinChains returns the built-in chains of a table, in the order in which the tools print them.
func BuiltinChains(table string) []string { return slices.Clone(builtin[table]) }

// IsBuiltin tells whether chain is a built-in chain of table.
func IsBuiltin(table, chain string) bool { return slices.Contains(builtin[table], chain) }
