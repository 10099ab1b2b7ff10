// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
)

func nlAttr(kind uint16, data ...[]byte) []byte {
	all := slices.Concat(data...)
	out := native.AppendUint16(nil, uint16(4+len(all)))
	out = append(native.AppendUint16(out, kind), all...)
	return append(out, make([]byte, align4(len(out))-len(out))...)
}

func nlText(s string) []byte { return append([]byte(s), 0) }

func nlNumber(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// nlReply is a message of nf_tables in an answer.
func nlReply(kind, flags uint16, seq uint32, attrs ...[]byte) []byte {
	m := slices.Concat(append([][]byte{{unix.NFPROTO_IPV4, 0, 0, 9}}, attrs...)...)
	out := native.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(m)))
	out = native.AppendUint16(out, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	out = native.AppendUint16(out, flags)
	out = native.AppendUint32(out, seq)
	return append(native.AppendUint32(out, 0), m...)
}

func nlDone(seq uint32, errno int32) []byte {
	out := native.AppendUint32(nil, unix.SizeofNlMsghdr+4)
	out = native.AppendUint16(out, unix.NLMSG_DONE)
	out = native.AppendUint16(out, unix.NLM_F_MULTI)
	out = native.AppendUint32(out, seq)
	return native.AppendUint32(native.AppendUint32(out, 0), uint32(errno))
}

func nlExpression(name string, data ...[]byte) []byte {
	return nlAttr(unix.NFTA_LIST_ELEM, nlAttr(unix.NFTA_EXPR_NAME, nlText(name)), nlAttr(unix.NFTA_EXPR_DATA, data...))
}

// ruleMessage is a rule that comes behind another one; the handle of none is 0.
func ruleMessage(handle, before uint64, expressions ...[]byte) []byte {
	attrs := [][]byte{
		nlAttr(unix.NFTA_RULE_TABLE, nlText("filter")), nlAttr(unix.NFTA_RULE_CHAIN, nlText("INPUT")),
		nlAttr(unix.NFTA_RULE_HANDLE, binary.BigEndian.AppendUint64(nil, handle)),
	}
	if before > 0 {
		attrs = append(attrs, nlAttr(unix.NFTA_RULE_POSITION, binary.BigEndian.AppendUint64(nil, before)))
	}
	return nlReply(unix.NFT_MSG_NEWRULE, unix.NLM_F_MULTI, 1, append(attrs, nlAttr(unix.NFTA_RULE_EXPRESSIONS, expressions...))...)
}

func jumpTo(chain string) []byte {
	jump := uint32(0xFFFFFFFD) // NFT_JUMP
	return nlExpression("immediate", nlAttr(unix.NFTA_IMMEDIATE_DREG, nlNumber(0)), nlAttr(unix.NFTA_IMMEDIATE_DATA,
		nlAttr(unix.NFTA_DATA_VERDICT, nlAttr(unix.NFTA_VERDICT_CODE, nlNumber(jump)), nlAttr(unix.NFTA_VERDICT_CHAIN, nlText(chain)))))
}

func chainMessage(name string, more ...[]byte) []byte {
	return nlReply(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_MULTI, 1, append([][]byte{
		nlAttr(unix.NFTA_CHAIN_TABLE, nlText("filter")), nlAttr(unix.NFTA_CHAIN_NAME, nlText(name)), nlAttr(unix.NFTA_CHAIN_USE, nlNumber(2))}, more...)...)
}

// smallDump has the chains of a table, and the rules of one.
func smallDump() (chains, list []byte) {
	hook := func(n, priority uint32) []byte {
		return nlAttr(unix.NFTA_CHAIN_HOOK, nlAttr(unix.NFTA_HOOK_HOOKNUM, nlNumber(n)), nlAttr(unix.NFTA_HOOK_PRIORITY, nlNumber(priority)))
	}
	kind := nlAttr(unix.NFTA_CHAIN_TYPE, nlText("filter"))
	chains = slices.Concat(
		chainMessage("a"), chainMessage("b"),
		chainMessage("INPUT", hook(1, 0), nlAttr(unix.NFTA_CHAIN_POLICY, nlNumber(0)), kind),
		chainMessage("OUTPUT", hook(3, 10), nlAttr(unix.NFTA_CHAIN_POLICY, nlNumber(1)), kind), // not its priority
		chainMessage("FOREIGN", hook(1, 0), nlAttr(unix.NFTA_CHAIN_POLICY, nlNumber(1)), kind),
		nlDone(1, 0))
	counter := nlExpression("counter", nlAttr(1, make([]byte, 8)), nlAttr(2, make([]byte, 8)))
	set := nlExpression("match", nlAttr(nftaXTName, nlText("set")), nlAttr(nftaXTRev, nlNumber(4)), nlAttr(nftaXTInfo, []byte{7, 0, 1, 1, 0, 0, 0, 0}))
	vmap := nlExpression("lookup", nlAttr(unix.NFTA_LOOKUP_SET, nlText("__map0")), nlAttr(unix.NFTA_LOOKUP_DREG, nlNumber(0)))
	list = slices.Concat(
		ruleMessage(4, 0, counter, jumpTo("b")), ruleMessage(9, 4, set, counter, jumpTo("a")),
		ruleMessage(7, 9, counter, jumpTo("b")), ruleMessage(8, 7, vmap), nlDone(1, 0))
	return chains, list
}

func newDumpScan() *nftScan {
	return &nftScan{
		ctx: context.Background(), id: rules.TableID{IPVersion: 4, Name: "filter"}, family: unix.NFPROTO_IPV4,
		gen: 9, names: testSets, chains: map[string]*nftChain{},
	}
}

// readDump reads datagrams as answers to two requests: for the chains, and for the rules of
// INPUT.
func (s *nftScan) readDump(chains, list []byte) error {
	s.reading = &nftChain{}
	for _, d := range []struct {
		data []byte
		f    func([]byte) error
	}{{chains, s.addChain}, {list, s.addRule}} {
		s.content.reset()
		a := netlinkAnswer{seq: 1, dump: true, each: func(m nfMessage) error { return d.f(m.attrs) }}
		if err := a.read(d.data); err != nil {
			return err
		}
		if a.err != nil {
			return a.err
		}
		if !a.done {
			return errNotUnderstood
		}
	}
	return nil
}

func TestScanDump(t *testing.T) {
	s := newDumpScan()
	if err := s.readDump(smallDump()); err != nil {
		t.Fatal(err)
	}
	got := map[string]rules.SavedChain{}
	for name, c := range s.chains {
		got[name] = c.SavedChain
	}
	want := map[string]rules.SavedChain{
		"INPUT": {Name: "INPUT", Policy: "DROP", Digest: emptyContent},
		"a":     {Name: "a", Digest: emptyContent},
		"b":     {Name: "b", Digest: emptyContent},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, s.content.jumpsTo()); diff != "" {
		t.Errorf("jumps:\n%s", diff)
	}
	if want := []nftLookup{{3, "__map0"}}; !slices.Equal(s.reading.lookups, want) {
		t.Errorf("lookups %v, want %v", s.reading.lookups, want)
	}
}

// Rules that come twice, or not at all, are noticed, and so is whatever else goes wrong with
// an answer.
func TestScanAnswer(t *testing.T) {
	rule := func(handle, before uint64) []byte { return ruleMessage(handle, before, jumpTo("a")) }
	fine := slices.Concat(rule(4, 0), rule(5, 4), rule(6, 5))
	end := nlDone(1, 0)
	interrupted := nlReply(unix.NFT_MSG_NEWRULE, unix.NLM_F_DUMP_INTR, 1)
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"fine":              {slices.Concat(fine, end), nil},
		"the last again":    {slices.Concat(fine, rule(6, 5), end), errChanged},
		"the only one":      {slices.Concat(rule(4, 0), rule(4, 0), end), errChanged},
		"one is missing":    {slices.Concat(rule(4, 0), rule(6, 5), end), errChanged},
		"the first is":      {slices.Concat(rule(5, 4), end), errChanged},
		"interrupted":       {slices.Concat(fine, interrupted, end), errChanged},
		"failed at the end": {slices.Concat(fine, nlDone(1, -int32(unix.ENOMEM))), unix.ENOMEM},
		"the first error":   {slices.Concat(rule(5, 4), nlDone(1, -int32(unix.ENOMEM))), errChanged},
		"late answers":      {slices.Concat(nlReply(unix.NFT_MSG_NEWRULE, 0, 77), nlDone(77, -1), fine, end), nil},
		"another system":    {slices.Concat(fine, []byte{16, 0, 0, 0, 9, 9, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, end), errNotUnderstood},
		"no end":            {fine, errNotUnderstood},
	} {
		if err := newDumpScan().readDump(end, c.data); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	s := newDumpScan()
	twice := chainMessage("a")
	if err := s.readDump(slices.Concat(twice, twice, end), end); !errors.Is(err, errChanged) {
		t.Errorf("a chain that comes twice: %v", err)
	}
}

// An answer that is damaged anywhere is an error, or another answer, but never a panic.
func TestScanDumpDamaged(t *testing.T) {
	chains, list := smallDump()
	whole := slices.Concat(chains, list)
	for i := range whole {
		for _, bits := range []byte{0x01, 0x80, 0xFF} {
			damaged := slices.Clone(whole)
			damaged[i] ^= bits
			_ = newDumpScan().readDump(damaged[:len(chains)], damaged[len(chains):])
		}
	}
	for i := range list {
		if err := newDumpScan().readDump(chains, list[:i]); err == nil {
			t.Errorf("%d of %d bytes are an answer", i, len(list))
		}
	}
}

func FuzzScanDump(f *testing.F) {
	chains, list := smallDump()
	f.Add(chains, list)
	f.Fuzz(func(t *testing.T, chains, list []byte) {
		s := newDumpScan()
		if err := s.readDump(chains, list); err != nil {
			return
		}
		for name, c := range s.chains {
			if c.Name != name || !slices.IsSorted(c.Jumps) {
				t.Errorf("%q: %+v", name, c)
			}
		}
	})
}

func FuzzScanElement(f *testing.F) {
	f.Add(slices.Concat(nlAttr(unix.NFTA_SET_ELEM_KEY, nlAttr(unix.NFTA_DATA_VALUE, nlNumber(1))),
		nlAttr(unix.NFTA_SET_ELEM_DATA, nlAttr(unix.NFTA_DATA_VERDICT, nlAttr(unix.NFTA_VERDICT_CHAIN, nlText("a"))))))
	f.Fuzz(func(t *testing.T, attrs []byte) {
		text, to, err := element(attrs)
		if err == nil && len(attrs) == 0 && text+to != "" {
			t.Errorf("out of nothing %q, %q", text, to)
		}
	})
}
