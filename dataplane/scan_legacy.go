// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/rules"
)

// The options of linux/netfilter_ipv4/ip_tables.h, whose numbers IPv6 shares.
const (
	soGetInfo    = 64 // IPT_SO_GET_INFO
	soGetEntries = 65 // IPT_SO_GET_ENTRIES
)

const (
	tableNameSize = 32 // XT_TABLE_MAXNAMELEN
	infoSize      = tableNameSize + 4*(1+5+5+1+1)
	entriesAt     = 40      // of the entries in struct ipt_get_entries
	maxEntries    = 1 << 30 // twice what a kernel takes
)

// scanLegacy reads a table once. The error is errChanged if it was replaced between the two
// questions that this takes.
func (r *reader) scanLegacy(_ context.Context, id rules.TableID, names []string) (rules.Snapshot, error) {
	if strconv.IntSize != 64 {
		return rules.Snapshot{}, errors.New("the layout of a table is known for programs of 64 bits only")
	}
	b := blob{layout: layout4, names: r.setsOf()}
	family, level, fd := unix.AF_INET, unix.SOL_IP, &r.inet
	if id.IPVersion == rules.IPv6 {
		b.layout, family, level, fd = layout6, unix.AF_INET6, unix.SOL_IPV6, &r.inet6
	}
	if err := r.openInet(family); err != nil {
		return rules.Snapshot{}, err
	}
	info := make([]byte, infoSize)
	copy(info, id.Name)
	if err := getsockopt(*fd, level, soGetInfo, info); err != nil {
		return rules.Snapshot{}, fmt.Errorf("IPT_SO_GET_INFO: %w", err)
	}
	b.readInfo(info)
	if b.size > maxEntries {
		return rules.Snapshot{}, errNotUnderstood
	}
	r.blob = slices.Grow(r.blob[:0], entriesAt+b.size)[:entriesAt+b.size]
	clear(r.blob[:entriesAt])
	copy(r.blob, id.Name)
	binary.NativeEndian.PutUint32(r.blob[tableNameSize:], uint32(b.size))
	err := getsockopt(*fd, level, soGetEntries, r.blob)
	if errors.Is(err, unix.EAGAIN) {
		return rules.Snapshot{}, errChanged
	}
	if err != nil {
		return rules.Snapshot{}, fmt.Errorf("IPT_SO_GET_ENTRIES: %w", err)
	}
	b.data = r.blob[entriesAt:]
	chains, err := b.read(names)
	if err != nil {
		return rules.Snapshot{}, err
	}
	return rules.Snapshot{Table: id, Chains: chains}, nil
}

// openInet opens the socket by which the tables of a family are read. Any socket of the family
// will do, so none is taken that needs CAP_NET_RAW.
func (r *reader) openInet(family int) error {
	fd := &r.inet
	if family == unix.AF_INET6 {
		fd = &r.inet6
	}
	return r.open(fd, family, unix.SOCK_DGRAM, 0)
}

// getsockopt asks a question whose answer takes the place of the question.
func getsockopt(fd, level, option int, value []byte) error {
	if len(value) == 0 || len(value) > math.MaxInt32 {
		return unix.EINVAL
	}
	length := uint32(len(value)) // socklen_t
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	if int(length) != len(value) {
		return errNotUnderstood
	}
	return nil
}
