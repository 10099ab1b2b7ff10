// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// The tests of this file go on with those of reports_test.go: names at the limit.

// R94, R95: 28 bytes are the most, not characters, wherever a name stands: as a chain, in a
// jump or goto, in a file, in a command. What is over is found when the text is read, with the
// limit and the number of bytes that there are.
func TestR94R95NamesAtTheLimit(t *testing.T) {
	for _, c := range []struct {
		name string
		fits bool
	}{
		{strings.Repeat("n", 27), true}, {strings.Repeat("n", 28), true}, {strings.Repeat("n", 29), false},
		{strings.Repeat("n", 30), false}, {strings.Repeat("n", 31), false}, {strings.Repeat("n", 1000), false},
		{strings.Repeat("é", 14), true}, {strings.Repeat("é", 13) + "nn", true}, {strings.Repeat("é", 14) + "n", false}, {strings.Repeat("é", 15), false},
		{strings.Repeat("東", 9), true}, {strings.Repeat("東", 9) + "n", true}, {strings.Repeat("東", 9) + "é", false}, {strings.Repeat("東", 10), false},
		{strings.Repeat("𝄞", 7), true}, {strings.Repeat("𝄞", 7) + "n", false},
	} {
		errs := map[string]error{"a chain": CheckChainName(c.name)}
		for what, text := range map[string]string{"a jump": "-p tcp -j " + c.name, "a goto": "-g " + c.name} {
			_, errs[what] = ParseRule(text)
		}
		for what, line := range map[string]string{
			"a declaration": ":" + c.name + " - [0:0]", "-N": "-N " + c.name, "-A": "-A " + c.name + " -j ACCEPT", "-X": "-X " + c.name, "-F": "-F " + c.name,
		} {
			_, errs[what] = ParseRestore([]byte("*filter\n" + line + "\nCOMMIT\n"))
		}
		for what, err := range errs {
			switch {
			case c.fits && err != nil:
				t.Errorf("%s of %d bytes, %s: %v", what, len(c.name), c.name, err)
			case !c.fits && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d bytes: at most 28", len(c.name)))):
				t.Errorf("%s of %d bytes: %v", what, len(c.name), err)
			}
		}
	}
}

// R94: a name made of a long id is one that is taken, cut between characters, the same each
// time, another for each id, and leads back to its id.
func TestR94LongIDsHaveNames(t *testing.T) {
	var names Names
	seen := map[string]string{}
	for _, unit := range []string{"n", "é", "東", "𝄞", "e\u0301"} {
		for bytes := range 80 {
			id := "tw-" + strings.Repeat(unit, bytes)
			name := names.Of("tw-", id)
			if err := CheckChainName(name); err != nil || !utf8.ValidString(name) || !strings.HasPrefix(name, "tw-") {
				t.Errorf("%q became %q: %v", id, name, err)
			}
			if len(id) <= 28 && name != id {
				t.Errorf("%q is short enough and became %q", id, name)
			}
			if other, taken := seen[name]; taken && other != id {
				t.Errorf("%q and %q are both %q", id, other, name)
			}
			seen[name] = id
			if back, ok := names.ID(name); !ok || back != id || ShortChainName("tw-", id) != name {
				t.Errorf("%s stands for %q, want %q", name, back, id)
			}
		}
	}
}
