// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tableward/tableward/dataplane"
)

func TestRunExitStatus(t *testing.T) {
	good, worse := write(t, "good.rules", goodRules), write(t, "worse.rules", worseRules)
	two := write(t, "two.rules", goodRules+"*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
	denied := &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no permission: CAP_NET_ADMIN is missing", Err: os.ErrPermission}
	held := &dataplane.RestoreError{Class: dataplane.Unavailable, Err: &dataplane.TableHeldError{Table: filter4, PID: 12}}
	for _, c := range []struct {
		name string
		app  *app
		args []string
		code int
		says string
	}{
		{"held", failing(dataplane.OpRestore, held), []string{good}, exitEnvironment, "error: table filter is held by pid 12"},
		{"one held", failingTable("filter", held), []string{two}, exitEnvironment, "error: table filter is held by pid 12"},
		{"denied", failing(dataplane.OpRestore, denied), []string{good}, exitPermission, "CAP_NET_ADMIN"},
		{"cannot open", noKernel(&dataplane.RestoreError{Class: dataplane.Unavailable, Reason: "no tools"}), []string{good}, exitEnvironment, "no tools"},
		{"may not open", noKernel(os.ErrPermission), []string{good}, exitPermission, "CAP_NET_ADMIN"},
		{"refused", simApp(newSim()), []string{worse}, exitUsage, "refused: " + worse},
		{"strict", simApp(newSim()), []string{"--strict", good, worse}, exitUsage, "refused: " + worse},
		{"stdin", simApp(newSim()), []string{"-"}, exitUsage, "cannot be read again"},
		{"empty folder", simApp(newSim()), []string{t.TempDir()}, exitUsage, "no file"},
		{"negative grace", simApp(newSim()), []string{"--grace", "-1s", good}, exitUsage, "below 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startRun(t, c.app, c.args...)
			r.ends(t, c.code)
			if out := r.stderr.String(); !strings.Contains(out, c.says) {
				t.Errorf("stderr lacks %q:\n%s", c.says, out)
			}
		})
	}
}

func failingTable(name string, err error) *app {
	sim := newSim()
	sim.Hook = func(c dataplane.Call) error {
		if c.Table.Name == name && c.Op == dataplane.OpRestore {
			return err
		}
		return nil
	}
	return simApp(sim)
}

// TestRunSignals holds what each signal ends with, and that a second one waits for nothing.
func TestRunSignals(t *testing.T) {
	good := write(t, "good.rules", goodRules)
	r := startRun(t, simApp(newSim()), good)
	r.stderr.wait(t, "ready:")
	r.signals <- syscall.SIGINT
	r.ends(t, exitInterrupted)

	sim, hangs, release := newSim(), make(chan struct{}), make(chan struct{})
	var once sync.Once
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore {
			once.Do(func() { close(hangs) })
			<-release
		}
		return nil
	}
	defer close(release)
	r = startRun(t, simApp(sim), good)
	<-hangs
	r.signals <- syscall.SIGTERM
	r.signals <- syscall.SIGTERM
	r.ends(t, exitInterrupted)
}

// TestRunEnvironment holds that the flags of run have their variables, and that a log for
// programs has everything.
func TestRunEnvironment(t *testing.T) {
	t.Setenv("TABLEWARD_GRACE", "soon")
	startRun(t, simApp(newSim()), write(t, "good.rules", goodRules)).ends(t, exitUsage)
	t.Setenv("TABLEWARD_GRACE", "1s")
	t.Setenv("TABLEWARD_REFRESH", "1h")
	t.Setenv("TABLEWARD_LOG_FORMAT", "json")
	r := startRun(t, simApp(newSim()), write(t, "good.rules", goodRules))
	r.stderr.wait(t, `"message":"ready: 1 owner, 2 messages applied, 0 failing"`)
	r.stop(t)
}

// TestRunDryRun holds that a dry run prints the restore input and touches nothing.
func TestRunDryRun(t *testing.T) {
	sim := newSim()
	a := &app{open: func(ctx context.Context, f *flags) (kernel, error) { return simulator{sim}, nil }}
	r := startRun(t, a, "--dry-run", write(t, "good.rules", goodRules))
	r.ends(t, exitOK)
	if out := r.stdout.String(); !strings.Contains(out, "-A INPUT -j good-a\n") || len(chainsIn(t, sim)) > 0 {
		t.Errorf("printed %q, kernel %s", out, fmt.Sprint(chainsIn(t, sim)))
	}
}
