// SPDX-License-Identifier: Apache-2.0

package actors

import "time"

// Clock is the time that the runtime lives by: the real one, unless a test or a replay
// brings its own.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, on a goroutine of its own, when d has passed; the function
	// returned stops it, and reports whether it did so before f was called.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// RealClock is the clock of the machine.
type RealClock struct{}

// Now implements Clock.
func (RealClock) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (RealClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}
