// SPDX-License-Identifier: Apache-2.0

package dataplane

import "github.com/tableward/tableward/rules"

// Backend is one of the two kernel interfaces behind the tools. The empty Backend leaves
// the choice to NewKernel.
type Backend string

// The backends.
const (
	NFT    Backend = "nft"
	Legacy Backend = "legacy"
)

// maxDepthNFT is how many user chains in a row nf_tables takes below a built-in chain; the
// sixteenth is refused with the same words as a loop. The legacy backend has no such limit.
const maxDepthNFT = 15

// Info describes a dataplane.
type Info struct {
	Backend    string   // "nft", "legacy" or "sim"
	Emulates   string   // which backend a Sim imitates, else ""
	MaxDepth   int      // most user chains in a row below a built-in chain; 0 is no limit
	Extensions []string // targets found in the tool's module folder, sorted
	Version    string   // as the tool prints it
}

func maxDepth(b Backend) int {
	if b == NFT {
		return maxDepthNFT
	}
	return 0
}

// toolFamily returns the part of a tool's name that stands for the IP version.
func toolFamily(v rules.IPVersion) string {
	if v == rules.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// Kernel is the backend whose rules hold: the one that a simulator emulates, else Backend.
func (i Info) Kernel() string {
	if i.Emulates != "" {
		return i.Emulates
	}
	return i.Backend
}
