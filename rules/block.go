// SPDX-License-Identifier: Apache-2.0

package rules

// Command is what one line of restore input does.
type Command uint8

// The commands of restore input. The comment shows the short form.
const (
	Declare     Command = iota + 1 // :chain POLICY [packets:bytes]
	NewChain                       // -N chain
	Append                         // -A chain rule
	Insert                         // -I chain [index] rule
	Delete                         // -D chain rule
	DeleteIndex                    // -D chain index
	Replace                        // -R chain index rule
	DeleteChain                    // -X [chain]
	Flush                          // -F [chain]
	Policy                         // -P chain policy
	Rename                         // -E chain name
	Zero                           // -Z [chain]
)

// Line is one line of restore input.
type Line struct {
	Command Command
	Chain   string // "" for -F, -X, -Z of the whole table
	Policy  string // Declare, Policy: "-" says nothing, as every user chain does
	Rule    Rule   // Append, Insert, Delete, Replace
	Index   int    // Insert, Replace, DeleteIndex: from 1; 0 is not given
	NewName string // Rename

	// Where a parsed line stands; zero in lines that were made. Text, Chain and Rule share
	// the memory of the input.
	Number     int    // line number, from 1
	Text       string // the line without its line end
	Column     int    // column of the command's chain, from 1, in bytes
	RuleColumn int    // column at which the rule begins, from 1, in bytes
}

// Block is one table of restore input: what stands between *table and COMMIT.
type Block struct {
	IPVersion IPVersion // 0 when the input does not say ("# ip: 6" does)
	Table     string
	Number    int // line number of *table
	Lines     []Line
}

// Input is parsed restore input.
type Input struct{ Blocks []Block }
