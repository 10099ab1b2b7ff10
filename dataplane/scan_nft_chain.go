// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// maxNFTName is as long as a name may be in a request on every kernel. No tool gives a chain
// such a long one.
const maxNFTName = 127

// readChains reads the chains of the table, or those that are named.
func (s *nftScan) readChains(names []string) error {
	if len(names) == 0 {
		return s.dump(func() (uint64, error) {
			clear(s.chains)
			s.order = s.order[:0]
			s.content.reset()
			s.nl.begin(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, s.family)
			err := s.ask(unix.NFT_MSG_NEWCHAIN, s.addChain)
			return s.content.digest(), err
		})
	}
	for _, name := range names {
		if s.chains[name] != nil || len(name) > maxNFTName {
			continue
		}
		s.nl.begin(unix.NFT_MSG_GETCHAIN, 0, s.family)
		s.nl.add(unix.NFTA_CHAIN_TABLE, s.id.Name)
		s.nl.add(unix.NFTA_CHAIN_NAME, name)
		err := s.ask(unix.NFT_MSG_NEWCHAIN, s.addChain)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// addChain adds a chain, if it is one of the table that the tools show.
func (s *nftScan) addChain(attrs []byte) error {
	at, err := findAttributes(attrs, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HOOK,
		unix.NFTA_CHAIN_TYPE, unix.NFTA_CHAIN_POLICY)
	if err != nil || cString(at[0]) != s.id.Name {
		return err
	}
	c := &nftChain{SavedChain: rules.SavedChain{Name: cString(at[1]), Digest: emptyContent}}
	if at[2] != nil {
		in, err := inPlace(s.id.Name, c.Name, cString(at[3]), at[2])
		if err != nil || !in {
			return err
		}
		c.Policy = "DROP"
		if len(at[4]) == 4 && binary.BigEndian.Uint32(at[4]) == nfAccept {
			c.Policy = "ACCEPT"
		}
	}
	if s.chains[c.Name] != nil {
		return errChanged
	}
	s.content.text(c.Name)
	s.content.text(c.Policy)
	s.content.end()
	s.chains[c.Name] = c
	s.order = append(s.order, c)
	return nil
}

const nfAccept = 1 // NF_ACCEPT

// emptyContent is the digest of a chain without rules.
var emptyContent = (&content{}).digest()

// addUntouched adds the built-in chains that are not there: a chain is made by the first rule
// or policy that somebody gives it.
func (s *nftScan) addUntouched(snap rules.Snapshot, names []string) {
	for _, name := range rules.BuiltinChains(s.id.Name) {
		_, there := snap.Chains[name]
		if !there && (len(names) == 0 || slices.Contains(names, name)) {
			c := rules.SavedChain{Name: name, Policy: "ACCEPT", Digest: emptyContent}
			if s.named {
				c.Digests = []uint64{}
			}
			snap.Chains[name] = c
		}
	}
}

// inPlace tells whether a base chain is a built-in chain of the table: xtables-nft's
// xtables_ipv4, which is the same for both IP versions.
func inPlace(table, chain, kind string, hook []byte) (bool, error) {
	at, err := findAttributes(hook, unix.NFTA_HOOK_HOOKNUM, unix.NFTA_HOOK_PRIORITY)
	if err != nil {
		return false, err
	}
	if len(at[0]) != 4 || len(at[1]) != 4 {
		return false, errNotUnderstood
	}
	number, priority := binary.BigEndian.Uint32(at[0]), int32(binary.BigEndian.Uint32(at[1]))
	if !rules.IsBuiltin(table, chain) || number >= uint32(len(hookNames)) || hookNames[number] != chain {
		return false, nil
	}
	wantKind, want := "filter", map[string]int32{"raw": -300, "mangle": -150, "nat": -100, "security": 50}[table]
	switch {
	case table == "nat":
		wantKind = "nat"
		if chain == "INPUT" || chain == "POSTROUTING" {
			want = 100
		}
	case table == "mangle" && chain == "OUTPUT":
		wantKind = "route"
	}
	return kind == wantKind && priority == want, nil
}

// hookNames are the built-in chains in the order of the hooks' numbers.
var hookNames = [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
