// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// world is a fresh kernel and a fresh simulator.
type world struct {
	k   *dataplane.Kernel
	sim *dataplane.Sim
	v   rules.IPVersion
	ns  string
}

func newWorld(t *testing.T, b dataplane.Backend, v rules.IPVersion) world {
	t.Helper()
	ns := testns.New(t)
	k, err := dataplane.NewKernel(context.Background(), testns.Options(t, ns, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return world{k, dataplane.NewSim(b), v, ns}
}

func (w world) addSets(t *testing.T, names ...string) {
	t.Helper()
	makeSets(t, w.ns, w.v, names...)
	for _, name := range names {
		w.sim.AddSet(w.v, name)
	}
}

// TestSimConformsCases gives every case of the repository to both, for both IP versions.
func TestSimConformsCases(t *testing.T) {
	files := caseFiles(t)
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		for _, c := range files {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, b, v)
				w.addSets(t, c.sets...)
				if c.pre != "" {
					conforms(t, w.k, w.sim, v, readCase(t, c.pre).input)
				}
				conforms(t, w.k, w.sim, v, c.input)
			})
		}
	})
}

// TestSimConformsLogs gives both what the kernel of each log went through.
func TestSimConformsLogs(t *testing.T) {
	logs := logFiles(t)
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		for _, l := range logs {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, b, v)
				for _, s := range l.steps {
					w.addSets(t, s.sets...)
					if s.restore != "" {
						conforms(t, w.k, w.sim, v, s.restore)
					}
				}
			})
		}
	})
}
