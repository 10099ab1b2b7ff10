// SPDX-License-Identifier: Apache-2.0

// Package demo shows the runtime at work: several features, each an actor that sends the
// messages of a message log, race for the same tables. What became of each message, each
// block of restore input, and the tables in the end are printed.
package demo
