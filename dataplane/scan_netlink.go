// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// netfilter is a netlink socket to nf_tables. It is not safe for concurrent use.
type netfilter struct {
	fd  int
	seq uint32
	req []byte
	buf []byte

	parts int // in which the latest answer came
}

// headerSize is the size of struct nlmsghdr and struct nfgenmsg.
const headerSize = unix.SizeofNlMsghdr + 4

func newNetfilter(fd int) (*netfilter, error) {
	// A kernel answers at once, and no larger than 32 KiB at a time.
	err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return &netfilter{fd: fd, buf: make([]byte, 64<<10)}, nil
}

// nfMessage is a message of nf_tables.
type nfMessage struct {
	kind       uint16 // NFT_MSG_NEWCHAIN and so on
	generation uint16 // its lower half
	attrs      []byte
}

// begin writes the header of a request, whose attributes follow.
func (s *netfilter) begin(kind uint16, flags uint16, family byte) {
	s.seq++
	s.req = append(s.req[:0], make([]byte, headerSize)...)
	binary.NativeEndian.PutUint16(s.req[4:], unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	binary.NativeEndian.PutUint16(s.req[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(s.req[8:], s.seq)
	s.req[unix.SizeofNlMsghdr] = family
}

// add adds an attribute that is a text.
func (s *netfilter) add(kind uint16, text string) {
	s.req = binary.NativeEndian.AppendUint16(s.req, uint16(4+len(text)+1))
	s.req = binary.NativeEndian.AppendUint16(s.req, kind)
	s.req = append(s.req, text...)
	s.req = append(s.req, make([]byte, align4(len(text)+1)-len(text))...)
}

// ask sends the request that was begun and calls f for each message of the answer, which it
// reads to its end even if f returns an error: what is left unread would answer the next
// request. Any other error leaves the socket unfit for use.
func (s *netfilter) ask(f func(nfMessage) error) error {
	binary.NativeEndian.PutUint32(s.req, uint32(len(s.req)))
	if _, err := unix.Write(s.fd, s.req); err != nil {
		return &brokenError{fmt.Errorf("netlink: %w", err)}
	}
	a := netlinkAnswer{seq: s.seq, dump: binary.NativeEndian.Uint16(s.req[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP, each: f}
	defer func() { s.parts = a.parts }()
	for !a.done {
		n, err := unix.Read(s.fd, s.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &brokenError{fmt.Errorf("netlink: %w", err)}
		}
		if err := a.read(s.buf[:n]); err != nil {
			return &brokenError{err}
		}
	}
	return a.err
}

// brokenError says that a socket is not fit for use any more.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// netlinkAnswer is the answer to a request, as far as it was read.
type netlinkAnswer struct {
	seq  uint32
	dump bool
	each func(nfMessage) error
	done bool
	err  error // the first one

	parts int // datagrams with a message for each
	begun bool
}

// read reads one datagram.
func (a *netlinkAnswer) read(data []byte) error {
	a.begun = false
	for len(data) > 0 {
		if len(data) < unix.SizeofNlMsghdr {
			return errNotUnderstood
		}
		length := int(binary.NativeEndian.Uint32(data))
		if length < unix.SizeofNlMsghdr || length > len(data) {
			return errNotUnderstood
		}
		if binary.NativeEndian.Uint32(data[8:]) == a.seq {
			if err := a.message(data[:length]); err != nil {
				return err
			}
		}
		data = data[min(align4(length), len(data)):]
	}
	return nil
}

func (a *netlinkAnswer) message(m []byte) error {
	kind, flags := binary.NativeEndian.Uint16(m[4:]), binary.NativeEndian.Uint16(m[6:])
	if a.dump && flags&unix.NLM_F_DUMP_INTR != 0 {
		a.fail(errChanged)
	}
	switch {
	case kind == unix.NLMSG_ERROR, kind == unix.NLMSG_DONE:
		if len(m) < unix.SizeofNlMsghdr+4 {
			return errNotUnderstood
		}
		if errno := int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:])); errno < 0 {
			a.fail(fmt.Errorf("nf_tables: %w", unix.Errno(-errno)))
		}
		a.done = true
	case kind>>8 == unix.NFNL_SUBSYS_NFTABLES && len(m) >= headerSize:
		if !a.begun {
			a.begun = true
			a.parts++
		}
		if a.err == nil {
			a.fail(a.each(nfMessage{kind & 0xFF, binary.BigEndian.Uint16(m[headerSize-2:]), m[headerSize:]}))
		}
		a.done = a.done || !a.dump
	default:
		return errNotUnderstood
	}
	return nil
}

func (a *netlinkAnswer) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// generation returns the number of commits.
func (s *netfilter) generation() (uint64, error) {
	s.begin(unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC)
	var gen uint64
	err := s.ask(func(m nfMessage) error {
		a := attributes{rest: m.attrs}
		for a.next() {
			if a.kind == unix.NFTA_GEN_ID && len(a.data) == 4 {
				gen = uint64(binary.BigEndian.Uint32(a.data))
			}
		}
		if gen == 0 {
			return errNotUnderstood
		}
		return a.err
	})
	return gen, err
}

// settle returns when the commit that is being made, if one is, has ended. A generation is
// counted before the policies of its chains are changed. The batch without a message waits for
// the lock that commits are made under, and changes nothing.
func (s *netfilter) settle() error {
	const (
		batchBegin = unix.NLMSG_MIN_TYPE     // NFNL_MSG_BATCH_BEGIN
		batchEnd   = unix.NLMSG_MIN_TYPE + 1 // NFNL_MSG_BATCH_END
	)
	var batch []byte
	for _, kind := range []uint16{batchBegin, batchEnd} {
		s.begin(0, 0, unix.AF_UNSPEC)
		binary.NativeEndian.PutUint32(s.req, headerSize)
		binary.NativeEndian.PutUint16(s.req[4:], kind)
		binary.BigEndian.PutUint16(s.req[headerSize-2:], unix.NFNL_SUBSYS_NFTABLES)
		batch = append(batch, s.req...)
	}
	if _, err := unix.Write(s.fd, batch); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return nil
}

// attributes walks over attributes. It stops at the first that goes beyond its bounds, with
// an error.
type attributes struct {
	rest []byte
	kind uint16
	data []byte
	err  error
}

func (a *attributes) next() bool {
	if len(a.rest) == 0 || a.err != nil {
		return false
	}
	if len(a.rest) < 4 {
		a.err = errNotUnderstood
		return false
	}
	length := int(binary.NativeEndian.Uint16(a.rest))
	if length < 4 || length > len(a.rest) {
		a.err = errNotUnderstood
		return false
	}
	a.kind = binary.NativeEndian.Uint16(a.rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	a.data = a.rest[4:length]
	a.rest = a.rest[min(align4(length), len(a.rest)):]
	return true
}

// findAttributes returns the data of the attributes of these kinds, nil for one that is not there.
func findAttributes(attrs []byte, kinds ...uint16) ([][]byte, error) {
	out := make([][]byte, len(kinds))
	a := attributes{rest: attrs}
	for a.next() {
		for i, kind := range kinds {
			if kind == a.kind {
				out[i] = a.data
			}
		}
	}
	return out, a.err
}

func align4(n int) int { return (n + 3) &^ 3 }
