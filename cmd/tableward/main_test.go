// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

// runVariable makes the test program the program itself, so that a test can run it as
// another user.
const runVariable = "TABLEWARD_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
