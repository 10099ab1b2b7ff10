// SPDX-License-Identifier: Apache-2.0

// Package transaction turns messages and what is known of a table into a plan: the exact
// block of restore input that makes the kernel hold what its owners wish. It is pure: no
// I/O, no goroutine, no clock, no log. Equal input gives equal bytes.
//
// A [State] holds the wishes of all owners and what the kernel is believed to hold. One
// batch of messages goes through these steps:
//
//	state.Observe(snapshot)          // what a read showed
//	txn, outcomes := state.Propose(messages)
//	plan := txn.Plan()
//	// write plan.Modify; when the kernel refuses it, drop txn: nothing has happened
//	state.Commit(txn)
//	// write plan.Delete, best effort
//	state.Deleted(plan.Deletes()...)
//
// The caller has to:
//
//  1. Observe a read before the first plan, and again whenever it does not know whether a
//     block was taken.
//  2. Observe a fresh read before it plans messages that edit kernel chains, since their
//     rules are deleted and placed by what was read.
//  3. Learn what the tool reads back for the rules that Unlearned names.
//  4. Commit only after the kernel has taken the modify block, and only the newest Txn.
//
// References between chains are derived from the rules and never told by the caller. A
// chain of ours that is jumped to and does not exist becomes a stub that drops (returns, in
// table nat). A chain that its owner deleted goes when nothing reaches it; until then it is
// condemned. While grace is open, chains of an earlier run keep their content until their
// owner speaks; afterwards those that nobody wrote and nothing of ours needs are orphans,
// which Cleanup deletes.
//
// Each chain has an owner, that of its first rewrite, until that owner deletes it. Kernel
// chains, those that are not ours, have lists of rules instead: each owner's on top, near the
// top, at the bottom, and beside an [Anchor], a rule that is perhaps a stranger's; ordered by
// priority and owner, never by arrival.
//
// What Save returns, and Load takes over before the first Look, spares the next run a read of
// chains that nobody has changed, and tells it which chains and rules of kernel chains are ours.
package transaction
