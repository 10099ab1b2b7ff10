// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShortChainName(t *testing.T) {
	for _, test := range []struct{ prefix, id, want string }{
		// The id itself.
		{"tw-", "tw-web", "tw-web"},
		{"tw-", "web", "web"},
		{"tw-", strings.Repeat("c", 27), strings.Repeat("c", 27)},
		{"tw-", strings.Repeat("c", 28), strings.Repeat("c", 28)},
		{"tw-", strings.Repeat("é", 14), strings.Repeat("é", 14)},

		// Too long: cut between characters.
		{"tw-", strings.Repeat("c", 29), "tw-cccccccc~"},
		{"tw-", strings.Repeat("c", 30), "tw-cccccccc~"},
		{"tw-", strings.Repeat("c", 31), "tw-cccccccc~"},
		{"tw-", strings.Repeat("é", 15), "tw-éééé~"},
		{"tw-x", strings.Repeat("é", 15), "tw-xééé~"},
		{"tw-", "tw-network-policy-of-a-long-name", "tw-network-~"},
		{"much-too-long-a-prefix", strings.Repeat("c", 29), "much-too-lo~"},
		{"", strings.Repeat("c", 29), "ccccccccccc~"},

		// What cannot be a name.
		{"tw-", "", "tw-~"},
		{"tw-", "ACCEPT", "tw-ACCEPT~"},
		{"tw-", "LOG", "tw-LOG~"},
		{"tw-", "ACEPT", "tw-ACEPT~"},
		{"tw-", "FORWARD", "tw-FORWARD~"},
		{"tw-", "a b\"c\n", "tw-a_b_c_~"},
		{"tw-", "-A", "tw--A~"},
		{"", "-A", "_A~"},
		{"!", "!x", "_x~"},
		{"", "\xff", "_~"},
		{"tw-", "web~abcdefgh23456722", "tw-web~abcd~"}, // looks shortened
	} {
		got := ShortChainName(test.prefix, test.id)
		if start, found := strings.CutSuffix(test.want, "~"); found {
			if !strings.HasPrefix(got, start+"~") || len(got) != len(start)+17 || !isShortened(got) {
				t.Errorf("%q, %q: got %q, want %s and a hash", test.prefix, test.id, got, test.want)
			}
		} else if got != test.want {
			t.Errorf("%q, %q: got %q, want %q", test.prefix, test.id, got, test.want)
		}
	}
	// The hash is part of what is promised.
	if got := ShortChainName("tw-", strings.Repeat("c", 29)); got != "tw-cccccccc~2bzsj2emllsrqohu" {
		t.Errorf("got %s", got)
	}
}

// Different ids have different names, ids that are names included.
func TestShortChainNameIsUnique(t *testing.T) {
	ids := make(map[string]string)
	add := func(prefix, id string) string {
		name := ShortChainName(prefix, id)
		if have, found := ids[name]; found && have != id {
			t.Errorf("%q and %q are both %q", have, id, name)
		}
		ids[name] = id
		return name
	}
	for i := range 2000 {
		name := add("tw-", fmt.Sprintf("a-policy-whose-name-is-too-long-%d", i))
		again := add("tw-", name)
		add("tw-", again)
		add("tw-", fmt.Sprintf("policy-%d", i))
	}
	if len(ids) != 8000 {
		t.Errorf("%d names of 8,000 ids", len(ids))
	}
	if a, b := ShortChainName("a", "b"+letters(40)), ShortChainName("ab", letters(40)); a == b {
		t.Errorf("two prefixes, one name: %s", a)
	}
}

func TestNames(t *testing.T) {
	var n Names
	long := strings.Repeat("long-", 10)
	short := n.Of("tw-", long)
	if id, ok := n.ID(short); id != long || !ok || short != ShortChainName("tw-", long) {
		t.Errorf("%s is %q, %v", short, id, ok)
	}
	if id, ok := n.ID(n.Of("tw-", "web")); id != "web" || !ok {
		t.Errorf("web is %q, %v", id, ok)
	}
	n.Forget(short)
	if id, ok := n.ID(short); ok {
		t.Errorf("%s is still %q", short, id)
	}
}

func FuzzShortChainName(f *testing.F) {
	f.Add("tw-", "a b")
	f.Add("\xff\"-", strings.Repeat("é", 20))
	f.Add("!", "-")
	f.Fuzz(func(t *testing.T, prefix, id string) {
		name := ShortChainName(prefix, id)
		if err := CheckChainName(name); err != nil || IsVerdict(name) || IsExtension(name) || !utf8.ValidString(name) {
			t.Fatalf("%q, %q: %q: %v", prefix, id, name, err)
		}
		if again := ShortChainName(prefix, id); again != name {
			t.Fatalf("%q, %q: %q, then %q", prefix, id, name, again)
		}
	})
}
