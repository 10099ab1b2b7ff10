// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"time"

	"github.com/tableward/tableward/rules"
)

// Change is a write to the tables of a namespace that was not ours, as far as the kernel
// tells of it.
type Change struct {
	Generation uint64    // nft: the namespace's, after the write; else 0
	PID        int       // who wrote, by its global id; 0 where that is not known
	Command    string    // its command, with arguments where they could still be read; "" not known
	At         time.Time // when we were told
	// IPVersion and Table say which table may have changed; Table "" is any.
	IPVersion rules.IPVersion
	Table     string
}
