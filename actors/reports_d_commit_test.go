// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_d_test.go, on real kernels: D12, errors
// that name the COMMIT line.

// D12: a kernel refusal costs few blocks and no rests, though a legacy tool says "line COMMIT"
// of it, as of a race: of four messages one, found with something to try in, and without.
func TestD12CommitLineIsNoRace(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for name, c := range map[string]struct {
			dp     actors.Dataplane
			blocks map[dataplane.Backend]int
		}{
			"kinds first": {k, map[dataplane.Backend]int{dataplane.NFT: 1, dataplane.Legacy: 1}},
			"live first":  {unsuspecting{k}, map[dataplane.Backend]int{dataplane.NFT: 2, dataplane.Legacy: 2}},
			// Legacy: once more, then a half with the culprit, it and its neighbour, the other half.
			"no scratch": {unaided{k}, map[dataplane.Backend]int{dataplane.NFT: 3, dataplane.Legacy: 6}},
		} {
			d := newDocket(t, c.dp, rules.TableID{IPVersion: v, Name: "filter"}, k.Info().Backend)
			msgs, bad := spread(4, 1, lackedMatch)
			for _, m := range msgs { // chains of its own, so that nothing is there already
				m.Body.(transaction.RewriteChains).Chains[0].Name += "-" + name[:1]
			}
			d.batch(msgs...)
			d.results(msgs, actors.Rejected, bad...)
			d.atMost(c.blocks[b], 10)
			for _, e := range d.events {
				if e.Kind == actors.EventWait {
					t.Errorf("%s: a rest\n%s", name, d.story())
				}
			}
		}
	})
}

// D12: nft names the COMMIT line when what a rule jumps to is not there. One look at the table
// tells whose fault that is: nobody's, when a chain of ours was deleted behind our back, which
// is made again; the message's, when it was a stranger's chain.
func TestD12UnknownTargetAtCommit(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for name, dp := range map[string]actors.Dataplane{"kinds first": k, "no scratch": unaided{k}} {
			d := newDocket(t, dp, rules.TableID{IPVersion: v, Name: "filter"}, k.Info().Backend)
			putIn(t, k, d.id, ":STRANGER - [0:0]\n")
			first := writes("first", "tw-ours", "-p tcp -j RETURN")
			d.batch(first)
			d.results([]transaction.Message{first}, actors.Rejected)
			putIn(t, k, d.id, "-F tw-ours\n-X tw-ours\n-X STRANGER\n")
			msgs := among(8, writes("innocent", "tw-a", "-p tcp -j tw-ours"), writes("guilty", "tw-b", "-p tcp -j STRANGER"))
			d.batch(msgs...)
			d.results(msgs, actors.Rejected, "guilty")
			d.atMost(2, 10)
			if e := d.refusal("guilty"); !errors.Is(e, transaction.ErrUnknownTarget) || e.Rule != "-p tcp -j STRANGER" {
				t.Errorf("%s: %v", name, e)
			}
			if got := held(t, k, d.id, "tw-ours"); cmp.Diff([]string{"-p tcp -j RETURN"}, got) != "" {
				t.Errorf("%s: tw-ours holds %q", name, got)
			}
			gone := transaction.Message{ID: "clean", Body: transaction.DeleteChains{Chains: []string{"tw-a"}}}
			d.batch(gone)
			d.results([]transaction.Message{gone}, actors.Rejected)
		}
	})
}
