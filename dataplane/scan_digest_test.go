// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

// Digests are kept in files: these never change.
func TestDigestIsForEver(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0x1096b8acb561cbcc, "a": 0xd8b39ea9aa01980d, "-j ACCEPT": 0x9cd6e29e48fa54,
		"-p tcp -m tcp --dport 80 -j ACCEPT": 0x125e38284f9335bf, strings.Repeat("0123456789abcdef", 5): 0x3597e441adcfbfb6,
	} {
		if got := digestOf([]byte(text)); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
	for list, want := range map[[3]uint64]uint64{{}: 0x3f6c08107e741e7b, {1, 2, 3}: 0x95803ecece67c38c} {
		if got := digestOfRules(list[:]); got != want {
			t.Errorf("%x: %#x, want %#x", list, got, want)
		}
	}
	if got := digestOfRules(nil); got != 0x1027abfbb1bde3a0 {
		t.Errorf("of no rule: %#x", got)
	}
}

// Each bit of what goes in changes about half of the digest, and no two inputs have the same,
// be they zeros or the constants that could wipe out what is before them.
func TestDigestTellsApart(t *testing.T) {
	seen := map[uint64]string{}
	add := func(what string, d uint64) {
		if other, found := seen[d]; found {
			t.Errorf("%s and %s: %#x", what, other, d)
		}
		seen[d] = what
	}
	for n := range 70 {
		b := make([]byte, n)
		zero := digestOf(b)
		add(fmt.Sprintf("%d zeros", n), zero)
		sum := 0
		for bit := range 8 * n {
			b[bit/8] ^= 1 << (bit % 8)
			d := digestOf(b)
			b[bit/8] ^= 1 << (bit % 8)
			add(fmt.Sprintf("bit %d of %d", bit, 8*n), d)
			differ := bits.OnesCount64(d ^ zero)
			sum += differ
			if differ < 8 || differ > 56 {
				t.Errorf("bit %d of %d changes %d bits", bit, 8*n, differ)
			}
		}
		if n > 0 && (sum < 30*8*n || sum > 34*8*n) {
			t.Errorf("%d bytes: %d bits change on average", n, sum/8/n)
		}
	}
	for _, k := range []uint64{mix0, mix1, mix2} {
		for i := range 100 {
			head := native.AppendUint64(make([]byte, 16), uint64(i))
			head[0] = byte(i)
			add(fmt.Sprintf("%d before %#x", i, k), digestOf(native.AppendUint64(head[:16], k)))
		}
	}
}

// The digest of a chain is of its rules in their order.
func TestDigestOfRules(t *testing.T) {
	seen := map[uint64][]uint64{}
	var lists [][]uint64
	for _, a := range []uint64{0, 1, mix0, mix1, mix2} {
		for _, b := range []uint64{0, 2, mix0, mix1, mix2} {
			lists = append(lists, []uint64{a, b}, []uint64{a, b, a})
		}
		lists = append(lists, []uint64{a})
	}
	for _, list := range append(lists, nil) {
		d := digestOfRules(list)
		if other, found := seen[d]; found && !slices.Equal(other, list) {
			t.Errorf("%x and %x: %#x", other, list, d)
		}
		seen[d] = list
	}
}

func BenchmarkDigest(b *testing.B) {
	for _, n := range []int{16, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			data := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				digestOf(data)
			}
		})
	}
}
