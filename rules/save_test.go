// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestParseSaveFiles(t *testing.T) {
	for name, want := range map[string]string{
		"embedded-newline": `filter complete=true
:INPUT ACCEPT jumps [felix-IN]
-j felix-IN
:FORWARD ACCEPT jumps []
:OUTPUT ACCEPT jumps []
:felix-IN  jumps []
-m comment --comment "line1\n:felix-GHOST - [0:0]\n*nat\nCOMMIT\nline5" -j DROP ! the rule holds a newline
:felix-OUT  jumps []
-j RETURN
`,
		"legacy-warning-interleaved": `nat complete=true
:PREROUTING ACCEPT jumps []
:KUBE-SVC-ASDFASDFASDFASDF  jumps [KUBE-MARK-MASQ]
! -s 10.42.0.0/16 -d 10.43.161.110/32 -p tcp -m comment --comment "storage-system/storage# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n-frontend:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ ! a warning of the tool was printed into the rule
`,
		"nft-incompatible": "incompatible [filter]\n",
		"unsupported-revision": `mangle complete=true
:PREROUTING ACCEPT jumps []
:INPUT ACCEPT jumps []
:FORWARD ACCEPT jumps []
:OUTPUT ACCEPT jumps []
:POSTROUTING ACCEPT jumps []
:OLD_AGENT_PRE_mangle  jumps []
-m socket [unsupported revision] -m comment --comment "agent: any->pod redirect proxied traffic to host proxy" -j MARK --set-xmark 0x200/0xffffffff ! the tool that read the rule does not know this revision of its extension
-d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT [unsupported revision] ! the tool that read the rule does not know this revision of its extension
`,
		"old-save-format": `filter complete=true
:INPUT ACCEPT jumps []
-p tcp -m tcp --dport 25 -m comment --comment smtp-out -j ACCEPT
-m state --state RELATED,ESTABLISHED -j ACCEPT
:FORWARD ACCEPT jumps []
:OUTPUT ACCEPT jumps []
:felix-IN  jumps []
-j NFLOG --nflog-prefix K:x --nflog-group 100
-j LOG --log-prefix "a b "
`,
		"counters": `filter complete=true
:INPUT ACCEPT jumps [felix-IN]
-j felix-IN
:felix-IN  jumps []
-m comment --comment "[1:2] -A not a rule" -j RETURN
-j DROP
`,
	} {
		data, err := os.ReadFile("testdata/" + name + ".save")
		if err != nil {
			t.Fatal(err)
		}
		set, err := ParseSave(iotest.OneByteReader(strings.NewReader(string(data))))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, show(set)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func show(set *Ruleset) string {
	var b strings.Builder
	for _, table := range set.Tables {
		fmt.Fprintf(&b, "%s complete=%v\n", table.Name, table.Complete)
		for _, chain := range table.Chains {
			fmt.Fprintf(&b, ":%s %s jumps %v\n", chain.Name, chain.Policy, chain.Jumps)
			for _, rule := range chain.Rules {
				b.WriteString(rule.Text)
				if rule.Err != nil {
					fmt.Fprintf(&b, " ! %v", rule.Err)
				}
				b.WriteByte('\n')
			}
		}
	}
	if set.Incompatible != nil {
		fmt.Fprintf(&b, "incompatible %v\n", set.Incompatible)
	}
	return b.String()
}

// TestSavedRules reads rules that strangers may have put into the kernel.
func TestSavedRules(t *testing.T) {
	for _, test := range []struct {
		printed string
		text    string // "" is printed
		jump    string
		err     bool
	}{
		{printed: "-j web", jump: "web"},
		{printed: "-g LOG", jump: "LOG"},
		{printed: "-j LOG --log-prefix -j"},
		{printed: "-m comment --comment -j -j web", jump: "web"},
		{printed: `-m comment --comment "it\'s" -j web`, text: "-m comment --comment it's -j web", jump: "web"},
		{printed: `-m comment --comment "[unsupported revision]" -j web`, jump: "web"},
		{printed: `-m comment --comment "x" -m foo [unsupported revision] -j web`, jump: "web", err: true},
		{printed: "-m comment --comment n\xe9 -j web", text: `-m comment --comment n\xe9 -j web`, jump: "web", err: true},
		{printed: `-j a"b`, jump: `a"b`, err: true},
		{printed: `-j "b`, jump: `"b`, err: true},
		{printed: `-i e"h -j web`, jump: "web", err: true},
		{printed: `-m set --match-set a"b src -j web`, jump: "web", err: true},
		{printed: "-m set --match-set a b src -j web", jump: "web"},
		{printed: "-j " + strings.Repeat("c", 29), jump: strings.Repeat("c", 29), err: true},
		{printed: `-m comment --comment "` + strings.Repeat("c", 1100) + `" -j web`, jump: "web", err: true},
		{printed: "-p tcp -j DROP# Warning: ip6tables-legacy tables present, use ip6tables-legacy-save to see them", jump: "DROP#", err: true},
		{printed: "", err: true},
	} {
		input := "*filter\n:web - [0:0]\n-A web " + test.printed + "\n-A web -j next\nCOMMIT\n"
		set, err := ParseSave(strings.NewReader(input))
		if err != nil {
			t.Errorf("%q: %v", test.printed, err)
			continue
		}
		if len(set.Tables) != 1 || !set.Tables[0].Complete || len(set.Tables[0].Chains[0].Rules) != 2 {
			t.Errorf("%q: %v", test.printed, show(set))
			continue
		}
		if test.text == "" {
			test.text = test.printed
		}
		chain := set.Tables[0].Chains[0]
		rule := chain.Rules[0]
		if rule.Text != test.text || (rule.Err != nil) != test.err || rule.Rule.IsZero() != test.err {
			t.Errorf("%q: %+v", test.printed, rule)
		}
		want := []string{"next"}
		if test.jump != "" {
			want = []string{test.jump, "next"}
			if test.jump > "next" {
				want = []string{"next", test.jump}
			}
		}
		if diff := cmp.Diff(want, chain.Jumps); diff != "" {
			t.Errorf("%q: jumps -want +got\n%s", test.printed, diff)
		}
	}
}

func TestParseSaveIncomplete(t *testing.T) {
	for _, input := range []string{
		"*filter\n:a - [0:0]\n",
		"*filter\n:a - [0:0]\n*nat\n",
		"*filter\n:a - [0:0]\n-A a -m comment --comment \"open\nCOMMIT\n",
	} {
		set, err := ParseSave(strings.NewReader(input))
		if err != nil || set.Tables[0].Complete {
			t.Errorf("%q: complete, error %v", input, err)
		}
	}
}

func TestParseSaveDamaged(t *testing.T) {
	for _, test := range []struct {
		input string
		line  int
	}{
		{"-A a -j DROP\n", 1},
		{"*filter\n-A a -j DROP\n", 2},
		{"*filter\n:a - [0:0]\n-A a -p tcp # Warning\n-m tcp -j DROP\n", 4},
		{"*filter\n:a - [0:0]\n-A a -m comment --comment \"x\ny\" -j DROP\nhello\n", 5},
		{"*filter\n:a - [0:0]\n:a - [0:0]\n", 3},
		{"*filter\n:a# Warning: x\n", 2},
		{"*fil# Warning\n", 1},
		{"*filter\nCOMM\nIT\n", 2},
		{"*filter\n[1:2 -A a\n", 2},
		{"Permission denied\n", 1},
	} {
		set, err := ParseSave(strings.NewReader(test.input))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line != test.line {
			t.Errorf("%q: %v, error %v", test.input, set, err)
		}
	}
	broken := errors.New("broken pipe")
	if _, err := ParseSave(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("reader's error: got %v", err)
	}
}

func TestDigestAndSnapshot(t *testing.T) {
	read := func(lines ...string) SavedChain {
		t.Helper()
		input := "*filter\n:INPUT ACCEPT [1:2]\n:a - [0:0]\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
		set, err := ParseSave(strings.NewReader(input))
		if err != nil {
			t.Fatal(err)
		}
		id := TableID{IPv4, "filter"}
		snapshot := set.Tables[0].Snapshot(id)
		if snapshot.Table != id || len(snapshot.Chains) != 2 || snapshot.Chains["INPUT"].Policy != "ACCEPT" {
			t.Fatalf("snapshot %+v", snapshot)
		}
		return snapshot.Chains["a"]
	}
	two := read("-A a -j x", "-A a -j y")
	if same := read("[1:2] -A a -j x ", "-A a  -j  y"); same.Digest != two.Digest {
		t.Error("equal content has another digest")
	}
	for _, other := range []SavedChain{read(), read("-A a -j x"), read("-A a -j y", "-A a -j x"), read("-A a -j x", "-A a -j y", "-A a -j y")} {
		if other.Digest == two.Digest {
			t.Errorf("other content has an equal digest: %+v", other)
		}
	}
	if !two.Full || cmp.Diff([]string{"x", "y"}, two.Jumps) != "" {
		t.Errorf("chain %+v", two)
	}
}
