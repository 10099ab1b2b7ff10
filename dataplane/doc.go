// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the effects side of Tableward: it writes blocks of restore input to
// a kernel, reads tables back, and finds the text that the tools read back for a rule.
//
// There are two dataplanes, with the same methods. [Kernel] runs the iptables tools of the
// nft or the legacy backend, for IPv4 and IPv6, in a network namespace. [Sim] is a kernel
// in memory that reads the same bytes and answers in the same words; a test holds it to
// both backends. Whoever uses them declares the interface that it needs.
//
//	Restore(ctx, id, input) error                   one block, *table to COMMIT, all or nothing
//	Read(ctx, id, chains...) (rules.Snapshot, error) a table; rules in full for the chains named
//	Canon(ctx, id, rules) ([]rules.Canon, error)    what the tools read back for each rule
//	Info() Info                                     backend, limits, extensions
//
// [Kernel.Try] and [Sim.Try] say beforehand which rules of a batch a kernel would refuse, the
// former in scratch network namespaces; [Kernel.Check] returns the verdicts alone.
// [Kernel.Stats] counts runs and waits.
//
// Every error of these methods is a [*RestoreError], but for [ErrNoScratch], which Canon,
// Try and Check return where they have nobody to ask. Its [Class] says what to do: a Rejected
// line is out, RejectedSomewhere has to be searched, Busy and TooLarge are tried again,
// Unavailable is reported, and after Unknown the table has to be read before anything else.
// The words of the tools are interpreted in one place, [Classify].
//
// A block is applied when the tool has echoed a marker line that follows COMMIT, and for no
// other reason: a legacy tool can end with exit code 0 without having read its input. The
// marker comes before the tool has ended, up to 20 ms on nft, and Restore returns with it.
//
// A Kernel is the one writer of the tables that it has written, until it is closed: another
// one gets [ErrTableHeld]. On legacy it holds the xtables lock around each write, and waits
// for it no longer than it was told to.
//
// Nothing here decides: what is written, in which order, and what is done about an error is
// up to the caller.
package dataplane
