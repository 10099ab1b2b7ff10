// SPDX-License-Identifier: Apache-2.0

// Package actors is the concurrency of Tableward: one actor for each IP version and table,
// which alone writes that table.
//
// A [Runtime] takes messages from many senders at once: by a Go call that waits for the
// answer, by [Runtime.Tell], or as a [Request] from another actor. Whatever waits for a
// table when its actor is idle becomes one batch, in order; what comes while a block is
// under way is the next one. Each message that was taken gets exactly one [Answer].
//
// The caller has to:
//
//  1. Start the Runtime before it sends, and Stop it in the end. Rules stay in the kernel.
//  2. Give each feature its own owner name (see [Runtime.Owner]): a chain belongs to the
//     owner of its first rewrite, and a feature's place in kernel chains goes by its name.
//  3. Keep OnAnswer and Observe from blocking: they are called by the table's actor.
//  4. Know that a wait which ends is no answer (ErrPending): the message stays.
//
// While the environment is in passing trouble (lock, memory, a tool that was killed) no
// answer is given: the batch is tried again after 100 ms, 200 ms, ..., at most 5 s, together
// with what has come meanwhile. What an absent environment stops is answered Unavailable at
// once, stays wished, and goes along with each later batch; an EventLate says what became
// of it.
//
// The logic of a table is a type without goroutines, a step from an event to effects, which
// the actor drives in production and [Machine] in virtual time: a replay takes exactly the
// way of production. A message that is bad is found in the plan, by trying kinds of rules that
// were not seen before (see [Trier]), by the line of the error, by a search away from the live
// table, or by halves where none of these can be had, and everything else lands. A
// [BatchRecord] says what was done.
//
// protoactor-go is used for mailboxes and life cycle and stays inside this package, but for
// [Runtime.PID] and [Runtime.System], which are for feature actors of the same system.
package actors
