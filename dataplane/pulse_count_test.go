// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNFTCount(t *testing.T) {
	type told struct {
		gen   uint32
		own   bool
		shown bool // by the generation, without a message
	}
	own := func(gen uint32) told { return told{gen: gen, own: true} }
	foreign := func(gen uint32) told { return told{gen: gen} }
	shown := func(gen uint32) told { return told{gen: gen, shown: true} }
	for _, c := range []struct {
		name  string
		known uint32
		told  []told
		want  uint64
	}{
		{"own", 7, []told{own(8), own(9), shown(9)}, 0},
		{"foreign", 7, []told{foreign(8), own(9), foreign(10)}, 2},
		{"a message is missing between own ones", 7, []told{own(8), own(10)}, 1},
		{"the last message is missing", 7, []told{own(8), shown(9)}, 1},
		{"an own commit shows before its message", 7, []told{shown(8), own(8)}, 1},
		{"and a foreign one follows", 7, []told{shown(8), own(8), foreign(9), shown(9)}, 2},
		{"a foreign commit shows before its message", 7, []told{shown(8), foreign(8), own(9)}, 1},
		{"old messages", 7, []told{foreign(6), own(7), shown(7)}, 0},
		{"generations wrap around", math.MaxUint32 - 1, []told{own(math.MaxUint32), own(1), shown(1), foreign(2)}, 1},
		{"while one is missing", math.MaxUint32 - 1, []told{own(math.MaxUint32), own(2)}, 1},
	} {
		n := nftCount{known: c.known}
		for _, m := range c.told {
			if m.shown {
				n.shown(m.gen)
				continue
			}
			n.note(m.gen, m.own)
			if n.isOwn(m.gen) != m.own {
				t.Errorf("%s: %d is own: %v", c.name, m.gen, !m.own)
			}
		}
		if n.foreign != c.want {
			t.Errorf("%s: %d, want %d", c.name, n.foreign, c.want)
		}
	}
	if (&nftCount{}).isOwn(0) || (&nftCount{}).isOwn(ownGenerations) {
		t.Errorf("own without any message")
	}
}

func TestParseCommit(t *testing.T) {
	attribute := func(kind uint16, data ...byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, data...), make([]byte, align4(len(data))-len(data))...)
	}
	message := func(kind uint16, attrs ...[]byte) []byte {
		b := make([]byte, headerSize)
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[12:], 77)
		b = append(b, bytes.Join(attrs, nil)...)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		return b
	}
	gen := attribute(unix.NFTA_GEN_ID, 0, 0, 1, 2)
	whole := message(newGen, gen, attribute(genProcPID, 0, 0, 0, 9), attribute(genProcName, []byte("iptables-nft-re\x00")...))
	long := bytes.Clone(whole)
	binary.NativeEndian.PutUint32(long, uint32(len(long)+1))
	for _, c := range []struct {
		name string
		data []byte
		want commit
		ok   bool
	}{
		{"whole", whole, commit{258, 77, 9, "iptables-nft-re"}, true},
		{"of an old kernel", message(newGen, gen), commit{gen: 258, port: 77}, true},
		{"another message", message(newGen-1, gen), commit{}, false},
		{"no generation", message(newGen), commit{}, false},
		{"cut", whole[:len(whole)-1], commit{}, false},
		{"cut in its header", whole[:headerSize-1], commit{}, false},
		{"longer than it is", long, commit{}, false},
		{"a broken attribute", message(newGen, gen, []byte{9, 0, 3, 0}), commit{}, false},
		{"nothing", nil, commit{}, false},
	} {
		got, ok := parseCommit(c.data)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v %v, want %+v %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// What is done to a lock file, or to the name that it has.
func TestLockWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	touch := func(path string) func() error {
		return func() error {
			f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			return f.Close()
		}
	}
	w, err := watchLock(path, unix.IN_OPEN)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the lock file is not made: %v", err)
	}
	if seen := w.drain(); seen != (lockSeen{}) {
		t.Errorf("own doing: %+v", seen)
	}
	var held *os.File
	for _, step := range []struct {
		name string
		do   func() error
		want lockSeen
	}{
		{"nothing", func() error { return nil }, lockSeen{}},
		{"opened", func() (err error) { held, err = os.Open(path); return err }, lockSeen{opened: true}},
		{"closed", func() error { return held.Close() }, lockSeen{closed: true}},
		{"both, twice", func() error { _ = touch(path)(); return touch(path)() }, lockSeen{true, true}},
		{"another file", touch(path + "2"), lockSeen{}},
		{"removed", func() error { return os.Remove(path) }, lockSeen{closed: true}},
		{"made again", touch(path), lockSeen{closed: true}},
		{"the new one", touch(path), lockSeen{true, true}},
		{"another in its place", func() error { return os.Rename(path+"2", path) }, lockSeen{closed: true}},
		{"that one", touch(path), lockSeen{true, true}},
		{"moved away", func() error { return os.Rename(path, path+"3") }, lockSeen{closed: true}},
		{"who still uses it", touch(path + "3"), lockSeen{true, true}},
		{"made again", touch(path), lockSeen{closed: true}},
		{"the latest one", touch(path), lockSeen{true, true}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := w.drain(); got.closed != step.want.closed || step.want.opened && !got.opened {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
	if _, err := watchLock(filepath.Join(t.TempDir(), "none", "lock"), 0); err == nil {
		t.Error("a file in a folder that does not exist is watched")
	}
	overflow := binary.NativeEndian.AppendUint32(nil, math.MaxUint32)
	overflow = binary.NativeEndian.AppendUint32(overflow, unix.IN_Q_OVERFLOW)
	if !w.parse(append(overflow, make([]byte, 8)...)).closed {
		t.Error("events were lost, and nothing is said to have happened")
	}
}
