// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"flag"
	"os"
	"testing"
)

// The property tests run from a fixed seed, so that a run of the tests is the same each
// time. In the soak they run long and from a new seed, which a failure prints.
func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.seed": "1", "rapid.checks": "100"} {
		if os.Getenv("TABLEWARD_SOAK") != "" {
			value = map[string]string{"rapid.seed": "0", "rapid.checks": "5000"}[name]
		}
		given := false
		flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
		if !given {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
