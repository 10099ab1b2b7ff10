// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the effects side of Tableward: it writes blocks of restore input to
// a kernel, reads tables back, and finds the text that the tools read back for a rule.
package dataplane
