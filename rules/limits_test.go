// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// checked is the first line of what CheckRule says, "" for a good rule.
func checked(t *testing.T, id TableID, text string) string {
	t.Helper()
	r, err := ParseRule(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	err = CheckRule(id, r)
	if err == nil {
		return ""
	}
	var re *RuleError
	if !errors.As(err, &re) || re.Rule != r.String() || re.Word == "" || re.Advice == "" {
		t.Fatalf("%s: %#v", text, err)
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func letters(n int) string { return strings.Repeat("x", n) }

// ports is a list of n ports.
func portsUpTo(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, ",%d", i)
	}
	return b.String()[1:]
}

// What each limit takes in full, and one more. Package dataplane asks the tools for the same.
func TestCheckRuleLengths(t *testing.T) {
	for _, test := range []struct {
		name string
		rule func(string) string
		most string
		more string
		want string
	}{
		{"log prefix", func(s string) string { return "-j LOG --log-prefix " + s }, letters(29), letters(30),
			"column 21: --log-prefix has 30 bytes: the tools cut what is over 29 off, and exit with 0: write at most 29 bytes"},
		{"log prefix in the same word", func(s string) string { return "-j LOG --log-prefix=" + s }, letters(29), letters(30),
			"column 21: --log-prefix has 30 bytes: the tools cut what is over 29 off, and exit with 0: write at most 29 bytes"},
		{"log prefix, abbreviated", func(s string) string { return "-j LOG --log-p " + s }, letters(29), letters(30),
			"column 16: --log-prefix has 30 bytes: the tools cut what is over 29 off, and exit with 0: write at most 29 bytes"},
		{"log prefix with blanks", func(s string) string { return `-j LOG --log-prefix "a \" ` + s + `"` }, letters(25), letters(26),
			"column 21: --log-prefix has 30 bytes: the tools cut what is over 29 off, and exit with 0: write at most 29 bytes"},
		{"nflog prefix", func(s string) string { return "-j NFLOG --nflog-prefix " + s }, letters(63), letters(64),
			"column 25: --nflog-prefix has 64 bytes: the legacy tools cut what is over 63 off, and exit with 0: write at most 63 bytes"},
		{"comment", func(s string) string { return "-m comment --comment " + s + " -j RETURN" }, letters(255), letters(256),
			"column 22: --comment has 256 bytes: the tools cut what is over 255 off, and exit with 0: write at most 255 bytes"},
		{"comment of two bytes a letter", func(s string) string { return "-m comment --comment " + s }, "x" + strings.Repeat("é", 127), strings.Repeat("é", 128),
			"column 22: --comment has 256 bytes: the tools cut what is over 255 off, and exit with 0: write at most 255 bytes"},
		{"hashlimit name", func(s string) string { return "-m hashlimit --hashlimit-upto 1/sec --hashlimit-name " + s }, letters(254), letters(255),
			"column 54: --hashlimit-name has 255 bytes: the tools cut what is over 254 off, and exit with 0: write at most 254 bytes"},
		{"recent name", func(s string) string { return "-m recent --set --name " + s }, letters(199), letters(200),
			"column 24: --name has 200 bytes: the tools cut what is over 199 off, and exit with 0: write at most 199 bytes"},
		{"helper", func(s string) string { return "-m helper --helper " + s }, letters(29), letters(30),
			"column 20: --helper has 30 bytes: the tools cut what is over 29 off, and exit with 0: write at most 29 bytes"},
		{"timer", func(s string) string { return "-j IDLETIMER --timeout 5 --label " + s }, letters(27), letters(28),
			"column 34: --label has 28 bytes: the tools cut what is over 27 off, and exit with 0: write at most 27 bytes"},
		{"-i", func(s string) string { return "-i " + s }, letters(15), letters(16),
			"column 4: the interface name has 16 bytes, a + counted: write at most 15"},
		{"-o with +", func(s string) string { return "! -o " + s + "+" }, letters(14), letters(15),
			"column 6: the interface name has 16 bytes, a + counted: write at most 15"},
		{"physdev", func(s string) string { return "-m physdev --physdev-in " + s }, letters(15), letters(16),
			"column 25: the interface name has 16 bytes, a + counted: write at most 15"},
		{"ports", func(s string) string { return "-p tcp -m multiport --dports " + s }, portsUpTo(15), portsUpTo(16),
			"column 30: 16 ports, a range counted as two: multiport takes 15: split them over several rules"},
		{"ports with a range", func(s string) string { return "-p tcp -m multiport --sports " + s }, portsUpTo(13) + ",20:30", portsUpTo(14) + ",20:30",
			"column 30: 16 ports, a range counted as two: multiport takes 15: split them over several rules"},
		{"ports, abbreviated", func(s string) string { return "-p tcp -m multiport --dport " + s }, portsUpTo(15), portsUpTo(16),
			"column 29: 16 ports, a range counted as two: multiport takes 15: split them over several rules"},
	} {
		id := TableID{IPv6, "filter"}
		if got := checked(t, id, test.rule(test.most)); got != "" {
			t.Errorf("%s, the most: %s", test.name, got)
		}
		if got := checked(t, id, test.rule(test.more)); got != test.want {
			t.Errorf("%s, one more: got %s\nwant %s", test.name, got, test.want)
		}
	}
}

var (
	filter4, filter6 = TableID{IPv4, "filter"}, TableID{IPv6, "filter"}
	nat4, nat6       = TableID{IPv4, "nat"}, TableID{IPv6, "nat"}
	mangle4, mangle6 = TableID{IPv4, "mangle"}, TableID{IPv6, "mangle"}
)

func TestCheckRuleRefuses(t *testing.T) {
	const other6, other4 = "write the rule for the table 6/", "write the rule for the table 4/"
	for _, test := range []struct {
		id         TableID
		rule, want string
	}{
		// The other IP version.
		{filter6, "-s 10.0.0.1 -j DROP", "column 4: 10.0.0.1 is an IPv4 address in an IPv6 table: " + other4 + "filter, or an IPv6 address here"},
		{filter6, "-s 2001:db8::1,10.0.0.0/8", "column 16: 10.0.0.0 is an IPv4 address in an IPv6 table: " + other4 + "filter, or an IPv6 address here"},
		{filter4, "! --destination 2001:db8::/32", "column 17: 2001:db8:: is an IPv6 address in an IPv4 table: " + other6 + "filter, or an IPv4 address here"},
		{filter4, "-d ::1/128", "column 4: ::1 is an IPv6 address in an IPv4 table: " + other6 + "filter, or an IPv4 address here"},
		{filter6, "-m iprange --src-range 10.0.0.1-10.0.0.9", "column 24: 10.0.0.1 is an IPv4 address in an IPv6 table: " + other4 + "filter, or an IPv6 address here"},
		{filter4, "-m iprange --dst-range 10.0.0.1-2001:db8::1", "column 33: 2001:db8::1 is an IPv6 address in an IPv4 table: " + other6 + "filter, or an IPv4 address here"},
		{nat6, "-p tcp -j DNAT --to-destination 10.0.0.1:80", "column 33: 10.0.0.1 is an IPv4 address in an IPv6 table: " + other4 + "nat, or an IPv6 address here"},
		{nat4, "-p tcp -j DNAT --to-destination [2001:db8::1]:80", "column 34: 2001:db8::1 is an IPv6 address in an IPv4 table: " + other6 + "nat, or an IPv4 address here"},
		{nat4, "-j SNAT --to 2001:db8::1-2001:db8::9", "column 14: 2001:db8::1 is an IPv6 address in an IPv4 table: " + other6 + "nat, or an IPv4 address here"},
		{nat6, "-j NETMAP --to 10.0.0.0/24", "column 16: 10.0.0.0 is an IPv4 address in an IPv6 table: " + other4 + "nat, or an IPv6 address here"},
		{filter6, "-m conntrack --ctorigdst 10.0.0.1", "column 26: 10.0.0.1 is an IPv4 address in an IPv6 table: " + other4 + "filter, or an IPv6 address here"},
		{filter6, "-m recent --set --mask 255.255.255.0", "column 24: 255.255.255.0 is an IPv4 address in an IPv6 table: " + other4 + "filter, or an IPv6 address here"},
		{mangle4, "-j TEE --gateway fe80::1", "column 18: fe80::1 is an IPv6 address in an IPv4 table: " + other6 + "mangle, or an IPv4 address here"},
		{mangle6, "-p tcp -j TPROXY --on-port 1 --on-ip 127.0.0.1", "column 38: 127.0.0.1 is an IPv4 address in an IPv6 table: " + other4 + "mangle, or an IPv6 address here"},
		{filter6, "-p icmp -m icmp --icmp-type 8", "column 12: match icmp is for IPv4 only: write -m icmp6"},
		{filter4, "-p icmpv6 -m icmp6 --icmpv6-type 1", "column 14: match icmp6 is for IPv6 only: write -m icmp"},
		{filter6, "-p icmp --icmp-type 8", "column 9: --icmp-type is for IPv4 only: write --icmpv6-type"},
		{filter4, "-p 58 --icmpv6-type 128", "column 7: --icmpv6-type is for IPv6 only: write --icmp-type"},
		{filter6, "-m ttl --ttl-eq 1", "column 4: match ttl is for IPv4 only: write -m hl"},
		{filter4, "-m frag --fragfirst", "column 4: match frag is for IPv6 only: " + other6 + "filter"},
		{mangle6, "-j TTL --ttl-set 1", "column 4: target TTL is for IPv4 only: write -j HL"},
		{mangle4, "-j SNPT --src-pfx fd00::/64 --dst-pfx 2001:db8::/64", "column 4: target SNPT is for IPv6 only: " + other6 + "mangle"},
		{filter6, "! -f -j DROP", "column 3: -f is for IPv4 only: write -m frag"},
		{filter6, "-j REJECT --reject-with icmp-host-prohibited", "column 25: reject type icmp-host-prohibited is for IPv4 only: write icmp6-adm-prohibited"},
		{filter4, "-j REJECT --reject-with no-route", "column 25: reject type no-route is for IPv6 only: write icmp-net-unreachable"},
		{filter4, "-j REJECT --reject-with icmp6", "column 25: reject type icmp6 is for IPv6 only: write icmp-net-unreachable"},

		// Out of range.
		{filter4, "-s 10.0.0.1/33", "column 4: the prefix length 33 is out of range: write at most /32"},
		{filter4, "-s 10.0.0.1,10.0.0.2/64", "column 13: the prefix length 64 is out of range: write at most /32"},
		{filter6, "-s 2001:db8::/129", "column 4: the prefix length 129 is out of range: write at most /128"},
		{nat4, "-j NETMAP --to 10.0.0.0/33", "column 16: the prefix length 33 is out of range: write at most /32"},
		{filter4, "-p tcp --dport 65536", "column 16: the port 65536 is out of range: write 0 to 65535"},
		{filter4, "-p udp -m udp --sport 1:70000", "column 25: the port 70000 is out of range: write 0 to 65535"},
		{filter4, "-p tcp -m multiport --ports 1,2:3,99999999999999999999", "column 35: the port 99999999999999999999 is out of range: write 0 to 65535"},
		{filter4, "-m conntrack --ctorigdstport 65536", "column 30: the port 65536 is out of range: write 0 to 65535"},
		{nat4, "-p tcp -j REDIRECT --to-ports 80-70000", "column 34: the port 70000 is out of range: write 0 to 65535"},
		{nat4, "-p tcp -j DNAT --to-destination 10.0.0.1:80-90/70000", "column 48: the port 70000 is out of range: write 0 to 65535"},
		{nat6, "-p tcp -j SNAT --to-source [2001:db8::1]:70000", "column 42: the port 70000 is out of range: write 0 to 65535"},
		{mangle4, "-p tcp -j TPROXY --on-port 65536", "column 28: the port 65536 is out of range: write 0 to 65535"},

		// Without what they need.
		{filter4, "--dport 80 -p tcp", "column 1: --dport without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{filter4, "-m comment --comment x --sport 80", "column 24: --sport without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{filter4, "-m tcp --dport 80 -j DROP", "column 8: --dport without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{filter4, "-p icmp --dport 80", "column 9: --dport: protocol icmp has no ports: write -p tcp, udp, sctp or dccp"},
		{filter4, "-p all --dport 80", "column 8: --dport: protocol all has no ports: write -p tcp, udp, sctp or dccp"},
		{filter4, "-m multiport --dports 80 -p tcp", "column 14: --dports without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{filter4, "-p tcp --dports 80,81", "column 8: --dports without its match: write -m multiport before it"},
		{filter4, "! -p tcp -m multiport --dports 80", `column 23: multiport with "! -p": write a rule for each protocol`},
		{filter4, "-p tcp --dport 80,443", "column 16: --dport takes one port or range: write -m multiport --dports 80,443"},
		{filter4, "--syn -j DROP", "column 1: --syn without a protocol: write -p tcp before it"},
		{filter4, "--icmp-type 8", "column 1: --icmp-type without a protocol: write -p icmp before it"},
		{filter6, "--icmpv6-type 8", "column 1: --icmpv6-type without a protocol: write -p ipv6-icmp before it"},
		{nat4, "-j REDIRECT --to-ports 80", "column 13: ports without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{nat4, "-j DNAT --to-destination 10.0.0.1:80", "column 9: ports without a protocol: write -p tcp before it, or udp, sctp, dccp"},
		{nat4, "-p tcp -j REDIRECT --to-ports 10.0.0.1:80", "column 31: --to-ports takes no address: write ports here, or -j DNAT --to-destination"},
		{nat4, "-p tcp -j REDIRECT --to-ports 80:90", "column 31: a range of --to-ports has a colon: write 80-90"},

		// Once, and apart.
		{filter4, "-p tcp -p tcp", "column 8: a second --protocol: write it once"},
		{filter4, "-p tcp -j x --proto udp", "column 13: a second --protocol: write it once"},
		{filter4, "-s 10.0.0.1 --src 10.0.0.2", "column 13: a second --source: write it once"},
		{filter4, "-i a --in-interface b", "column 6: a second --in-interface: write it once"},
		{filter4, "! -s 10.0.0.1,10.0.0.2", "column 6: ! with several addresses: match an ipset, or write a rule that returns for each address"},
		{filter4, "-s 10.0.0.1,", "column 12: an empty address in a list: write addresses with one comma between them"},
		{filter4, "-ieth0", "column 1: the value of -i in the same word: iptables 1.8.9 takes the whole word for it: write -i eth0"},
		{filter4, "-fs10.0.0.1", "column 2: the value of -s in the same word: iptables 1.8.9 takes the whole word for it: write -s 10.0.0.1"},
		{filter4, "--source=10.0.0.1", "column 1: the value of --source in the same word: iptables 1.8.9 takes the whole word for it: write --source 10.0.0.1"},
		{filter4, "! -j DROP", "column 3: ! before -j: write ! before the option that it is meant for"},

		// No value.
		{filter4, "-s -j DROP", `column 1: --source has no value: "-j" is the next word: write the value behind -s, or leave the option out`},
		{filter4, `-s "" -j DROP`, "column 1: --source has no value: write the value behind -s, or leave the option out"},
		{filter4, "-j DROP -d", "column 9: --destination has no value: write the value behind -d, or leave the option out"},
		{filter4, "-p -j DROP", `column 1: --protocol has no value: "-j" is the next word: write the value behind -p, or leave the option out`},
		{filter4, `-i "" -j DROP`, "column 1: --in-interface has no value: write the value behind -i, or leave the option out"},
		{filter4, "-i -j DROP", `column 1: --in-interface has no value: "-j" is the next word: write the value behind -i, or leave the option out`},
		{filter4, "-m comment --comment -j DROP", `column 12: --comment has no value: "-j" is the next word: write the value behind --comment, or leave the option out`},
		{filter4, "-p tcp --dport --sport 80", `column 8: --dport has no value: "--sport" is the next word: write the value behind --dport, or leave the option out`},
		{filter4, "-j LOG --log-prefix", "column 8: --log-prefix has no value: write the value behind --log-prefix, or leave the option out"},
		{filter4, "-s ! 10.0.0.1", `column 4: "!" stands behind its option: write ! before -s`},
		{filter4, `-m physdev --physdev-in ""`, "column 12: --physdev-in has no value: write the value behind --physdev-in, or leave the option out"},

		// Words and names.
		{filter4, "-m comment --comment two words -j DROP", `column 26: "words" belongs to no option: quote a value that has blanks: "two words"`},
		{filter4, "-m conntrak --ctstate NEW", "column 4: unknown match conntrak: did you mean conntrack?"},
		{filter4, "-m mutliport", "column 4: unknown match mutliport: did you mean multiport?"},
		{filter4, "-m conntrack --ctsate NEW", "column 14: unknown option --ctsate: did you mean --ctstate?"},
		{filter4, "-p tcp --dprot 80", "column 8: unknown option --dprot: did you mean --dport?"},
		{filter4, "--sorce 10.0.0.1", "column 1: unknown option --sorce: did you mean --source?"},
		{nat4, "-p tcp -j DROP", "column 11: the table nat takes no -j DROP: drop in the table filter, mangle or raw"},
	} {
		if got := checked(t, test.id, test.rule); got != test.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", test.id, test.rule, got, test.want)
		}
	}
}

// What is like a mistake, and is none or is for the tool to say.
func TestCheckRuleTakes(t *testing.T) {
	for _, test := range []struct {
		id   TableID
		rule string
	}{
		{filter4, "-s 10.0.0.1,10.0.0.0/255.0.0.0,10/8,0/0,host.example,host.example/24 -j DROP"},
		{filter4, "-s ::ffff:10.0.0.1"}, // the tool makes 10.0.0.1 of it
		{filter4, "-s 2001:db8::/0"},    // and looks at no address with a null mask
		{filter6, "-s 10.0.0.0/0"},
		{filter6, "-s ::ffff:10.0.0.1"},
		{filter4, "-s 10.0.0.1/040"}, // octal 32
		{filter4, "-p tcp --dport 0070000"},
		{filter6, "-p icmp -j DROP"},
		{filter4, "-p icmpv6"},
		{filter4, "-p tcp --dport 80 --sport 1024:65535 -m tcp --syn"},
		{filter4, "-m tcp --dport 80 -p tcp"},
		{filter4, "-p 6 --dport ssh"},
		{filter4, "-p SCTP --dport 80"},
		{filter4, "! -p tcp --dport 80"}, // nft takes it
		{filter4, "-p udplite --dport 80"},
		{filter4, "-p tcp -m multiport --dport 80,443 ! --sport 1:2"},
		{filter4, "-p tcp -m policy --dir in --pol ipsec --proto esp"},
		{filter4, "-i -f -j DROP"}, // an interface may have that name
		{filter4, "-i -x"},
		{filter4, "-m comment --comment -j"},
		{filter4, "-m comment --comment -j -j DROP"},
		{filter4, `-m comment --comment "-s 2001:db8::1"`},
		{filter4, `-m comment --comment ""`},
		{filter4, "-m comment --comm ! -j LOG"},
		{filter4, "-c 1 2 -j DROP"},
		{filter4, "-c1 2"},
		{filter4, "-m set --match-set s src -m recent --set --name x -m set --set s dst"},
		{filter4, "-p tcp --tcp-flags SYN,ACK SYN"},
		{filter4, "-p sctp --chunk-types any DATA,INIT"},
		{filter4, "-m quota2 --quota 5"}, // of xtables-addons
		{filter4, "-m geoip --src-cc DE --dprot 5 stray"},
		{filter4, "-p nosuch --dport 80 --nosuch-optoin 5"},
		{filter4, "-j web --dport 80"}, // web may be a target
		{filter4, "-j REJECT --reject-with port"},
		{filter6, "-j REJECT --reject-with tcp-reset"},
		{filter4, "-j CT --helper " + letters(40)},
		{filter4, "-m conntrack --ctst NEW -j DROP"},
		{filter4, "--source 10.0.0.1 --dest 10.0.0.2"},
		{nat4, "-p tcp -j DNAT --to-destination :80"},
		{nat4, "-p icmp -j REDIRECT --to-ports 80"},
		{nat6, "-p tcp -j DNAT --to-destination [2001:db8::1-2001:db8::9]:80-90"},
		{nat6, "-j SNAT --to-source 2001:db8::1"},
		{nat4, "-m string --algo bm --string x --to 70000 -j DNAT --to-destination 10.0.0.1"},
		{nat4, "-j NETMAP --to 10.0.0.0/24 -m string --algo bm --string x --to 70000"},
		{nat4, "-g DROP"},
		{TableID{}, "-s 10.0.0.1 -d 2001:db8::1 -m icmp6"},
	} {
		if got := checked(t, test.id, test.rule); got != "" {
			t.Errorf("%s %s: %s", test.id, test.rule, got)
		}
	}
	if err := CheckRule(filter4, Rule{}); err != nil {
		t.Error(err)
	}
}

func TestRuleErrorPoints(t *testing.T) {
	err := CheckRule(filter6, MustParseRule("-p tcp -s 10.0.0.1 -j DROP"))
	const want = "column 11: 10.0.0.1 is an IPv4 address in an IPv6 table: write the rule for the table 4/filter, or an IPv6 address here\n" +
		"-p tcp -s 10.0.0.1 -j DROP\n" +
		"          ^"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// vocabularyEntry is a rule with the answers of iptables 1.8.9: for "nft4", "legacy6" and so
// on what is read back, or the exit code of a refusal.
type vocabularyEntry struct {
	Table, Rule string
	Answers     []struct {
		In    []string
		Canon []string
		Exit  int
	}
}

// loadVocabulary returns the vocabulary's entries that ParseRule takes, with their rules.
func loadVocabulary(t *testing.T) (entries []vocabularyEntry, parsed []Rule) {
	t.Helper()
	text, err := os.ReadFile("../dataplane/testdata/vocabulary.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vocabularyEntry
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if r, err := ParseRule(e.Rule); err == nil {
			entries, parsed = append(entries, e), append(parsed, r)
		}
	}
	if len(entries) < 600 {
		t.Fatalf("only %d rules", len(entries))
	}
	return entries, parsed
}

// What the tools take is not refused, but for what they cut; nor is what they print.
func TestCheckRuleTakesTheVocabulary(t *testing.T) {
	cut := map[string]bool{`-j LOG --log-prefix "12345678901234567890123456789012345"`: true}
	entries, parsed := loadVocabulary(t)
	taken := 0
	for i, e := range entries {
		for _, a := range e.Answers {
			for _, in := range a.In {
				id := TableID{IPVersion(in[len(in)-1] - '0'), e.Table}
				err := CheckRule(id, parsed[i])
				if a.Exit == 0 && (err != nil) != cut[e.Rule] {
					t.Errorf("%s %s: %v", in, e.Rule, err)
				}
				if a.Exit == 0 {
					taken++
				}
				for _, text := range a.Canon {
					if r, parseErr := ParseRule(text); parseErr == nil {
						if err := CheckRule(id, r); err != nil {
							t.Errorf("%s: read back as %s: %v", in, text, err)
						}
					}
				}
			}
		}
	}
	if taken < 1500 {
		t.Errorf("only %d were taken", taken)
	}
}

// Each value out of place is found whatever stands before it, and a good rule stays good.
func FuzzCheckRule(f *testing.F) {
	for _, seed := range []string{
		"-s 10.0.0.1 -j x", "! -d ::1/129 -p tcp --dport 1:2,3", "-fs10.0.0.1 -c1 2", `-m comment --comment "a \" b" -j LOG --log-prefix=x`,
		"-m set --set ! a -m recent --set", "-j DNAT --to [::1]:5 -m string --to 5", "-g x --unknown ! y", "-p - --a --b=c -x", "!", "- -- x",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, v6 bool) {
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		id := TableID{IPv4, "nat"}
		if v6 {
			id.IPVersion = IPv6
		}
		var re *RuleError
		if err := CheckRule(id, r); errors.As(err, &re) {
			if re.Column < 1 || re.Column > len(r.String()) {
				t.Fatalf("%q: column %d of %q", text, re.Column, r)
			}
			_ = err.Error()
		} else if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		checkKind(t, r)
	})
}

const ordinaryRule = `-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -m comment --comment "two words" -j web`

func TestCheckRuleMakesNoGarbage(t *testing.T) {
	r := MustParseRule(ordinaryRule)
	if n := testing.AllocsPerRun(100, func() { _ = CheckRule(filter4, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckRule(b *testing.B) {
	r := MustParseRule(ordinaryRule)
	b.ReportAllocs()
	for b.Loop() {
		if err := CheckRule(filter4, r); err != nil {
			b.Fatal(err)
		}
	}
}
