// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestKind(t *testing.T) {
	for _, test := range []struct{ rule, want string }{
		{"-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j web", "-s -p tcp -m tcp --dport -j >"},
		{"! --source 10.0.0.0/8 --dst 10.0.0.1 -j ACCEPT", "! -s -d -j ACCEPT"},
		{"-s10.0.0.1 -fi eth0 -g ACCEPT", "-s -f -i -g >"},
		{`-m comment --comment "two words" -j LOG --log-prefix "a b"`, "-m comment --comment -j LOG --log-prefix"},
		{"-m comment --comm=x -j LOG --log-p x", "-m comment --comment -j LOG --log-prefix"},
		{"-m comment --com=x -j LOG --lo y", "-m comment --com x -j LOG --lo y"}, // of several
		{"-m set ! --match-set s src,dst -m recent --set --name x -j SET --add-set s src", "-m set ! --match-set -m recent --set --name -j SET --add-set"},
		{"-p tcp --syn ! --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1400", "-p tcp --syn ! --tcp-flags SYN,RST SYN -j TCPMSS --set-mss"},
		{"-m limit --limit 5/sec --limit-burst 3", "-m limit --limit 5/sec --limit-burst 3"},
		{"-m plug --level 5 -j REJECT --reject-with tcp-reset", "-m plug --level 5 -j REJECT --reject-with tcp-reset"},
		{"-c 1 2 -m addrtype ! --dst-type LOCAL", "-c -m addrtype ! --dst-type LOCAL"},
		{"-m icmp6 --icmpv6-type 1 -j CT --notrack --helper ftp", "-m icmp6 --icmpv6-type -j CT --notrack --helper ftp"},
		{"-m policy --dir in --pol ipsec --proto esp --tunnel-src 10.0.0.1", "-m policy --dir in --pol ipsec --proto esp --tunnel-src"},
		{"-m string --algo bm --string x --to 5 -j NETMAP --to 10.0.0.0/24", "-m string --algo bm --string --to 5 -j NETMAP --to"},
		{"-j CLUSTERIP --new -d 10.0.0.1", "-j CLUSTERIP --new -d 10.0.0.1"},
		{"! -s 10.0.0.0/0", "! -s /0"},
		{"-s 10.0.0.0/0", "-s"},
		{"-m", "-m"},
		{"!", "!"},
		{"stray", "stray"},
	} {
		if got := MustParseRule(test.rule).Kind(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.rule, got, test.want)
		}
	}
	if got := (Rule{}).Kind(); got != "" {
		t.Errorf("the zero Rule: %q", got)
	}
}

// Pairs of which kernel 6.18 takes only the first, on one backend and IP version at least.
func TestKindTellsApart(t *testing.T) {
	for _, pair := range [][2]string{
		{"-m limit --limit 2/day", "-m limit --limit 1/day"},
		{"-m hashlimit --hashlimit-upto 2/day --hashlimit-name x", "-m hashlimit --hashlimit-upto 1/day --hashlimit-name x"},
		{"-m hashlimit --hashlimit-upto 2/day --hashlimit-name x", "-m hashlimit --hashlimit-upto 2/day --hashlimit-name a/b"},
		{"-m hashlimit --hashlimit-upto 2/day --hashlimit-name x --hashlimit-htable-expire 5", "-m hashlimit --hashlimit-upto 2/day --hashlimit-name x --hashlimit-htable-expire 0"},
		{"-m recent --set --name x", `-m recent --set --name ""`},
		{"-m recent --update --hitcount 65535", "-m recent --update --hitcount 65536"},
		{"-m string --algo bm --string x", "-m string --algo fsm --string x"},
		{"-m string --algo bm --string x", `-m string --algo bm --string ""`},
		{"-m string --algo bm --string x --from 5 --to 9", "-m string --algo bm --string x --from 9 --to 5"},
		{"-m owner --uid-owner 1-2", "-m owner --uid-owner 2-1"},
		{"-m owner --gid-owner 1-2", "-m owner --gid-owner 2-1"},
		{"-m connlabel --label 5", "-m connlabel --label 128"},
		{`-m bpf --bytecode "1,6 0 0 0"`, `-m bpf --bytecode "1,99 0 0 0"`},
		{"-m addrtype --src-type LOCAL", "-m addrtype --src-type BROADCAST"},
		{"-p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1", "-p tcp --tcp-flags SYN,RST RST -j TCPMSS --set-mss 1"},
		{"-p tcp --syn -j TCPMSS --set-mss 1", "-p tcp ! --syn -j TCPMSS --set-mss 1"},
		{"-p tcp -j REJECT --reject-with tcp-reset", "-p udp -j REJECT --reject-with tcp-reset"},
		{"-j REJECT --reject-with port-unreach", "-j REJECT --reject-with tcp-reset"},
		{"-j NFQUEUE --queue-balance 1:65535", "-j NFQUEUE --queue-balance 0:65535"},
		{"-j TEE --gateway 10.0.0.1", "-j TEE --gateway 0.0.0.0"},
		{"-j IDLETIMER --timeout 1 --label x", "-j IDLETIMER --timeout 0 --label x"},
		{"-j SNPT --src-pfx fd00::/64 --dst-pfx fd01::/64", "-j SNPT --src-pfx fd00::/65 --dst-pfx fd01::/65"},
		{"! -s 10.0.0.0/8", "! -s 0.0.0.0/0"},
	} {
		a, b := MustParseRule(pair[0]).Kind(), MustParseRule(pair[1]).Kind()
		if a == b {
			t.Errorf("%s and %s are both %s", pair[0], pair[1], a)
		}
	}
}

// Rules of one kind are taken or refused by the kernel alike: of the vocabulary's, no two
// differ. What the tools themselves refuse (exit 2) says nothing about the kernel.
func TestKindOfTheVocabulary(t *testing.T) {
	entries, parsed := loadVocabulary(t)
	type group struct{ taken, refused []string }
	groups := make(map[string]*group)
	for i, e := range entries {
		for _, a := range e.Answers {
			for _, in := range a.In {
				if a.Exit == 2 {
					continue
				}
				key := in + " " + e.Table + " " + parsed[i].Kind()
				if groups[key] == nil {
					groups[key] = new(group)
				}
				if g := groups[key]; a.Exit == 0 {
					g.taken = append(g.taken, e.Rule)
				} else {
					g.refused = append(g.refused, e.Rule)
				}
			}
		}
	}
	several := 0
	for key, g := range groups {
		if len(g.taken) > 0 && len(g.refused) > 0 {
			t.Errorf("%s: taken %q, refused %q", key, g.taken, g.refused)
		}
		if len(g.taken)+len(g.refused) > 1 {
			several++
		}
	}
	if several < 200 {
		t.Errorf("only %d kinds have several rules", several)
	}
}

func TestMatches(t *testing.T) {
	for rule, want := range map[string][]string{
		"-j x": nil,
		"-p tcp -m tcp --dport 1 --match=comment --comment \"-m set\" -mtcp": {"tcp", "comment", "tcp"},
		`-m "a b" -m`: {"a b"},
	} {
		if got := MustParseRule(rule).Matches(); !slices.Equal(got, want) {
			t.Errorf("%s: %q", rule, got)
		}
	}
}

// checkKind holds what a kind promises of any rule.
func checkKind(t *testing.T, r Rule) {
	t.Helper()
	kind := r.Kind()
	if r.String() != "" && kind == "" {
		t.Fatalf("%q has no kind", r)
	}
	if n := strings.Count(fmt.Sprint(" ", kind, " "), " -m "); n < len(r.Matches()) {
		t.Fatalf("%q: %d of the matches %q in %q", r, n, r.Matches(), kind)
	}
}

func BenchmarkKind(b *testing.B) {
	r := MustParseRule(ordinaryRule)
	b.ReportAllocs()
	for b.Loop() {
		_ = r.Kind()
	}
}

func TestKindAllocatesOnce(t *testing.T) {
	r := MustParseRule(ordinaryRule)
	if n := testing.AllocsPerRun(100, func() { _ = r.Kind() }); n != 1 {
		t.Errorf("%v allocations", n)
	}
}
