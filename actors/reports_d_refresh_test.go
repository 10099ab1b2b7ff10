// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_d_test.go: D7, a refresh of which one
// chain cannot come back.

// ground is where a stranger and ipsets come and go.
type ground struct {
	dp       actors.Dataplane
	id       rules.TableID
	backend  string
	stranger func(lines string)
	set      func(there bool)
}

const aSet = "tw-there"

// grounds are simulators without a Try, and fresh kernels with one.
func grounds(t *testing.T, f func(t *testing.T, g ground)) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run("sim/"+string(b), func(t *testing.T) {
			sim := dataplane.NewSim(b)
			f(t, ground{dp: unaided{sim}, id: filter4, stranger: func(lines string) {
				if err := sim.Load(rules.IPv4, []byte("*filter\n"+lines+"COMMIT\n")); err != nil {
					t.Fatal(err)
				}
			}, set: func(there bool) {
				if sim.RemoveSet(rules.IPv4, aSet); there {
					sim.AddSet(rules.IPv4, aSet)
				}
			}})
		})
	}
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		ns := testns.New(t)
		k := freshKernel(t, ns, b)
		g := ground{dp: k, id: rules.TableID{IPVersion: v, Name: "filter"}, backend: k.Info().Backend}
		g.stranger = func(lines string) { putIn(t, k, g.id, lines) }
		g.set = func(there bool) {
			if !there {
				ipsetIn(t, ns, "destroy", aSet)
				return
			}
			ipsetIn(t, ns, "create", aSet, "hash:ip", "family", map[rules.IPVersion]string{rules.IPv4: "inet", rules.IPv6: "inet6"}[v])
		}
		f(t, g)
	})
}

// ipsetIn runs ipset in a namespace.
func ipsetIn(t *testing.T, ns string, args ...string) {
	t.Helper()
	for _, tool := range []string{"ipset", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
	for begin := time.Now(); ; {
		out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "ipset"}, args...)...).CombinedOutput()
		switch late := strings.Contains(string(out), "in use by a kernel component"); {
		case err == nil:
			return
		case !late || time.Since(begin) > 5*time.Second: // nft frees a rule some milliseconds after its commit
			t.Fatalf("ipset %v: %v, %s", args, err, out)
		}
	}
}

// broken are the events that tell of what cannot be put back.
func (d *docket) broken() (out []*transaction.Error) {
	for _, e := range d.events {
		var te *transaction.Error
		if e.Kind == actors.EventBroken && errors.As(e.Err, &te) {
			out = append(out, te)
		}
	}
	return out
}

// D7: a stranger flushed or deleted chains, took rules out of kernel chains, and destroyed the
// set of one chain. The next refresh repairs all but that chain, which is left as it is, or is
// a stub where it is gone and something jumps to it; an event names its rule; and once the set
// is back, the next refresh makes it whole.
func TestD07OneChainCannotComeBack(t *testing.T) {
	const (
		setRule = "-m set --match-set " + aSet + " src -j ACCEPT"
		stub    = `-m comment --comment "tableward: missing chain" -j DROP`
		flush   = "-F INPUT\n-F FORWARD\n-F tw-jumps\n-F tw-plain\n-F tw-set\n"
	)
	grounds(t, func(t *testing.T, g ground) {
		for name, c := range map[string]struct {
			stranger string
			left     []string // of tw-set, while the set is gone
		}{
			"flushed": {flush, []string{}},
			"deleted": {flush + "-X tw-set\n-X tw-plain\n", []string{stub}},
		} {
			g.set(true)
			d := newDocket(t, g.dp, g.id, g.backend)
			before := []transaction.Message{
				writes("set", "tw-set", "-p tcp -j RETURN", setRule), writes("plain", "tw-plain", "-p udp -j ACCEPT", "-j RETURN"),
				writes("jumps", "tw-jumps", "-p tcp -j tw-set", "-p udp -j tw-plain"), hooks("INPUT", "tw-jumps"), hooks("FORWARD", "tw-plain"),
			}
			d.batch(before...)
			d.results(before, actors.Rejected)
			whole := tableOf(t, g.dp, g.id)
			g.stranger(c.stranger)
			g.set(false)

			refresh := transaction.Message{ID: "refresh", Body: transaction.Refresh{}}
			want := map[string][]string{}
			for chain, texts := range whole {
				want[chain] = texts
			}
			want["tw-set"] = c.left
			for _, when := range []string{"first", "second"} {
				d.batch(refresh)
				d.results([]transaction.Message{refresh}, actors.Rejected)
				d.atMost(3, 10)
				if diff := cmp.Diff(want, tableOf(t, g.dp, g.id)); diff != "" {
					t.Errorf("%s, after the %s refresh (-want +got):\n%s\n%s", name, when, diff, d.story())
				}
				if b := d.broken(); len(b) == 0 || b[0].Chain != "tw-set" || b[0].Rule != setRule || !strings.Contains(b[0].Reason, aSet) {
					t.Errorf("%s, %s refresh: nothing, or the wrong thing, is told of: %v", name, when, b)
				}
			}

			g.set(true)
			d.batch(refresh)
			d.results([]transaction.Message{refresh}, actors.Rejected)
			if diff := cmp.Diff(whole, tableOf(t, g.dp, g.id)); diff != "" || len(d.broken()) > 0 {
				t.Errorf("%s, with the set back (-want +got):\n%s\n%s", name, diff, d.story())
			}
			d.batch(refresh)
			d.atMost(0, 0)
			clean := []transaction.Message{
				{ID: "unhook", Owner: "hooks", Body: transaction.RemoveRule("INPUT", rule("-j tw-jumps"), false)},
				{ID: "unhook too", Owner: "hooks", Body: transaction.RemoveRule("FORWARD", rule("-j tw-plain"), false)},
				{ID: "delete", Body: transaction.DeleteChains{Chains: []string{"tw-jumps", "tw-plain", "tw-set"}}},
			}
			d.batch(clean...)
			d.results(clean, actors.Rejected)
			g.set(false)
		}
	})
}

// D7: of a message with many chains nothing is applied when one of them is bad: a message is
// the unit that its sender chose. The others of the batch are whole.
func TestD07MessageIsAUnit(t *testing.T) {
	testns.Each(t, func(t *testing.T, _ dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		d := kernelDocket(t, k, v, "filter")
		var chains []rules.Chain
		for i := range 20 {
			text := "-p tcp -j RETURN"
			if i == 13 {
				text = lackedMatch
			}
			chains = append(chains, chainOf(fmt.Sprintf("tw-unit-%d", i), text))
		}
		msgs := among(10, transaction.Message{ID: "unit", Body: transaction.RewriteChains{Chains: chains}})
		d.batch(msgs...)
		d.results(msgs, actors.Rejected, "unit")
		if e := d.refusal("unit"); e.Chain != "tw-unit-13" {
			t.Errorf("%v", e)
		}
		for name := range tableOf(t, k, d.id) {
			if strings.HasPrefix(name, "tw-unit") {
				t.Errorf("%s is in the kernel", name)
			}
		}
	})
}
