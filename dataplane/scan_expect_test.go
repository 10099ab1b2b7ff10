// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// Chains that cannot be had in a scratch namespace are left out, and keep no other from being
// expected.
func TestExpect(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		chains := []rules.Chain{
			chain("tw-none"),
			chain("tw-a", "-p tcp --dport 80 -j tw-b", "-g tw-a", "-j tw-a"),
			chain("tw-option", "-p tcp", "-p tcp --bogus"),
			chain("tw-kernel", "-p tcp", "-p tcp -j MASQUERADE"), // of which legacy names no line
			chain("tw-timer", "-j IDLETIMER --timeout 9 --label tw-l"),
			chain("tw-builtin", "-j INPUT"),
			chain("INPUT", "-m owner --socket-exists -j tw-a"), // refused where it is reached from there
			chain("tw-set", "-m set --match-set tw-s src -j SET --add-set tw-t dst"),
			chain("tw-log", "-g LOG"), chain("tw-goto", "-g QUEUE"),
		}
		makeSets(t, k.ns, k.v, "tw-t", "tw-s")
		k.load("filter", ":tw-a - [0:0]; :tw-b - [0:0]; :tw-none - [0:0]; :tw-set - [0:0]; :LOG - [0:0]; :tw-log - [0:0]; :tw-input - [0:0]; "+
			":tw-line - [0:0]; -A tw-line -j LOG; "+
			"-A tw-a -p tcp --dport 80 -j tw-b; -A tw-a -g tw-a; -A tw-a -j tw-a; -A tw-log -g LOG; "+
			"-A tw-set -m set --match-set tw-s src -j SET --add-set tw-t dst; -A tw-input -m owner --socket-exists -j tw-a")
		before := k.scan("filter")
		want := k.scan("filter", "tw-none", "tw-a", "tw-set", "tw-log", "tw-input", "tw-line").Chains
		line := want["tw-line"].Digest
		delete(want, "tw-line")
		want["INPUT"] = want["tw-input"]
		delete(want, "tw-input")
		c := want["INPUT"]
		c.Name = "INPUT"
		want["INPUT"] = c
		for range 3 {
			got := k.expect("filter", chains...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-live +expected\n%s", diff)
			}
		}
		if got := k.expect("filter", chain("tw-log", "-j LOG"))["tw-log"].Digest; got == 0 || got == line {
			t.Errorf("a jump to a chain LOG that an earlier Expect needed")
		}
		if got := k.expect("filter"); len(got) != 0 {
			t.Errorf("of nothing %v", got)
		}
		if got := differ(before, k.scan("filter")); len(got) > 0 {
			t.Errorf("the live table has changed: %q", got)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		if _, err := k.Expect(ctx, k.id("filter"), chains); restoreError(t, err).Class == 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("at the end of the context: %v", err)
		}
	})
}

// More chains than go into one block, some of them refused.
func TestExpectMany(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		var chains []rules.Chain
		lines := ""
		for i := range 250 {
			c := chain(fmt.Sprintf("tw-%d", i), fmt.Sprintf("-p tcp -m tcp --dport %d -j tw-x", i+1))
			lines += fmt.Sprintf(":%s - [0:0]; -A %s %s; ", c.Name, c.Name, c.Rules[0])
			if i%100 == 7 {
				c.Rules = append(c.Rules, rules.MustParseRule("-j MASQUERADE"))
			}
			chains = append(chains, c)
		}
		k.load("filter", ":tw-x - [0:0]; "+lines+"-A tw-x -p tcp")
		var names []string
		for i, c := range chains {
			if i%100 != 7 {
				names = append(names, c.Name)
			}
		}
		want := k.scan("filter", names...).Chains
		if diff := cmp.Diff(want, k.expect("filter", chains...)); diff != "" {
			t.Errorf("-live +expected\n%s", diff)
		}
	})
}

// Expect of chains of ten rules in a scratch namespace that is there already.
func BenchmarkExpect(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, n := range []int{1, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", backend, n), func(b *testing.B) {
				k := newScanning(b, backend, 4)
				var chains []rules.Chain
				for i := range n {
					c := chain(fmt.Sprintf("tw-%d", i), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
					for j := range 9 {
						c.Rules = append(c.Rules, rules.MustParseRule(fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -m comment --comment \"rule %d\" -j tw-x", i/250, i%250, j, j)))
					}
					chains = append(chains, c)
				}
				k.expect("filter", chains...)
				for b.Loop() {
					if got := k.expect("filter", chains...); len(got) != n {
						b.Fatalf("%d digests", len(got))
					}
				}
			})
		}
	}
}
