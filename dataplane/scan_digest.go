// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"math/bits"
)

// The constants of wyhash, whose two-multiply mixing this is, in the form that keeps both
// factors: no bytes of a rule can wipe out what was before them.
const (
	mix0 = 0xa0761d6478bd642f
	mix1 = 0xe7037ed1a0b428db
	mix2 = 0x8ebc6af09c88c6e3
)

func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return a ^ low ^ b ^ high
}

// digestOf is the digest of some bytes. It is the same in every process, on every machine and
// in every release, because digests are kept in files: never change it. A hash that goes byte
// by byte would take ten times as long, and a table has megabytes.
func digestOf(b []byte) uint64 {
	g := mix(uint64(len(b))^mix0, mix1)
	h := g
	for ; len(b) >= 32; b = b[32:] { // two chains, so that one does not wait for the other
		g = mix(binary.LittleEndian.Uint64(b)^mix1, binary.LittleEndian.Uint64(b[8:])^g)
		h = mix(binary.LittleEndian.Uint64(b[16:])^mix2, binary.LittleEndian.Uint64(b[24:])^h)
	}
	var rest [32]byte // what is behind the last byte is told apart by the length
	copy(rest[:], b)
	g = mix(binary.LittleEndian.Uint64(rest[:])^mix1, binary.LittleEndian.Uint64(rest[8:])^g)
	h = mix(binary.LittleEndian.Uint64(rest[16:])^mix2, binary.LittleEndian.Uint64(rest[24:])^h)
	return mix(g^mix2, h^mix0)
}

// digestOfRules is the digest of a chain whose rules have these.
func digestOfRules(rules []uint64) uint64 {
	h := mix(uint64(len(rules))^mix2, mix1)
	for _, d := range rules {
		h = mix(d^mix1, h^mix0)
	}
	return mix(h^mix2, mix0)
}
