// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/binary"

	"github.com/tableward/tableward/rules"
)

// layout is where struct ipt_entry and struct ip6t_entry have what.
type layout struct {
	match    int // size of struct ipt_ip, without what is behind its last field
	nfcache  int // unsigned int, of no use; then u16 target_offset, u16 next_offset, unsigned int comefrom
	elements int // size of the blobEntry without its matches and its target
}

var (
	layout4 = layout{match: 84, nfcache: 84, elements: 112}
	layout6 = layout{match: 133, nfcache: 136, elements: 168}
)

const (
	extensionHeader = 32 // struct xt_entry_match and xt_entry_target
	nameAt          = 2
	maxExtension    = 29 // XT_EXTENSION_MAXNAMELEN
	revisionAt      = 31
	errorTarget     = "ERROR"
	maxErrorName    = 30 // XT_FUNCTION_MAXNAMELEN
)

// blob is a table of x_tables as the kernel gives it: the built-in chains in the order of
// their hooks, then the user chains, each after an entry whose target ERROR has its name, then
// an entry ERROR. The last entry of a chain is its policy, or the return from a user chain.
type blob struct {
	layout
	names setNames

	valid       uint32    // hooks, as a mask
	begin, last [5]uint32 // of a hook's chain: offsets of the first entry and of its policy
	entries     int
	size        int

	data   []byte
	chains []blobChain
	at     map[int]string // user chains by the offset of their first entry
}

type blobChain struct {
	name        string
	begin, last int // offsets of the first entry, and of the policy
	hook        int // -1 for a user chain
}

// readInfo reads struct ipt_getinfo.
func (b *blob) readInfo(info []byte) {
	numbers := info[tableNameSize:]
	next := func() uint32 {
		n := binary.NativeEndian.Uint32(numbers)
		numbers = numbers[4:]
		return n
	}
	b.valid = next()
	for i := range b.begin {
		b.begin[i] = next()
	}
	for i := range b.last {
		b.last[i] = next()
	}
	b.entries, b.size = int(next()), int(next())
}

// read returns the chains, or those that are named. What does not fit to what was said before
// of the table is of another state of it.
func (b *blob) read(names []string) (map[string]rules.SavedChain, error) {
	if err := b.findChains(); err != nil {
		return nil, err
	}
	out := make(map[string]rules.SavedChain, len(b.chains))
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	var c content
	for _, chain := range b.chains {
		if len(names) > 0 && !wanted[chain.name] {
			continue
		}
		c.reset()
		for off := chain.begin; off < chain.last; {
			e, err := b.entry(off)
			if err == nil {
				err = b.rule(&c, e)
			}
			if err != nil {
				return nil, err
			}
			c.end()
			off += e.size
		}
		// They cost nothing more here, and would cost a read of the whole table later.
		saved := rules.SavedChain{Name: chain.name, Digest: c.digest(), Digests: c.digests(), Jumps: c.jumpsTo()}
		if chain.hook >= 0 {
			saved.Policy = b.policy(chain.last)
		}
		out[chain.name] = saved
	}
	return out, nil
}

// blobEntry is an entry of a table. The offset, the size and that of the target are within bounds.
type blobEntry struct {
	off, target, size int
}

func (b *blob) entry(off int) (blobEntry, error) {
	if off < 0 || off > len(b.data)-b.elements {
		return blobEntry{}, errNotUnderstood
	}
	e := blobEntry{
		off:    off,
		target: off + int(binary.NativeEndian.Uint16(b.data[off+b.nfcache+4:])),
		size:   int(binary.NativeEndian.Uint16(b.data[off+b.nfcache+6:])),
	}
	if e.target < off+b.elements || off+e.size > len(b.data) || e.target+extensionHeader > off+e.size {
		return blobEntry{}, errNotUnderstood
	}
	return e, nil
}

// comesFrom tells whether a packet can come to an entry from a hook.
func (b *blob) comesFrom(e blobEntry, hook int) bool {
	return binary.NativeEndian.Uint32(b.data[e.off+b.nfcache+8:])&(1<<hook) != 0
}

// targetName returns the name of the target of an entry.
func (b *blob) targetName(e blobEntry) []byte {
	return untilNUL(b.data[e.target+nameAt : e.target+nameAt+maxExtension])
}

// findChains takes the table apart.
//
// Where the chains of the hooks begin was said before, and maybe of another state of the table
// that had the same size. The kernel notes in each entry from which hooks it is reached. A
// hook's entry that is not its chain's first is reached as the one before it is, unless it is
// in the chain of another hook, or not reached at all.
func (b *blob) findChains() error {
	b.at = make(map[int]string)
	var before blobEntry
	n, open := 0, false
	for off := 0; off < len(b.data); n++ {
		e, err := b.entry(off)
		if err != nil {
			return err
		}
		end := off+e.size == len(b.data)
		hook := b.hookAt(off)
		isError := string(b.targetName(e)) == errorTarget
		if isError != end && isError && hook >= 0 || end && !isError {
			return errChanged
		}
		if open && (isError || hook >= 0) {
			b.chains[len(b.chains)-1].last = before.off
			open = false
		}
		switch {
		case end:
		case isError:
			name := b.data[e.target+extensionHeader : off+e.size]
			b.chains = append(b.chains, blobChain{
				name:  string(untilNUL(name[:min(len(name), maxErrorName)])),
				begin: off + e.size, hook: -1,
			})
			b.at[off+e.size] = b.chains[len(b.chains)-1].name
			open = true
		case hook >= 0:
			if !b.comesFrom(e, hook) || n > 0 && b.comesFrom(before, hook) {
				return errChanged
			}
			b.chains = append(b.chains, blobChain{name: hookNames[hook], begin: off, hook: hook})
			open = true
		case !open:
			return errNotUnderstood
		}
		before = e
		off += e.size
	}
	return b.check(n)
}

// hookAt returns the hook whose chain begins there, -1 if none does.
func (b *blob) hookAt(off int) int {
	for hook, begin := range b.begin {
		if b.valid&(1<<hook) != 0 && int(begin) == off {
			return hook
		}
	}
	return -1
}

// check compares the chains found with what was said before of the table.
func (b *blob) check(entries int) error {
	if entries != b.entries {
		return errChanged
	}
	var hooks uint32
	for _, c := range b.chains {
		if c.last < c.begin {
			return errNotUnderstood // a chain without its last entry
		}
		if c.hook >= 0 {
			hooks |= 1 << c.hook
			if int(b.last[c.hook]) != c.last {
				return errChanged
			}
		}
	}
	if hooks != b.valid {
		return errChanged
	}
	return nil
}

func untilNUL(b []byte) []byte {
	b, _, _ = bytes.Cut(b, []byte{0})
	return b
}
