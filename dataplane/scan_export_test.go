// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"

	"github.com/tableward/tableward/rules"
)

// ScanGeneration is the generation as Scan reads it.
func ScanGeneration(k *Kernel) (uint64, error) { return k.scanGeneration() }

// CloseScanner gives back what a Kernel keeps for its scans.
func CloseScanner(k *Kernel) { k.closeScanner() }

// Within calls f on a thread in the Kernel's namespace.
func Within(k *Kernel, f func() error) error { return k.ns.within(f) }

// SteadyPulse is the pulse if it is still what it was.
func SteadyPulse(k *Kernel, id rules.TableID, before uint64) uint64 {
	return k.steadyPulse(context.Background(), id, before)
}
