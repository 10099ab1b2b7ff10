// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// hooksBatch is a batch of 1,000 rules of a built-in chain, of which those numbered are
// refused there: the first for itself, the others for what they reach.
func hooksBatch(bad []int) (b dataplane.Batch, want []string) {
	const owner = "-m owner --socket-exists "
	input := rules.Chain{Name: "INPUT"}
	var hooks []string
	for i := range 1000 {
		name := fmt.Sprintf("tw-%d", i)
		text, jump := "-p tcp --dport 80 -j ACCEPT", "-j "+name
		switch slices.Index(bad, i) {
		case -1:
		case 0:
			jump = owner + jump
			hooks = append(hooks, fmt.Sprintf("INPUT %d from INPUT", i))
		default:
			text = owner + "-j ACCEPT"
			want = append(want, name+" 0 from INPUT")
		}
		b.Chains = append(b.Chains, chain(name, text))
		input.Rules = append(input.Rules, rules.MustParseRule(jump))
	}
	b.Kernel = []rules.Chain{input}
	return b, append(want, hooks...)
}

// Many rules of built-in chains take few runs of the tool, also where some are at fault.
func TestKernelCheckProbes(t *testing.T) {
	for _, c := range []struct {
		bad         []int
		nft, legacy int64 // at most so many probes
	}{
		{nil, 12, 5},
		{[]int{617}, 30, 30},
		{[]int{333, 0, 998}, 50, 60},
	} {
		batch, want := hooksBatch(c.bad)
		for b, most := range map[dataplane.Backend]int64{dataplane.NFT: c.nft, dataplane.Legacy: c.legacy} {
			k := newKernel(t, testns.Options(t, testns.New(t), b))
			var got []string
			for _, line := range verdicts(t, k, filter, batch) {
				where, _, _ := strings.Cut(line, ": ")
				got = append(got, where)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %v at fault (-want +got):\n%s", b, c.bad, diff)
			}
			if s := k.Stats(); s.Probes > most || s.Runs != 0 {
				t.Errorf("%s, %v at fault: %+v, want %d probes at most", b, c.bad, s, most)
			}
		}
	}
}
