// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSeveral(t *testing.T) {
	for text, want := range map[string]bool{
		"-j ACCEPT":                           false,
		"-s 10.0.0.1 -j ACCEPT":               false,
		"-s 10.0.0.0/255.255.0.0 -j ACCEPT":   false,
		"! -s 10.0.0.0/8 -d ::/0":             false,
		"-d 2001:db8::1/64 -j ACCEPT":         false,
		"-s ::ffff:1.2.3.4":                   false,
		"-s 10.0.0.1,10.0.0.2 -j ACCEPT":      true,
		"--source 10.0.0.1,10.0.0.2":          true,
		"-d localhost -j ACCEPT":              true,
		"--destination=abc.de":                true,
		"--dst fe80::1,fe80::2":               true,
		"-m comment --comment \"-s a,b\"":     false,
		"-p tcp -m multiport --dports 1,2":    false,
		"-m set --match-set x src,dst -s 1.1": false,
	} {
		if got := MustParseRule(text).Several(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// The quick look at the words never overlooks what the rule's options say.
func TestPropertySeveral(t *testing.T) {
	words := []string{"-s", "-d", "!", "10.0.0.1", "10.0.0.0/8", "::1", "host", "10.0.0.1,10.0.0.2", "a,b", "-p", "tcp", "-j", "ACCEPT",
		"-s10.0.0.1,10.0.0.2", "-dhost", "-fs", "--source", "--src", "--so", "--source=host", "--dst", "--d", "--destination", "--dport",
		"--sport", "--dports", "--state", "-m", "comment", "--comment", "\"-s", "x\"", "--dst-type", "--set", "\"10.0.0.1\"", "\"-s\"", "-4s"}
	checked := 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 8).Draw(t, "words"), " ")
		r, err := ParseRule(text)
		if err != nil {
			return
		}
		checked++
		if r.several() && plainAddresses(r.text) {
			t.Fatalf("%q: overlooked", text)
		}
	})
	if checked == 0 {
		t.Error("no rule was accepted")
	}
}
