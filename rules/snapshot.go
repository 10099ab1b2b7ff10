// SPDX-License-Identifier: Apache-2.0

package rules

// Canon is the text that a tool reads back for one rule, without its chain. One rule may
// give several: "-s 10.0.0.1,10.0.0.2" reads back as two.
type Canon []string

// Snapshot is what was read of one table.
type Snapshot struct {
	Table      TableID
	Chains     map[string]SavedChain // every chain of the table
	Generation uint64                // the kernel's generation where it has one, else 0
	// Pulse is what the dataplane's Pulse returned before and after the read, so that all of
	// it is of one state that nobody else changed meanwhile; 0 when it did not stay the same,
	// or is not to be had.
	Pulse uint64
}

// SavedChain is one chain as it was read.
type SavedChain struct {
	Name   string
	Policy string // "" for a user chain
	Digest uint64 // of the rules, opaque: equal rules have an equal digest; of a scan in every process, of a read within one
	// Digests has the digest of each rule, in order, where the chain was asked for by its name
	// and the read is one that has them.
	Digests []uint64
	Jumps   []string    // chains that its rules jump or go to, sorted, each once
	Full    bool        // Rules has been read
	Rules   []SavedRule // in order, when Full
}

// SavedRule is one rule as it was read.
type SavedRule struct {
	// Text is Rule.String() where the rule can be sent again, else the text as printed,
	// without "-A chain ", with control characters and bytes that are not UTF-8 escaped.
	Text string
	Rule Rule  // zero when Err is set
	Err  error // why the text can not be sent again: not UTF-8, "[unsupported revision]", a newline
}

// Ruleset is parsed save output.
type Ruleset struct {
	Tables       []SavedTable
	Incompatible []string // tables that the tool said it cannot show
}

// SavedTable is one table of save output.
type SavedTable struct {
	Name     string
	Chains   []SavedChain // in the order printed
	Complete bool         // COMMIT was seen; without it the rest may be missing
}

// Snapshot returns the table as what was read of id. It has no generation.
func (t *SavedTable) Snapshot(id TableID) Snapshot {
	s := Snapshot{Table: id, Chains: make(map[string]SavedChain, len(t.Chains))}
	for _, chain := range t.Chains {
		s.Chains[chain.Name] = chain
	}
	return s
}
