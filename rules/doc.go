// SPDX-License-Identifier: Apache-2.0

// Package rules is the text model: rules, chains, restore input and save output, as values
// that are valid once they exist.
//
// A [Rule] is one rule without its chain. [ParseRule] splits it into words exactly as
// iptables-restore does ([SplitWords]), refuses what must never reach the tool, and learns
// the rule's target and ipsets. Whoever holds a Rule may send it: its text is one line, it
// adds one rule to the chain that the caller names, and it does nothing else.
//
// Two kinds of text are read, and they are judged differently. [ParseRestore] reads what
// people write and stops at the first problem, with a [SyntaxError] that shows the place.
// [ParseSave] reads what iptables-save prints about a kernel that others write too: a rule
// that could not be sent again is kept with its text and an error, so that one odd rule of a
// stranger does not hide a whole table. Only text that no save prints fails the read.
//
// What is refused, and why:
//
//   - Control characters other than TAB, and text that is not UTF-8: a newline in a comment
//     is a second line of restore input.
//   - A quote that does not close: iptables-restore accepts it and swallows the target.
//   - Hidden commands: getopt reads options wherever they stand, so "-j ACCEPT -F INPUT" is
//     a rule and a flush. Where it is not certain that a word is a value, it is taken for an
//     option.
//   - Chain names that a tool refuses, prints ambiguously or takes for an option.
//
// Whether a rule can be right is another question. [CheckRule] answers it for lengths, ports,
// addresses and names that are one letter off; [RefusalsOf] for what a backend's kernel does
// not take in a table or at a hook. Whether chains and sets exist is left to the tool.
//
// Facts about the tools were measured with iptables 1.8.9, legacy and nft; option tables
// come from its extension modules, the list of targets from those and from 1.4.7 to 1.8.13.
//
// All functions are safe for concurrent use, all values are immutable unless their fields
// are exported. Columns count bytes from 1.
package rules
