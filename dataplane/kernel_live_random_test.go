// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// Random blocks come to the same through a tool that is kept open as each through a tool of its
// own: the table, the class, the line, and the words. A refusal ends the tool, and changes
// nothing, so that most of them are left out.
func TestLegacyOpenToolSameAsOneShot(t *testing.T) {
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		t.Run(string(dataplane.Legacy)+map[rules.IPVersion]string{rules.IPv4: "4", rules.IPv6: "6"}[v], func(t *testing.T) {
			t.Parallel()
			kernel := func() *dataplane.Kernel {
				ns := testns.New(t)
				makeSets(t, ns, v, randomSets...)
				return newKernel(t, testns.Options(t, ns, dataplane.Legacy))
			}
			open, each := kernel(), kernel()
			each.NeverLive()
			g := newGenerator(17, dataplane.Legacy, v, vocabularyRules(t))
			id := rules.TableID{IPVersion: v, Name: g.table}
			blocks, shared, last := 0, 0, 0
			for blocks < 200 {
				g.lines = g.lines[:0]
				g.block()
				input := strings.Join(g.lines, "\n") + "\n"
				want := ask(t, each, id, input)
				if want.Class != "" && g.IntN(8) > 0 {
					continue
				}
				got := ask(t, open, id, input)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("block %d (-one tool each +kept open):\n%s\n%s", blocks, diff, input)
				}
				blocks++
				if pid := open.LivePID(id); pid != 0 {
					if pid == last {
						shared++
					}
					last = pid
				}
				if each.LivePID(id) != 0 {
					t.Fatal("a tool that should not be is kept open")
				}
			}
			t.Logf("%d blocks, %d through the tool of the one before", blocks, shared)
			if shared < blocks/3 {
				t.Errorf("of %d blocks only %d went through the tool of the one before", blocks, shared)
			}
		})
	}
}
