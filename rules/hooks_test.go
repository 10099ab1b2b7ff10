// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
)

func TestHooks(t *testing.T) {
	var all rules.Hooks
	for i, name := range rules.BuiltinChains("mangle") {
		h := rules.HookOf(name)
		if h != 1<<i || !slices.Equal(h.Names(), []string{name}) {
			t.Errorf("%s: %b, %q", name, h, h.Names())
		}
		all |= h
	}
	if got := all.Names(); !slices.Equal(got, rules.BuiltinChains("mangle")) {
		t.Errorf("all: %q", got)
	}
	if rules.HookOutput|rules.HookPrerouting != rules.HookOf("PREROUTING")|rules.HookOf("OUTPUT") {
		t.Error("the names of the bits")
	}
	for _, other := range []string{"", "input", "tw-a", "ACCEPT"} {
		if h := rules.HookOf(other); h != 0 || h.Names() != nil {
			t.Errorf("%q: %b", other, h)
		}
	}
}

// brief gives a refusal without its advice.
func brief(r rules.Refusal) string {
	s := fmt.Sprintf("%d %s:", r.Column, r.Feature)
	if r.Table {
		s += " table"
	}
	if r.Reached == r.Direct && r.Reached != 0 {
		return s + " " + strings.Join(r.Reached.Names(), " ")
	}
	if r.Reached != 0 {
		s += " reached " + strings.Join(r.Reached.Names(), " ")
	}
	if r.Direct != 0 {
		s += " direct " + strings.Join(r.Direct.Names(), " ")
	}
	return s
}

func TestRefusalsOf(t *testing.T) {
	for _, c := range []struct {
		in, rule string // "nft 4/filter"; "4/filter" is both backends
		want     []string
	}{
		// Tables.
		{"4/filter", "-o eth0 -j MASQUERADE", []string{"12 -j MASQUERADE: table"}},
		{"6/filter", "-o eth0 -j MASQUERADE", []string{"12 -j MASQUERADE: table"}},
		{"4/filter", "-p tcp -j REDIRECT --to-ports 80", []string{"11 -j REDIRECT: table"}},
		{"4/nat", "-p tcp --dport 80 -j DROP", []string{"22 -j DROP: table"}},
		{"6/nat", "--jump DROP", []string{"8 -j DROP: table"}},
		{"4/filter", "-j DROP", nil},
		{"4/nat", "-j REJECT --reject-with icmp-port-unreachable", []string{"4 -j REJECT: table"}},
		{"4/filter", "-j REJECT", nil},
		{"4/filter", "-p tcp -j TPROXY --on-port 80", []string{"11 -j TPROXY: table"}},
		{"4/filter", "-j CT --notrack", []string{"4 -j CT: table"}},
		{"4/raw", "-j CT --notrack", nil},
		{"4/filter", "-j TTL --ttl-set 64", []string{"4 -j TTL: table"}},
		{"6/filter", "-j HL --hl-set 64", []string{"4 -j HL: table"}},
		{"4/nat", "-m rpfilter --invert -j ACCEPT", []string{"4 -m rpfilter: table"}},
		{"4/filter", "-j SET --add-set s src", nil},
		{"4/filter", "-j SET --map-set s src --map-mark", []string{"8 -j SET --map-set: table"}},
		{"4/mangle", "-j SET --map-set s src --map-mark", nil},
		{"nft 4/filter", "-j TRACE", nil},
		{"legacy 4/filter", "-j TRACE", []string{"4 -j TRACE: table"}},
		{"legacy 4/raw", "-j TRACE", nil},
		{"4/filter", "-j MARK --set-mark 1", nil},

		// Hooks.
		{"4/nat", "-j SNAT --to-source 10.0.0.1", []string{"4 -j SNAT: PREROUTING OUTPUT"}},
		{"6/nat", "-j SNAT --to-source 2001:db8::1", []string{"4 -j SNAT: PREROUTING OUTPUT"}},
		{"4/nat", "-j MASQUERADE", []string{"4 -j MASQUERADE: PREROUTING INPUT OUTPUT"}},
		{"4/nat", "-j DNAT --to-destination 10.0.0.1", []string{"4 -j DNAT: INPUT POSTROUTING"}},
		{"4/filter", "-m owner --uid-owner 0 -j ACCEPT", []string{"4 -m owner: INPUT FORWARD"}},
		{"4/mangle", "-m owner --uid-owner 0 -j ACCEPT", []string{"4 -m owner: PREROUTING INPUT FORWARD"}},
		{"4/filter", "-m mac --mac-source 02:00:00:00:00:01", []string{"4 -m mac: OUTPUT"}},
		{"4/mangle", "-p tcp -j TPROXY --on-port 80", []string{"11 -j TPROXY: INPUT FORWARD OUTPUT POSTROUTING"}},
		{"4/raw", "-m realm --realm 1", []string{"4 -m realm: PREROUTING"}},
		{"4/filter", "-m realm --realm 1", nil},

		// Options. The nft kernel looks at them in built-in chains only.
		{"nft 4/filter", "-m policy --dir out --pol none -j ACCEPT", []string{"11 -m policy --dir out: direct INPUT"}},
		{"legacy 4/filter", "-m policy --dir out --pol none -j ACCEPT", []string{"11 -m policy --dir out: INPUT"}},
		{"legacy 4/mangle", "-m policy --dir in --pol ipsec", []string{"11 -m policy --dir in: OUTPUT POSTROUTING"}},
		{"4/filter", "-m policy --pol none", nil},
		{"4/filter", "-m policy --dir sideways --pol none", nil},
		{"legacy 4/filter", "-m policy --dir=in", []string{"11 -m policy --dir in: OUTPUT"}},
		{"nft 6/filter", "-p tcp --syn -j TCPMSS --clamp-mss-to-pmtu", []string{"24 -j TCPMSS --clamp-mss-to-pmtu: direct INPUT"}},
		{"legacy 6/filter", "-p tcp --syn -j TCPMSS --clamp-mss", []string{"24 -j TCPMSS --clamp-mss-to-pmtu: INPUT"}},
		{"legacy 4/filter", "-p tcp --syn -j TCPMSS --set-mss 1400", nil},
		{"legacy 4/filter", "-m addrtype --dst-type LOCAL", nil},
		{"legacy 4/filter", "-m addrtype --dst-type LOCAL --limit-iface-in", []string{"30 -m addrtype --limit-iface-in: OUTPUT"}},
		{"legacy 4/mangle", "-m devgroup ! --src-group 1 --dst-group 2", []string{
			"15 -m devgroup --src-group: OUTPUT POSTROUTING", "29 -m devgroup --dst-group: PREROUTING INPUT",
		}},
		{"legacy 4/filter", "-m physdev ! --physdev-out eth0", []string{"14 -m physdev --physdev-out: OUTPUT"}},
		{"legacy 4/filter", "-m physdev --physdev-out eth0 --physdev-is-bridged", nil},
		{"legacy 4/filter", "-m physdev --physdev-out eth0 ! --physdev-is-bridged", []string{"12 -m physdev --physdev-out: OUTPUT"}},
		{"legacy 4/filter", "-m physdev --physdev-in eth0", nil},

		// More than one, and the ways to write them.
		{"4/filter", "-m owner --socket-exists -m mac --mac-source 02:00:00:00:00:01 -j SNAT --to-source 10.0.0.1", []string{
			"4 -m owner: INPUT FORWARD", "29 -m mac: OUTPUT", "67 -j SNAT: table",
		}},
		{"4/filter", "-m owner --uid-owner 0 -m owner --gid-owner 0", []string{"4 -m owner: INPUT FORWARD"}},
		{"4/filter", "-mowner --socket-exists", []string{"3 -m owner: INPUT FORWARD"}},
		{"4/filter", "--match owner --socket-exists", []string{"9 -m owner: INPUT FORWARD"}},
		{"4/filter", "--match=owner --socket-exists", []string{"9 -m owner: INPUT FORWARD"}},
		{"4/filter", "--mat owner --socket-exists", []string{"7 -m owner: INPUT FORWARD"}},
		{"4/filter", "-fm owner --socket-exists", []string{"5 -m owner: INPUT FORWARD"}},
		{"4/filter", "-jMASQUERADE", []string{"4 -j MASQUERADE: table"}},
		{"4/filter", "-f -m mark --mark 1 -m set --match-set s src -j LOG", nil},

		// What only looks like it.
		{"4/filter", "-g MASQUERADE", nil},
		{"4/nat", "-g DROP", nil},
		{"4/filter", `-m comment --comment "-m owner -j SNAT" -j ACCEPT`, nil},
		{"4/filter", `-m comment --comment -m -m owner --socket-exists`, []string{"28 -m owner: INPUT FORWARD"}},
		{"legacy 4/filter", `-m comment --comment --clamp-mss-to-pmtu -p tcp --syn -j TCPMSS --set-mss 1`, nil},
		{"4/filter", `-m comment  --comment "ü" -m owner --socket-exists`, []string{"28 -m owner: INPUT FORWARD"}},
		{"4/filter", "-m mark --mark 1 -j ACCEPT", nil},

		// Nothing is known of these.
		{"sim 4/filter", "-j MASQUERADE", nil},
		{"4/nosuch", "-j MASQUERADE", nil},
		{"5/filter", "-j MASQUERADE", nil},
		{"4/filter", "-m ipvs --ipvs -j SECMARK --selctx x", nil},
		{"6/filter", "-j TTL --ttl-set 64", nil},
	} {
		backends, table, found := strings.Cut(c.in, " ")
		if !found {
			backends, table = "nft legacy", c.in
		}
		for _, backend := range strings.Fields(backends) {
			id := rules.TableID{IPVersion: rules.IPVersion(table[0] - '0'), Name: table[2:]}
			var got []string
			for _, r := range rules.RefusalsOf(backend, id, rules.MustParseRule(c.rule)) {
				got = append(got, brief(r))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s %s: %s (-want +got):\n%s", backend, table, c.rule, diff)
			}
		}
	}
	if got := rules.RefusalsOf("nft", rules.TableID{IPVersion: rules.IPv4, Name: "filter"}, rules.Rule{}); got != nil {
		t.Errorf("the zero rule: %v", got)
	}
}

func TestRefusalAdvice(t *testing.T) {
	for _, c := range []struct{ backend, table, rule, want string }{
		{"nft", "filter", "-j MASQUERADE", "-j MASQUERADE is for table nat only, in chains reached from POSTROUTING only: " +
			"it takes the address of the interface that a packet leaves by; use -j SNAT below INPUT, and -j DNAT or -j REDIRECT to change a destination"},
		{"nft", "nat", "-j DROP", "-j DROP is for tables raw, mangle, filter and security only: " +
			"nat sees only the first packet of a connection; drop in filter, or before routing in raw or mangle"},
		{"legacy", "filter", "-j TTL --ttl-set 1", "-j TTL is for table mangle only, where packets are changed: put the rule there"},
		{"legacy", "filter", "-m policy --dir in --pol none", "-m policy --dir in is for chains reached from PREROUTING, INPUT and FORWARD only: " +
			"in OUTPUT and POSTROUTING no way in is known; there use --dir out"},
		{"nft", "filter", "-m policy --dir in --pol none", "-m policy --dir in is for no built-in chain but PREROUTING, INPUT and FORWARD: " +
			"in OUTPUT and POSTROUTING no way in is known; there use --dir out"},
		{"nft", "raw", "-m rpfilter", "-m rpfilter is for tables raw and mangle only, in chains reached from PREROUTING only: " +
			"the way back is looked up for what arrives; put the rule there"},
	} {
		got := rules.RefusalsOf(c.backend, rules.TableID{IPVersion: rules.IPv4, Name: c.table}, rules.MustParseRule(c.rule))
		if len(got) != 1 || got[0].Advice != c.want {
			t.Errorf("%s %s %s: %+v, want %s", c.backend, c.table, c.rule, got, c.want)
		}
	}
}

// Every feature of the table has advice of its own, and nothing else has.
func TestRefusalHints(t *testing.T) {
	features, hinted := rules.HookFeatures()
	if diff := cmp.Diff(features, hinted); diff != "" || len(features) < 30 {
		t.Errorf("features of hooks.json and of hints (-file +hints):\n%s", diff)
	}
}

// The quick answer is never no where the long way finds something.
func TestRefusalsOfQuick(t *testing.T) {
	parts := strings.Split(`-m owner|--match owner|--match=owner|-mowner|--mat owner|-fm owner|-m mark --mark 1|-f|`+
		`--uid-owner 0|-m addrtype --dst-type LOCAL|--limit-iface-in|--limit-iface-i|-m policy|--dir in|--dir=out|--di out|`+
		`-m physdev|! --physdev-out eth0|--physdev-is-out|--physdev-is-bridged|-m comment --comment "-m owner"|--comment -m|`+
		`-m set --match-set s src|-p tcp`, "|")
	targets := strings.Split("-j ACCEPT|-j DROP|-g DROP|-j MASQUERADE|-jSNAT|-j TCPMSS --clamp-mss-to-pmtu|-j TCPMSS --clamp|-j SET --map-set s src --map-p|-j tw-a| ", "|")
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 2000 {
		var words []string
		for range rng.IntN(5) {
			words = append(words, parts[rng.IntN(len(parts))])
		}
		words = append(words, targets[rng.IntN(len(targets))], parts[rng.IntN(len(parts))])
		r, err := rules.ParseRule(strings.Join(words, " "))
		if err != nil {
			continue
		}
		for _, backend := range []string{"nft", "legacy"} {
			for _, table := range []string{"filter", "nat", "mangle"} {
				id := rules.TableID{IPVersion: rules.IPv4, Name: table}
				want, got := rules.RefusalsAtLength(backend, id, r), rules.RefusalsOf(backend, id, r)
				if !slices.Equal(want, got) {
					t.Errorf("%s %s %s: %v, quickly %v", backend, id, r, want, got)
				}
				found += len(want)
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d refusals", found)
	}
	if matches, targets := rules.MostOptions(); matches > 4 || targets == 0 {
		t.Errorf("%d matches and %d targets with options: see refusalWalk.loaded", matches, targets)
	}
}

var benchmarkRules = map[string]string{
	"plain":       "-s 10.65.0.2/32 -i eth0 -p tcp -m conntrack --ctstate NEW -m tcp --dport 443 -m comment --comment \"allow web\" -j ACCEPT",
	"marks":       "-m mark --mark 0x10000/0xff0000 -m set --match-set tw-blue src -m multiport --dports 80,443 -j MARK --set-mark 0x1/0x1",
	"option":      "-d 10.0.0.0/8 -m addrtype --dst-type LOCAL -m comment --comment local -j tw-local",
	"refused":     "-m owner --uid-owner 0 -p tcp --dport 80 -j ACCEPT",
	"comment -m ": "-p tcp -m comment --comment \"not -m owner\" -m tcp --dport 443 -j ACCEPT",
}

func BenchmarkRefusalsOf(b *testing.B) {
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	for name, text := range benchmarkRules {
		b.Run(name, func(b *testing.B) {
			r := rules.MustParseRule(text)
			b.ReportAllocs()
			for b.Loop() {
				rules.RefusalsOf("nft", id, r)
			}
		})
	}
}

// Nearly all rules are asked about in vain: that must cost nothing.
func TestRefusalsOfAllocates(t *testing.T) {
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	for _, name := range []string{"plain", "marks"} {
		r := rules.MustParseRule(benchmarkRules[name])
		if n := testing.AllocsPerRun(100, func() { rules.RefusalsOf("nft", id, r) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
