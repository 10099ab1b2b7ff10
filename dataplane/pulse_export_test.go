// SPDX-License-Identifier: Apache-2.0

package dataplane

import "time"

// SetPulseBuffer makes the buffers of what is told of commits small. It is called before the
// first Pulse.
func SetPulseBuffer(k *Kernel, bytes int) { k.pulse.buffer = bytes }

// SetWatchTick sets how often Watch looks at legacy tables.
func SetWatchTick(k *Kernel, d time.Duration) { k.pulse.tick = d }

// SetWatchBegun sets what Watch calls when it will miss nothing any more.
func SetWatchBegun(k *Kernel, f func()) { k.pulse.begun = f }

// LockHeld tells whether somebody holds the xtables lock.
func LockHeld(k *Kernel) bool { return flockHolder(k.lock.path) != 0 }
