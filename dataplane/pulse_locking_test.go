// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A tool that does not lock the file that it is told to closes the real one itself. Its writes
// cannot be told from those of others, so the pulse changes with each; but Watch does not tell
// of them.
func TestPulseToolLocksItself(t *testing.T) {
	ns := testns.New(t)
	o := testns.Options(t, ns, dataplane.Legacy)
	o.ToolDir = t.TempDir()
	for _, name := range []string{"iptables-legacy-restore", "iptables-legacy-save"} {
		script := "#!/bin/sh\nXTABLES_LOCKFILE=" + o.LockFile + " exec " + name + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(o.ToolDir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := pulsing{newKernel(t, o), t, dataplane.Legacy, rules.IPv4, ns, o.LockFile}
	dataplane.SetWatchTick(k.Kernel, time.Millisecond)
	w := k.watch()
	before := k.pulse("filter")
	for range 3 {
		k.load("filter", ":tw-a - [0:0]; -A tw-a -j ACCEPT")
		after := k.pulse("filter")
		if after <= before || k.pulse("filter") != after {
			t.Errorf("pulse %d, then %d, then %d", before, after, k.pulse("filter"))
		}
		before = after
	}
	k.foreign(filepath.Join(t.TempDir(), "lock"), "iptables -A tw-a -j DROP")
	if k.pulse("filter") <= before {
		t.Error("a foreign change is not seen")
	}
	// Only who closes the lock file is told without a table.
	if c := w.next(); c.Table != "filter" {
		t.Errorf("own writes: %+v", c)
	}
	before = k.pulse("filter")
	k.foreign(k.lock, "iptables -R tw-a 1 -j DROP")
	if k.pulse("filter") <= before {
		t.Error("a foreign change with the lock is not seen")
	}
	if c := w.next(); c.Table != "" {
		t.Errorf("%+v", c)
	}
}
