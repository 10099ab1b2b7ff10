// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/transaction"
)

// describe writes a file's messages, one a line.
func describe(f *File) []string {
	var out []string
	for _, m := range f.Messages {
		out = append(out, fmt.Sprintf("%s %s %s@%d %s", m.ID, m.Owner, m.Table, m.Head.Number, describeBody(m.Body)))
	}
	return out
}

func describeBody(body transaction.Body) string {
	switch b := body.(type) {
	case transaction.RewriteChains:
		s := "rewrite " + b.Chains[0].Name
		for _, r := range b.Chains[0].Rules {
			s += " | " + r.String()
		}
		return s
	case transaction.EditRules:
		s := "edit " + b.Chain
		for _, e := range b.Edits {
			word := map[transaction.Op]string{
				transaction.InsertBottom: "bottom", transaction.InsertFirst: "first", transaction.Ban: "ban", transaction.InsertNear: "near",
				transaction.InsertBefore: "before " + e.Anchor.String() + ":", transaction.InsertAfter: "after " + e.Anchor.String() + ":",
			}[e.Op]
			s += " | " + word + " " + e.Rule.String()
		}
		if b.NoStub {
			s += " nostub"
		}
		return s
	case transaction.SetPolicy:
		return "policy " + b.Chain + " " + b.Policy
	case transaction.DeleteChains:
		return "delete " + strings.Join(b.Chains, " ")
	}
	return fmt.Sprintf("%T", body)
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name, text string
		file       string // "" is web.rules
		opts       Options
		want       []string
	}{
		{
			name: "chains and hooks",
			text: "*filter\n:web - [0:0]\n-A web -j ACCEPT\n-A INPUT -j web\n-A web -j DROP\n-A INPUT -p udp -j web\nCOMMIT\n",
			want: []string{
				"web.rules#1 web 4/filter@2 rewrite web | -j ACCEPT | -j DROP",
				"web.rules#2 web 4/filter@4 edit INPUT | bottom -j web nostub",
				"web.rules#3 web 4/filter@6 edit INPUT | bottom -p udp -j web nostub",
			},
		},
		{
			name: "a run of one chain is one message",
			text: "*filter\n-A INPUT -s 192.0.2.1 -j DROP\n# comment\n\n-I INPUT -j ACCEPT\n-D INPUT -j DROP\n-A FORWARD -j DROP\nCOMMIT\n",
			want: []string{
				"web.rules#1 web 4/filter@2 edit INPUT | bottom -s 192.0.2.1 -j DROP | first -j ACCEPT | ban -j DROP nostub",
				"web.rules#2 web 4/filter@7 edit FORWARD | bottom -j DROP nostub",
			},
		},
		{
			name: "-N, insert at the head, flush above the first rule, empty chain, counters, CRLF, no last newline",
			text: "* filter\r\n-N a\r\n-F a\r\n[1:2] -A a -j DROP\r\n-I a -j ACCEPT\r\n-I a 1 -j RETURN\r\n:empty -\r\n--delete-chain old\r\nCOMMIT",
			want: []string{
				"web.rules#1 web 4/filter@2 rewrite a | -j RETURN | -j ACCEPT | -j DROP",
				"web.rules#2 web 4/filter@7 rewrite empty",
				"web.rules#3 web 4/filter@8 delete old",
			},
		},
		{
			name: "IP versions and tables",
			text: "*nat\n:a - [0:0]\nCOMMIT\n# ip: 6\n*nat\n:a - [0:0]\nCOMMIT\n# ip: 4\n*raw\n:a - [0:0]\nCOMMIT\n",
			want: []string{
				"web.rules#1 web 4/nat@2 rewrite a", "web.rules#2 web 6/nat@6 rewrite a", "web.rules#3 web 4/raw@10 rewrite a",
			},
		},
		{
			name: "IPv6 by the name", file: "/etc/web.v6.rules",
			text: "*nat\n:a - [0:0]\nCOMMIT\n# ip: 4\n*nat\n:a - [0:0]\nCOMMIT\n",
			want: []string{"web.v6.rules#1 web 6/nat@2 rewrite a", "web.v6.rules#2 web 4/nat@6 rewrite a"},
		},
		{
			name: "options", opts: Options{Owner: "me", IPv6: true, Policies: true, StubMissing: true, Label: "d/web.rules"},
			text: "*filter\n:INPUT DROP [0:0]\n:OUTPUT - [0:0]\n-A INPUT -j gone\nCOMMIT\n",
			want: []string{"d/web.rules#1 me 6/filter@2 policy INPUT DROP", "d/web.rules#2 me 6/filter@4 edit INPUT | bottom -j gone"},
		},
		{
			name: "policies are left out",
			text: "*filter\n:INPUT DROP [0:0]\nCOMMIT\n",
		},
		{
			name: "a rule of a kernel chain is kept once: of two -A the first",
			text: "*filter\n-A INPUT -j DROP\n-A INPUT -j ACCEPT\n-A INPUT -j DROP\nCOMMIT\n",
			want: []string{"web.rules#1 web 4/filter@2 edit INPUT | bottom -j DROP | bottom -j ACCEPT nostub"},
		},
		{
			name: "of two -I the last, which is nearer to the top; a message without a rule is none",
			text: "*filter\n-I INPUT -j DROP\n:a - [0:0]\n-I INPUT -j a\n-I INPUT -j DROP\nCOMMIT\n",
			want: []string{
				"web.rules#1 web 4/filter@3 rewrite a",
				"web.rules#2 web 4/filter@4 edit INPUT | first -j a | first -j DROP nostub",
			},
		},
		{
			name: "places among the rules of others",
			text: "*filter\n# place: before chain DOCKER-USER\n-A FORWARD -j DROP\n#place:after comment \"the gate\"\r\n\n# why\n-A FORWARD -j LOG\n  # place:  near \n[1:2] -A FORWARD -j TRACE\n-A FORWARD -j ACCEPT\nCOMMIT\n",
			want: []string{"web.rules#1 web 4/filter@3 edit FORWARD | before the first rule that jumps to chain DOCKER-USER: -j DROP" +
				` | after the first rule with the comment "the gate": -j LOG | near -j TRACE | bottom -j ACCEPT nostub`},
		},
		{
			name: "a place of a rule that stands above is the first one's",
			text: "*filter\n-A INPUT -j DROP\n# place: near\n-A INPUT -j DROP\nCOMMIT\n",
			want: []string{"web.rules#1 web 4/filter@2 edit INPUT | bottom -j DROP nostub"},
		},
		{
			name: "a rule that is removed in between may come again",
			text: "*filter\n-D INPUT -j DROP\n-A INPUT -j DROP\n-D INPUT -j DROP\n-A INPUT -j DROP\nCOMMIT\n",
			want: []string{"web.rules#1 web 4/filter@2 edit INPUT | ban -j DROP | bottom -j DROP | ban -j DROP | bottom -j DROP nostub"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.file == "" {
				c.file = "web.rules"
			}
			f, err := Parse(c.file, []byte(c.text), c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, describe(f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFindingsAndHooks(t *testing.T) {
	const text = "*filter\n:INPUT DROP [0:0]\n:a - [0:0]\n-A INPUT -j a\n-A INPUT -j DROP\n-A INPUT -j DROP\n-A INPUT -p tcp -g gone\n-A a -j elsewhere\nCOMMIT\n"
	f, err := Parse("web.rules", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Findings) != 1 || f.Findings[0].Line.Number != 6 || f.Findings[0].Column != 10 || !strings.Contains(f.Findings[0].Reason, "line 5") {
		t.Errorf("findings: %+v", f.Findings)
	}
	if len(f.Hooks) != 1 || f.Hooks[0].Target != "gone" || f.Hooks[0].Line.Number != 7 || f.Hooks[0].Column != 20 {
		t.Errorf("hooks: %+v", f.Hooks)
	}
	if !f.PoliciesIgnored {
		t.Error("the policy was not noted")
	}
}

// TestOddPlace holds that a comment which only looks like a place stays a comment, and is told.
func TestOddPlace(t *testing.T) {
	f, err := Parse("web.rules", []byte("# place: the rules of the web server go here\n*filter\n-A INPUT -j DROP\nCOMMIT\n"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Findings) != 1 || f.Findings[0].Line.Number != 1 || f.Findings[0].Column != 10 || !strings.Contains(f.Findings[0].Reason, "before chain NAME") {
		t.Errorf("findings: %+v", f.Findings)
	}
}

// TestFind holds that a place in a rule is found in the file, where its text may differ.
func TestFind(t *testing.T) {
	const text = "*filter\n:a - [0:0]\n-A a -j DROP\n[1:2]  -A  a   -m comment  --comment \"plain\"   --bogus\nCOMMIT\n"
	f, err := Parse("web.rules", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &f.Messages[0]
	rule := m.Rules[1].Rule.String()
	for _, c := range []struct {
		chain, rule  string
		column       int
		line, inLine int
	}{
		{"a", rule, strings.Index(rule, "--bogus") + 1, 4, 48},
		{"a", rule, 0, 4, 16},
		{"a", "-j DROP", 4, 3, 9},
		{"a", "", 0, 2, 2},
		{"other", "-j DROP", 1, 2, 2},
	} {
		line, column := m.Find(c.chain, c.rule, c.column)
		if line.Number != c.line || column != c.inLine {
			t.Errorf("Find(%q, %q, %d) = %d:%d, want %d:%d", c.chain, c.rule, c.column, line.Number, column, c.line, c.inLine)
		}
	}
}

func TestLabels(t *testing.T) {
	got := Labels([]string{"a/web.rules", "b/web.rules", "c/db.rules", "-"})
	if diff := cmp.Diff([]string{"a/web.rules", "b/web.rules", "db.rules", "-"}, got); diff != "" {
		t.Error(diff)
	}
}
