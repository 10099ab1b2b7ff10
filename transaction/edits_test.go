// SPDX-License-Identifier: Apache-2.0

package transaction

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
)

// apply does to a list what the lines do to a chain.
func apply(list []string, lines []rules.Line) ([]string, error) {
	out := slices.Clone(list)
	inserting := false
	for _, l := range lines {
		switch l.Command {
		case rules.DeleteIndex:
			if inserting {
				return nil, fmt.Errorf("a deletion behind an insertion")
			}
			out = slices.Delete(out, l.Index-1, l.Index)
		case rules.Insert:
			inserting = true
			out = slices.Insert(out, l.Index-1, l.Rule.String())
		case rules.Append:
			inserting = true
			out = append(out, l.Rule.String())
		default:
			return nil, fmt.Errorf("command %d", l.Command)
		}
	}
	return out, nil
}

// length of a longest common part, by the plain way.
func longest(a, b []string) int {
	t := make([][]int, len(a)+1)
	for i := range t {
		t[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			t[i+1][j+1] = max(t[i][j+1], t[i+1][j])
			if a[i] == b[j] {
				t[i+1][j+1] = t[i][j] + 1
			}
		}
	}
	return t[len(a)][len(b)]
}

// The lines make after of before, and touch as few rules as can be.
func TestPropertyEditsAreRightAndSmallest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 12)
		text := func(ns []int) (out []string, rs []rules.Rule) {
			for _, n := range ns {
				r := rules.MustParseRule(fmt.Sprintf("-p tcp --dport %d -j ACCEPT", n+1))
				out, rs = append(out, r.String()), append(rs, r)
			}
			return out, rs
		}
		before, _ := text(list.Draw(rt, "before"))
		after, wanted := text(list.Draw(rt, "after"))
		most := rapid.SampledFrom([]int{len(after), len(after) / 2}).Draw(rt, "most new")
		lines, ok := editLines("tw-a", before, after, wanted, most)
		same := longest(before, after)
		if ok != (len(after)-same <= most && same > 0) {
			rt.Fatalf("edits: %v, though %d of %d rules stay", ok, same, len(after))
		}
		if !ok {
			return
		}
		got, err := apply(before, lines)
		if err != nil || !slices.Equal(got, after) {
			rt.Fatalf("%v\nbecame %v\nwant   %v (%v)", before, got, after, err)
		}
		if want := len(before) + len(after) - 2*same; len(lines) != want {
			rt.Fatalf("%d lines, %d would do", len(lines), want)
		}
	})
}

// One rule in the middle of a long chain costs what changes, not the chain.
func BenchmarkEdits(b *testing.B) {
	var before []string
	var wanted []rules.Rule
	for i := range 5000 {
		r := rules.MustParseRule(fmt.Sprintf("-p tcp --dport %d -j ACCEPT", i+1))
		before, wanted = append(before, r.String()), append(wanted, r)
	}
	r := rules.MustParseRule("-p udp --dport 1 -j ACCEPT")
	wanted = slices.Insert(wanted, 2500, r)
	after := slices.Insert(slices.Clone(before), 2500, r.String())
	for b.Loop() {
		if lines, ok := editLines("tw-a", before, after, wanted, len(after)); !ok || len(lines) != 1 {
			b.Fatal(len(lines))
		}
	}
}
