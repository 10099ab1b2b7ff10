// SPDX-License-Identifier: Apache-2.0

package dataplane

import "encoding/binary"

// policy returns the policy of a built-in chain.
func (b *blob) policy(off int) string {
	e, err := b.entry(off)
	if err != nil || e.target+extensionHeader+4 > off+e.size {
		return ""
	}
	switch int32(binary.NativeEndian.Uint32(b.data[e.target+extensionHeader:])) {
	case -1: // -NF_DROP - 1
		return "DROP"
	case -2:
		return "ACCEPT"
	}
	return ""
}

// rule adds a rule.
func (b *blob) rule(c *content, e blobEntry) error {
	c.field(b.data[e.off : e.off+b.match])
	for off := e.off + b.elements; off < e.target; {
		if off+extensionHeader > e.target {
			return errNotUnderstood
		}
		size := int(binary.NativeEndian.Uint16(b.data[off:]))
		if size < extensionHeader || off+size > e.target {
			return errNotUnderstood
		}
		if err := b.extension(c, false, b.data[off:off+size]); err != nil {
			return err
		}
		off += size
	}
	end := e.off + e.size
	if size := int(binary.NativeEndian.Uint16(b.data[e.target:])); size < extensionHeader || e.target+size > end {
		return errNotUnderstood
	} else if len(b.targetName(e)) > 0 {
		return b.extension(c, true, b.data[e.target:e.target+size])
	}
	return b.verdict(c, e)
}

// extension adds a match or a target.
func (b *blob) extension(c *content, target bool, x []byte) error {
	name := string(untilNUL(x[nameAt : nameAt+maxExtension]))
	return c.extension(target, name, x[revisionAt], x[extensionHeader:], b.names)
}

// verdict adds the verdict of a standard target: the offset of a user chain's first entry,
// that of the next entry for a rule without a target, or a negative number.
func (b *blob) verdict(c *content, e blobEntry) error {
	if e.target+extensionHeader+4 > e.off+e.size {
		return errNotUnderstood
	}
	verdict := int32(binary.NativeEndian.Uint32(b.data[e.target+extensionHeader:]))
	switch {
	case verdict < 0:
		c.text("verdict")
		c.number(uint32(verdict))
	case int(verdict) == e.off+e.size:
		c.text("none")
	default:
		to, found := b.at[int(verdict)]
		if !found {
			return errNotUnderstood
		}
		c.jump(to)
		c.text("chain")
		c.text(to)
	}
	return nil
}
