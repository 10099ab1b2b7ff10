// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// TestKillLate holds that a tool which outlives its runtime, and writes when the next one has
// begun, is repaired: what was asked for wins, not what came last. On legacy it has inherited
// the lock, so that the next one begins when it has written.
func TestKillLate(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		for _, scene := range []string{"write", "delete", "unhook", "sweep"} {
			t.Run(scene, func(t *testing.T) {
				t.Parallel()
				s := newKillScene(scene, fewRules)
				want := newKillWant(t, b, v, s)
				p := killPoint{scene: scene, victim: killRuntime, where: atHalf, part: 1, parts: 2}
				p.short = true
				w := newKillWorld(t, b, v, p, want)
				block := w.child.expectBlock(t)
				w.tools.arm(t, w.bytes(block))
				w.child.goOn(t)
				w.tools.stopped(t)
				w.child.kill(t)
				finish := func() { w.tools.finish(t) }
				if b == dataplane.Legacy {
					w.checkLocked(t)
					finish()
					finish = func() {}
				}
				// The next run wants what was before.
				nextRun(t, w.kernel, w.table, s.before, finish)
				got := w.read(t)
				want.checkWhole(t, got)
				want.final = want.old
				want.checkFinal(t, "after a late write", got)
			})
		}
	})
}

// checkLocked holds that nobody can write.
func (w *killWorld) checkLocked(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := w.kernel.Restore(ctx, w.table, []byte("*filter\nCOMMIT\n"))
	var re *dataplane.RestoreError
	if !errors.As(err, &re) || re.Class != dataplane.Busy {
		t.Errorf("while the tool is at work a write gets %v, want a lock that is held", err)
	}
}
