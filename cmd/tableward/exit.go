// SPDX-License-Identifier: Apache-2.0

package main

// The exit statuses that scripts rely on. Of several that fit, the order is: interrupted,
// usage, permission, environment, partly.
const (
	exitOK          = 0
	exitFindings    = 1   // check: findings; replay: differs
	exitUsage       = 2   // bad usage, no usable file, or a bad file with --strict
	exitPartly      = 3   // something was not applied
	exitEnvironment = 4   // nothing could be applied because of the environment
	exitPermission  = 7   // nothing could be applied for want of permission
	exitInterrupted = 130 // by a signal
)

// exitError ends the program with a status. A nil err has been reported already.
type exitError struct {
	code int
	err  error
}

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the error to report.
func (e *exitError) Unwrap() error { return e.err }
