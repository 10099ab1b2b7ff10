// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// editable are rules of which no two are the same, with states among them.
func editable(v rules.IPVersion) []string {
	list := []string{
		"-m limit --limit 1/hour", "-s @A -j DROP", "-m statistic --mode nth --every 3 --packet 0", "-m set --match-set tw-s src -j tw-b",
		"-j tw-b", "-g tw-b", "-p tcp -m tcp --dport 80 -j ACCEPT", "-m comment --comment \"two words\"", "-m conntrack --ctstate NEW",
		"-m quota --quota 5000", "-j LOG", "", "-j RETURN", "-p udp -m multiport --dports 53,67 -j REJECT",
	}
	for i := range list {
		list[i] = forFamily(v, list[i])
	}
	return list
}

// Of a rule that goes the digest goes, of one that comes it comes, in its place, and all others
// stay as they are; a digest stands for a rule wherever that is.
func TestScanDigestOfEachRule(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		makeSets(t, k.ns, k.v, "tw-s")
		list := editable(k.v)
		lines := ":tw-a - [0:0]; :tw-b - [0:0]; :tw-1 - [0:0]"
		for _, r := range list {
			lines += "; -A tw-1 " + r
		}
		k.load("filter", lines)
		known := k.scan("filter", "tw-1").Chains["tw-1"].Digests
		if len(known) != len(list) || len(slices.Compact(slices.Sorted(slices.Values(known)))) != len(list) {
			t.Fatalf("%d rules, digests %x", len(list), known)
		}
		rnd := rand.New(rand.NewPCG(7, uint64(k.v)))
		var want []uint64
		for i := range 40 {
			var edit string
			r, at := rnd.IntN(len(list)), rnd.IntN(len(want)+1)
			switch {
			case i < 10 || at == len(want):
				edit = fmt.Sprintf("-I tw-a %d %s", at+1, list[r])
				want = slices.Insert(want, at, known[r])
			case i%2 == 0:
				edit = fmt.Sprintf("-R tw-a %d %s", at+1, list[r])
				want[at] = known[r]
			default:
				edit = fmt.Sprintf("-D tw-a %d", at+1)
				want = slices.Delete(want, at, at+1)
			}
			k.load("filter", edit)
			got := k.scan("filter", "tw-a").Chains["tw-a"]
			if !slices.Equal(got.Digests, want) || got.Digest != k.scan("filter").Chains["tw-a"].Digest {
				t.Fatalf("%s: %+v, want %x", edit, got, want)
			}
		}
		if empty := k.scan("filter", "tw-b", "FORWARD"); len(empty.Chains) != 2 || empty.Chains["FORWARD"].Digests == nil || empty.Chains["tw-b"].Digests == nil {
			t.Errorf("chains without rules: %+v", empty.Chains)
		}
	})
}

// What Expect says of a rule that stands for several has the digests of each.
func TestExpectDigestsOfSeveral(t *testing.T) {
	eachScanning(t, func(t *testing.T, _ dataplane.Backend, k scanning) {
		several := forFamily(k.v, "-s @A,@B -j tw-b")
		k.load("filter", ":tw-b - [0:0]; :tw-a - [0:0]; -A tw-a -p tcp; -A tw-a "+several+"; -A tw-a -p udp")
		live := k.scan("filter", "tw-a").Chains["tw-a"]
		got := k.expect("filter", chain("tw-a", "-p tcp", several, "-p udp"))["tw-a"]
		if len(got.Digests) != 4 || !slices.Equal(got.Digests, live.Digests) || got.Digest != live.Digest || strings.Join(got.Jumps, " ") != "tw-b" {
			t.Errorf("%+v, live %+v", got, live)
		}
	})
}
