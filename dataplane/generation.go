// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// generation returns the number of changing commits that nf_tables has seen in the
// namespace, by any program and of any table.
func (n *namespace) generation() (uint64, error) {
	var gen uint64
	err := n.within(func() error {
		// The socket belongs to the namespace that it was made in.
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return fmt.Errorf("netlink socket: %w", err)
		}
		defer unix.Close(fd)
		gen, err = askGeneration(fd)
		return err
	})
	return gen, err
}

var errNetlink = errors.New("netlink answer not understood")

// askGeneration sends NFT_MSG_GETGEN and reads the answer, NFT_MSG_NEWGEN with the
// attribute NFTA_GEN_ID.
func askGeneration(fd int) (uint64, error) {
	const size = unix.SizeofNlMsghdr + 4 // struct nfgenmsg has four bytes
	req := make([]byte, size)
	binary.NativeEndian.PutUint32(req[0:], size)
	binary.NativeEndian.PutUint16(req[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("netlink: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, fmt.Errorf("netlink: %w", err)
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("netlink: %w", err)
	}
	buf = buf[:n]
	if len(buf) < size || binary.NativeEndian.Uint16(buf[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return 0, errNetlink
	}
	for attrs := buf[size:]; len(attrs) >= 4; {
		length := int(binary.NativeEndian.Uint16(attrs))
		kind := binary.NativeEndian.Uint16(attrs[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if length < 4 || length > len(attrs) {
			break
		}
		if kind == unix.NFTA_GEN_ID && length >= 8 {
			return uint64(binary.BigEndian.Uint32(attrs[4:])), nil
		}
		attrs = attrs[min((length+3)&^3, len(attrs)):]
	}
	return 0, errNetlink
}
