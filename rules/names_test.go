// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckChainName(t *testing.T) {
	for _, name := range []string{
		"a", "a'b", "[x]", "a#b", "né", "tcp", ":x", "app:PREROUTING:block", "a.b/c", "a,b%c@d",
		"a!b", "LAN-p", `a\b`, "ACCEPT", "LOG", "東京", strings.Repeat("c", 27), strings.Repeat("c", 28),
		strings.Repeat("é", 14),
	} {
		if err := CheckChainName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                            "a chain name is missing",
		strings.Repeat("c", 29):       `chain name "ccccccccccccccccccccccccccccc" has 29 bytes: at most 28`,
		strings.Repeat("é", 14) + "x": `chain name "ééééééééééééééx" has 29 bytes: at most 28`,
		strings.Repeat("c", 31):       `chain name "ccccccccccccccccccccccccccccccc" has 31 bytes: at most 28`,
		"-x":                          `chain name "-x" begins with "-" like an option`,
		"!x":                          `chain name "!x" begins with "!" like an option`,
		"a b":                         `chain name "a b" has a blank`,
		"a\tb":                        `chain name "a\tb" has a blank`,
		`a"b`:                         `chain name "a\"b" has a double quote`,
		"a\nb":                        `chain name "a\nb" has a control character`,
		"n\xe9":                       `chain name "n\xe9" is not UTF-8`,
	} {
		if err := CheckChainName(name); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
}

func TestTargetNames(t *testing.T) {
	if !slices.IsSorted(extensions) {
		t.Error("extensions are not sorted")
	}
	for _, name := range append(slices.Clone(extensions), verdicts...) {
		if IsVerdict(name) == IsExtension(name) {
			t.Errorf("%s is both or neither", name)
		}
		if similar := SimilarTarget(name); similar != "" {
			t.Errorf("%s is a target, and similar to %s", name, similar)
		}
	}
	for _, name := range []string{"", "accept", "web", "standard", "Drop"} {
		if IsVerdict(name) || IsExtension(name) {
			t.Errorf("%q is no target", name)
		}
	}
}

func TestSimilarTarget(t *testing.T) {
	for name, want := range map[string]string{
		"ACCPET": "ACCEPT", "ACEPT": "ACCEPT", "ACCEPTT": "ACCEPT", "ACCEPD": "ACCEPT",
		"RDOP": "DROP", "DORP": "DROP", "RETRUN": "RETURN", "MASQUERAD": "MASQUERADE",
		"REJEKT": "REJECT", "MARKS": "MARK",
		"": "", "accpet": "", "DROP1": "", "PORD": "", "WEB": "", "LOGGING": "", "ACCEPTED": "",
	} {
		if got := SimilarTarget(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
