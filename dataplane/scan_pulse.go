// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"

	"github.com/tableward/tableward/rules"
)

// pulseNow is the table's pulse, 0 where it is not to be had.
func (k *Kernel) pulseNow(ctx context.Context, id rules.TableID) uint64 {
	n, err := k.Pulse(ctx, id)
	if err != nil {
		return 0
	}
	return n
}

// steadyPulse is the pulse that the table had while something was read, 0 if it changed.
func (k *Kernel) steadyPulse(ctx context.Context, id rules.TableID, before uint64) uint64 {
	if before == 0 || k.pulseNow(ctx, id) != before {
		return 0
	}
	return before
}
