// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
)

var native = binary.NativeEndian

// testBlob makes tables as the kernel gives them.
type testBlob struct {
	layout
	data    []byte
	entries int
	fixups  map[int]string // where the offset of a chain is to be written
	chains  map[string]int
	info    [tableInfo]uint32 // valid hooks, beginnings, underflows
}

const tableInfo = 1 + 5 + 5

func newTestBlob(l layout) *testBlob {
	return &testBlob{layout: l, fixups: map[int]string{}, chains: map[string]int{}}
}

// add adds an entry that is reached from these hooks, and returns where its target's data are.
func (b *testBlob) add(hooks uint32, match []byte, target string, data int) int {
	off := len(b.data)
	e := make([]byte, b.elements)
	native.PutUint16(e[b.nfcache+4:], uint16(b.elements+len(match)))
	native.PutUint16(e[b.nfcache+6:], uint16(b.elements+len(match)+extensionHeader+data))
	native.PutUint32(e[b.nfcache+8:], hooks)
	t := make([]byte, extensionHeader+data)
	native.PutUint16(t, uint16(len(t)))
	copy(t[nameAt:], target)
	b.data = append(append(append(b.data, e...), match...), t...)
	b.entries++
	return off + b.elements + len(match) + extensionHeader
}

func (b *testBlob) verdict(hooks uint32, match []byte, verdict int32) {
	at := b.add(hooks, match, "", 8)
	native.PutUint32(b.data[at:], uint32(verdict))
}

// builtin adds a built-in chain with rules that jump to chains, or match a set if a name has
// none.
func (b *testBlob) builtin(hook int, policy int32, rules ...string) {
	b.info[0] |= 1 << hook
	b.info[1+hook] = uint32(len(b.data))
	b.rules(1<<hook, rules)
	b.info[6+hook] = uint32(len(b.data))
	b.verdict(1<<hook, nil, policy)
}

func (b *testBlob) user(name string, rules ...string) {
	at := b.add(0, nil, errorTarget, 32)
	copy(b.data[at:], name)
	b.chains[name] = len(b.data)
	b.rules(0, rules)
	b.verdict(0, nil, -5)
}

func (b *testBlob) rules(hooks uint32, rules []string) {
	for _, r := range rules {
		switch r {
		case "set":
			match := make([]byte, extensionHeader+8)
			native.PutUint16(match, uint16(len(match)))
			copy(match[nameAt:], "set")
			native.PutUint16(match[extensionHeader:], 7)
			b.verdict(hooks, match, -2)
		case "none":
			at := b.add(hooks, nil, "", 8)
			native.PutUint32(b.data[at:], uint32(len(b.data)))
		default:
			b.fixups[b.add(hooks, nil, "", 8)] = r
		}
	}
}

// finish ends the table and returns what the kernel says of it, and the table.
func (b *testBlob) finish() (info, data []byte) {
	at := b.add(0, nil, errorTarget, 32)
	copy(b.data[at:], errorTarget)
	for at, name := range b.fixups {
		native.PutUint32(b.data[at:], uint32(b.chains[name]))
	}
	info = make([]byte, tableNameSize)
	for _, n := range append(b.info[:], uint32(b.entries), uint32(len(b.data))) {
		info = native.AppendUint32(info, n)
	}
	return info, b.data
}

func parseBlob(l layout, info, data []byte, names ...string) (map[string]rules.SavedChain, error) {
	b := blob{layout: l, names: testSets}
	b.readInfo(info)
	b.data = data
	return b.read(names)
}

func testSets(index uint16) (string, error) { return fmt.Sprintf("set-%d", index), nil }

func smallTable(l layout, last string) *testBlob {
	b := newTestBlob(l)
	b.builtin(1, -2, "a", "set")
	b.builtin(2, -1)
	b.builtin(3, -2, "none", "none")
	b.user("a", "b", "b", last)
	b.user("b")
	return b
}

func TestScanBlob(t *testing.T) {
	for _, l := range []layout{layout4, layout6} {
		info, data := smallTable(l, "set").finish()
		got, err := parseBlob(l, info, data)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]rules.SavedChain{
			"INPUT":   {Name: "INPUT", Policy: "ACCEPT", Jumps: []string{"a"}},
			"FORWARD": {Name: "FORWARD", Policy: "DROP", Digest: emptyContent},
			"OUTPUT":  {Name: "OUTPUT", Policy: "ACCEPT"},
			"a":       {Name: "a", Jumps: []string{"b"}},
			"b":       {Name: "b", Digest: emptyContent},
		}
		for name, c := range got {
			if c.Digests == nil {
				t.Errorf("%s: no digests", name)
			}
			c.Digests = nil
			got[name] = c
			if w := want[name]; w.Digest == 0 {
				w.Digest = c.Digest
				want[name] = w
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		one, err := parseBlob(l, info, data, "a", "nosuch")
		a := got["a"]
		if a.Digests = one["a"].Digests; len(a.Digests) != 3 || a.Digests[0] != a.Digests[1] || a.Digests[1] == a.Digests[2] {
			t.Errorf("digests %x", a.Digests)
		}
		if diff := cmp.Diff(map[string]rules.SavedChain{"a": a}, one); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// What was said before of another state of the table does not go with this one, though it had
// as many entries and the same size.
func TestScanBlobOfTwoStates(t *testing.T) {
	states := map[string]func() *testBlob{
		"a rule of the first hook": func() *testBlob { return hooked([]string{"a"}, nil, nil) },
		"of the second":            func() *testBlob { return hooked(nil, []string{"a"}, nil) },
		"of the third":             func() *testBlob { return hooked(nil, nil, []string{"a"}) },
		"of none":                  func() *testBlob { return hooked(nil, nil, nil, "b") },
	}
	for before, x := range states {
		for after, y := range states {
			info, _ := x().finish()
			_, data := y().finish()
			_, err := parseBlob(layout4, info, data)
			if want := before != after; errors.Is(err, errChanged) != want || !want && err != nil {
				t.Errorf("%s, then %s: %v", before, after, err)
			}
		}
	}
}

func hooked(first, second, third []string, user ...string) *testBlob {
	b := newTestBlob(layout4)
	b.builtin(1, -2, append([]string{"a"}, first...)...)
	b.builtin(2, -2, append([]string{"a"}, second...)...)
	b.builtin(3, -2, append([]string{"a"}, third...)...)
	b.user("a", user...)
	b.user("b")
	return b
}

// A table that is damaged anywhere is an error, or another table, but never a panic.
func FuzzScanBlob(f *testing.F) {
	for _, last := range []string{"set", "none", "b"} {
		info, data := smallTable(layout4, last).finish()
		f.Add(false, info[tableNameSize:], data)
		info, data = smallTable(layout6, last).finish()
		f.Add(true, info[tableNameSize:], data)
	}
	f.Fuzz(func(t *testing.T, v6 bool, info, data []byte) {
		l := layout4
		if v6 {
			l = layout6
		}
		info = append(append(make([]byte, tableNameSize), info...), make([]byte, infoSize)...)[:infoSize]
		chains, err := parseBlob(l, info, data)
		if err != nil {
			return
		}
		for name, c := range chains {
			if c.Name != name || !slices.IsSorted(c.Jumps) {
				t.Errorf("%q: %+v", name, c)
			}
		}
	})
}

// Every byte of a table is changed, and every beginning of it tried.
func TestScanBlobDamaged(t *testing.T) {
	info, data := smallTable(layout4, "set").finish()
	for i := range data {
		for _, bits := range []byte{0x01, 0x80, 0xFF} {
			damaged := slices.Clone(data)
			damaged[i] ^= bits
			_, _ = parseBlob(layout4, info, damaged) // must only not panic
		}
		if _, err := parseBlob(layout4, info, data[:i]); err == nil {
			t.Errorf("%d of %d bytes are a table", i, len(data))
		}
	}
}
