// SPDX-License-Identifier: Apache-2.0

package transaction

import "github.com/tableward/tableward/rules"

// The stubs. Table nat refuses DROP in every tool, so that a stub there can only return:
// not translated, not dropped.
var (
	missing      = []rules.Rule{rules.MustParseRule(`-m comment --comment "tableward: missing chain" -j DROP`)}
	missingNAT   = []rules.Rule{rules.MustParseRule(`-m comment --comment "tableward: missing chain" -j RETURN`)}
	condemned    = []rules.Rule{rules.MustParseRule(`-m comment --comment "tableward: condemned chain" -j DROP`)}
	condemnedNAT = []rules.Rule{rules.MustParseRule(`-m comment --comment "tableward: condemned chain" -j RETURN`)}
)

// MissingStub returns what a stub of the table holds.
func MissingStub(table string) []rules.Rule {
	if table == "nat" {
		return missingNAT
	}
	return missing
}

// CondemnedStub returns what a condemned chain of the table holds.
func CondemnedStub(table string) []rules.Rule {
	if table == "nat" {
		return condemnedNAT
	}
	return condemned
}

func (s *State) condemnedRules() []rules.Rule { return CondemnedStub(s.cfg.Table.Name) }

// stubOf returns what the chain holds as a stub: its override, or the stub's rule.
func (t *Txn) stubOf(c *chain) []rules.Rule {
	if rs, ok := t.overrideOf(c.name); ok && !c.broken {
		return rs
	}
	return MissingStub(t.s.cfg.Table.Name)
}
