// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Not in golang.org/x/sys: the group of linux/netfilter/nfnetlink.h and the attributes of
// linux/netfilter/nf_tables.h.
const (
	groupNFTables = 7 // NFNLGRP_NFTABLES
	genProcPID    = 2 // NFTA_GEN_PROC_PID
	genProcName   = 3 // NFTA_GEN_PROC_NAME
)

// commit is what the kernel tells of a commit: NFT_MSG_NEWGEN.
type commit struct {
	gen  uint32
	port uint32 // of the socket: the process id in its own PID namespace, unless another socket had it
	pid  int    // as the first PID namespace has it
	comm string // the name of the thread, cut to 15 bytes
}

// openCommits makes a socket that is told of each commit in the namespace, and that a read does
// not wait for. The kernel sends that message last of a commit, before the committer has its
// answer. All the others, of each rule and chain, are left out, so that a small buffer holds
// hundreds of commits; what it does not hold is reported by ENOBUFS, once.
func openCommits(ns *namespace, buffer int) (int, error) {
	fd := -1
	err := ns.within(func() error {
		var err error
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
		return err
	})
	if err == nil && buffer > 0 {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer)
	}
	if err == nil {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, commitFilter())
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNFTables)
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return -1, fmt.Errorf("netlink: %w", err)
	}
	return fd, nil
}

// newGen is the type of the message.
const newGen = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// commitFilter lets a datagram through whose first message is NFT_MSG_NEWGEN. The filter reads
// nlmsg_type as if it were in the order of the network.
func commitFilter() *unix.SockFprog {
	var kind [2]byte
	binary.NativeEndian.PutUint16(kind[:], newGen)
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 4},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: uint32(binary.BigEndian.Uint16(kind[:]))},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xFFFF},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
}

// maxCommit is more than the message takes.
const maxCommit = 512

// parseCommit reads a datagram.
func parseCommit(data []byte) (c commit, ok bool) {
	if len(data) < headerSize || binary.NativeEndian.Uint16(data[4:]) != newGen {
		return c, false
	}
	length := int(binary.NativeEndian.Uint32(data))
	if length < headerSize || length > len(data) {
		return c, false
	}
	c.port = binary.NativeEndian.Uint32(data[12:])
	attrs, err := findAttributes(data[headerSize:length], unix.NFTA_GEN_ID, genProcPID, genProcName)
	if err != nil || len(attrs[0]) != 4 {
		return c, false
	}
	c.gen = binary.BigEndian.Uint32(attrs[0])
	if len(attrs[1]) == 4 {
		c.pid = int(binary.BigEndian.Uint32(attrs[1]))
	}
	name, _, _ := bytes.Cut(attrs[2], []byte{0})
	c.comm = string(name)
	return c, true
}
