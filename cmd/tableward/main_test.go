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
	os.Exit(testMain(m))
}

// testMain keeps the locks of tables out of the machine's own folder. Tests run the program
// as other users too, who make their locks there as well.
func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tableward-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o1777); err != nil {
		panic(err)
	}
	if err := os.Setenv("TABLEWARD_STATE_DIR", dir); err != nil {
		panic(err)
	}
	return m.Run()
}
