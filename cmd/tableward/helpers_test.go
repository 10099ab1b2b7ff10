// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
)

// result is what a run of the program gave.
type result struct {
	code           int
	stdout, stderr string
}

// runApp runs the program in this process.
func runApp(t *testing.T, ctx context.Context, a *app, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := a.run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// runOn runs the program on a simulator.
func runOn(t *testing.T, sim *dataplane.Sim, args ...string) result {
	t.Helper()
	return runApp(t, t.Context(), simApp(sim), "", args...)
}

func simApp(sim *dataplane.Sim) *app {
	return &app{open: func(context.Context, *flags) (kernel, error) { return simulator{sim}, nil }}
}

// write makes a file in a folder of the test's own and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, text)
	return path
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
