// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// content gathers of one chain the digests of its rules, each made of the bytes that are the
// same wherever the same rule is, and the chains that they jump to. Each part of a rule has
// its length before it, so that no two rules have the same bytes.
type content struct {
	buf   []byte   // of the rule that is being read
	rules []uint64 // of those before it
	jumps []string
}

func (c *content) reset() {
	c.buf, c.rules, c.jumps = c.buf[:0], c.rules[:0], nil
}

// end ends a rule, or whatever else is gathered one after the other.
func (c *content) end() {
	c.rules = append(c.rules, digestOf(c.buf))
	c.buf = c.buf[:0]
}

func (c *content) field(b []byte) {
	c.buf = binary.NativeEndian.AppendUint32(c.buf, uint32(len(b)))
	c.buf = append(c.buf, b...)
}

func (c *content) text(s string) {
	c.buf = binary.NativeEndian.AppendUint32(c.buf, uint32(len(s)))
	c.buf = append(c.buf, s...)
}

func (c *content) number(n uint32) { c.buf = binary.NativeEndian.AppendUint32(c.buf, n) }

func (c *content) jump(to string) { c.jumps = append(c.jumps, to) }

func (c *content) digest() uint64 { return digestOfRules(c.rules) }

// digests returns a copy of the digests of the rules, which is not nil.
func (c *content) digests() []uint64 { return append(make([]uint64, 0, len(c.rules)), c.rules...) }

// jumpsTo returns the chains that were jumped to, sorted, each once.
func (c *content) jumpsTo() []string {
	slices.Sort(c.jumps)
	return slices.Compact(c.jumps)
}

// setNames returns the name of the ipset with an index.
type setNames func(index uint16) (string, error)

// extension adds the bytes of a match or target of x_tables. The kernel gives zeros for those
// that it has for itself. What is left to mask are numbers that mean something only where they
// are: of sets, in whose place the name is taken, and of an open file.
func (c *content) extension(target bool, name string, revision uint8, info []byte, names setNames) error {
	c.text(name)
	c.number(uint32(revision))
	c.field(info)
	info = c.buf[len(c.buf)-len(info):]
	if name == "bpf" && revision == 1 && len(info) >= 8 && binary.NativeEndian.Uint16(info) != 0 {
		clear(info[4:8]) // xt_bpf_info_v1: the file of a program that has a path
	}
	at := setIndexes(target, name, revision)
	indexes := make([]uint16, 0, 3)
	for _, i := range at {
		if i+2 > len(info) {
			return errNotUnderstood
		}
		indexes = append(indexes, binary.NativeEndian.Uint16(info[i:]))
		clear(info[i : i+2])
	}
	for _, index := range indexes {
		const none = 0xFFFF // IPSET_INVALID_ID
		set := ""
		if index != none {
			var err error
			if set, err = names(index); err != nil {
				return err
			}
		}
		c.text(set)
	}
	return nil
}

// setIndexes returns where a match or target has indexes of sets: struct xt_set_info_match_v0
// and so on, of linux/netfilter/xt_set.h.
func setIndexes(target bool, name string, revision uint8) []int {
	switch {
	case !target && name == "set":
		return []int{0}
	case !target || name != "SET":
		return nil
	case revision == 0:
		return []int{0, 20}
	case revision < 3:
		return []int{0, 4}
	}
	return []int{0, 4, 8}
}

// setsOf returns the names of the sets of the reader's namespace, each of which is asked for
// once. A rule holds its set, which can then neither be destroyed nor renamed, so an unknown
// index is that of a rule which is no longer there.
func (r *reader) setsOf() setNames {
	known := make(map[uint16]string)
	return func(index uint16) (string, error) {
		if name, ok := known[index]; ok {
			return name, nil
		}
		name, err := r.setName(index)
		if err == nil && name == "" {
			err = errChanged
		}
		known[index] = name
		return name, err
	}
}

// setName asks for the name of a set, as struct ip_set_req_get_set of
// linux/netfilter/ipset/ip_set.h has it, on an IPv4 socket for both IP versions.
func (r *reader) setName(index uint16) (string, error) {
	const (
		soIPSet    = 83 // SO_IP_SET
		getByIndex = 7  // IP_SET_OP_GET_BYINDEX
		protocol   = 6  // the oldest that every kernel still takes
		maxName    = 32
	)
	if err := r.openInet(unix.AF_INET); err != nil {
		return "", err
	}
	var req [8 + maxName]byte
	binary.NativeEndian.PutUint32(req[0:], getByIndex)
	binary.NativeEndian.PutUint32(req[4:], protocol)
	binary.NativeEndian.PutUint16(req[8:], index)
	if err := getsockopt(r.inet, unix.SOL_IP, soIPSet, req[:]); err != nil {
		return "", fmt.Errorf("name of ipset %d: %w", index, err)
	}
	return cString(req[8:]), nil
}

// cString returns the bytes before the first NUL. What is behind is whatever was there.
func cString(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
