// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// Who is killed, and where in the life of a block.
const (
	killRuntime = "runtime"
	killTool    = "tool"

	atBefore = "before the write"
	atHalf   = "within the write"
	atAfter  = "after COMMIT"
)

const (
	fewRules  = 3
	manyRules = 140 // two chains of these are more than a pipe holds
	pipeSize  = 64 << 10
)

// killPoint is one place to kill at.
type killPoint struct {
	scene, victim, where string
	part, parts          int  // how much of the block is written by then, where it is cut
	short                bool // the block is to fit into a pipe
}

// killPoints returns all places; in the soak five times each, cut at different places.
func killPoints() []killPoint {
	rounds := 1
	if os.Getenv("TABLEWARD_SOAK") != "" {
		rounds = 5
	}
	var points []killPoint
	for _, scene := range []string{"write", "delete", "unhook", "sweep"} {
		for _, victim := range []string{killRuntime, killTool} {
			for _, where := range []string{atBefore, atHalf, atAfter} {
				for round := range rounds {
					points = append(points, killPoint{scene: scene, victim: victim, where: where, part: round + 1, parts: rounds + 1})
				}
			}
		}
	}
	return points
}

// rules is the length of the scene's chains. A runtime that dies within a write leaves in the
// pipe what it holds, so that only a long block is cut.
func (p killPoint) rules() int {
	if p.scene == "write" && p.where == atHalf && !p.short {
		return manyRules
	}
	return fewRules
}

// bytes is what the tool gets of a block before it stops.
func (p killPoint) bytes(block int) int {
	switch p.where {
	case atBefore:
		return 0
	case atHalf:
		part := block * p.part / p.parts
		if p.victim == killRuntime && !p.short {
			part = max(0, part-pipeSize) // the rest of it is in the pipe
		}
		return part
	}
	return block
}

// TestKill holds that a runtime, or a tool, can be killed at any time: no chain is ever half
// written, and after the next start the kernel holds what is asked for.
func TestKill(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		wants := map[string]killWant{}
		for _, p := range killPoints() {
			key := fmt.Sprint(p.scene, p.rules())
			if _, ok := wants[key]; !ok {
				wants[key] = newKillWant(t, b, v, newKillScene(p.scene, p.rules()))
			}
			want := wants[key]
			t.Run(fmt.Sprintf("%s/%s/%s/%d of %d", p.scene, p.victim, p.where, p.part, p.parts), func(t *testing.T) {
				t.Parallel()
				newKillWorld(t, b, v, p, want).run(t)
			})
		}
	})
}

// killWorld is a namespace in which something is killed.
type killWorld struct {
	killPoint
	want   killWant
	table  rules.TableID
	kernel *dataplane.Kernel // of who looks on, and of the next run
	tools  *killTools
	child  *killProcess
}

func newKillWorld(t *testing.T, b dataplane.Backend, v rules.IPVersion, p killPoint, want killWant) *killWorld {
	t.Helper()
	opts := testns.Options(t, testns.New(t), b)
	seedKill(t, opts, v, killSeed, killOrphans)
	w := &killWorld{
		killPoint: p, want: want, table: rules.TableID{IPVersion: v, Name: "filter"},
		kernel: openKill(t, opts), tools: newKillTools(t, b),
	}
	opts.ToolDir = w.tools.dir
	w.child = startKillProcess(t, killSpec{Kernel: opts, Table: w.table, Scene: p.scene, Rules: p.rules()})
	return w
}

func (w *killWorld) run(t *testing.T) {
	block := w.child.expectBlock(t)
	before := w.read(t)
	w.kill(t, block, before)
	after := w.read(t)
	w.want.checkWhole(t, after)
	w.checkPoint(t, block, before, after)
	if w.victim == killTool {
		w.recover(t)
	}
	nextRun(t, w.kernel, w.table, newKillScene(w.scene, w.rules()).final)
	w.want.checkFinal(t, "after the next start", w.read(t))
}

// kill brings the child to its point and kills it, or its tool. It returns when nothing of
// what was killed can reach the kernel any more.
func (w *killWorld) kill(t *testing.T, block int, before killTable) {
	t.Helper()
	switch {
	case w.victim == killRuntime && w.where == atBefore:
		w.child.kill(t)
	case w.victim == killRuntime && w.where == atAfter:
		w.child.goOn(t)
		w.child.expect(t, "restored false")
		w.child.kill(t)
	default:
		w.killWithin(t, block, before)
	}
}

// killWithin kills while the tool has a part of its input.
func (w *killWorld) killWithin(t *testing.T, block int, before killTable) {
	t.Helper()
	w.tools.arm(t, w.bytes(block))
	w.child.goOn(t)
	tool := w.tools.stopped(t)
	for w.where == atAfter && before.equal(w.read(t)) {
		// The tool has the line that makes it commit and says nothing while it does.
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	if w.victim == killTool {
		if err := unix.Kill(tool, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	} else {
		w.child.kill(t)
	}
	w.tools.finish(t)
	if w.victim == killTool {
		w.child.expect(t, "restored true")
	}
}

// checkPoint holds that the kill came where it was meant to: else the test tests nothing.
func (w *killWorld) checkPoint(t *testing.T, block int, before, after killTable) {
	t.Helper()
	same := before.equal(after)
	switch cut := w.victim == killTool || w.bytes(block)+pipeSize < block; {
	case w.where == atAfter && same:
		t.Error("the block was not committed")
	case (w.where == atBefore || w.where == atHalf && cut) && !same:
		t.Error("the block was committed")
	}
}

// recover holds that a runtime whose tool was killed comes to its wishes by itself.
func (w *killWorld) recover(t *testing.T) {
	t.Helper()
	w.child.goOn(t)
	w.child.expect(t, "done")
	w.want.checkFinal(t, "by the runtime that lives on", w.read(t))
	w.child.goOn(t)
	w.child.end(t)
}

func (w *killWorld) read(t *testing.T) killTable {
	t.Helper()
	return readKill(t, w.kernel, w.table)
}
