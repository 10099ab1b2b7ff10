// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"strings"
	"testing"
)

// What is not the whole of one chain is no answer.
func TestParseListed(t *testing.T) {
	for text, want := range map[string]string{
		"-N a\n":                  "a ",
		"-P INPUT DROP\n":         "INPUT DROP",
		"-N a\n-A a\n-A a -g b\n": "a ; ; -g b",
		"-N a\n-A a -m comment --comment \"x\nCOMMIT\n-N b\"\n": `a ; -m comment --comment "x\nCOMMIT\n-N b"`,
		"":                               "",
		"-N b\n":                         "",
		"-A a -p tcp\n":                  "",
		"-N a\n-A b -p tcp\n":            "",
		"-N a\n-A a -p t":                "",
		"-N a\nCOMMIT\n":                 "",
		"-N a\n:b - [0:0]\n":             "",
		"-N a\n-N b\n-A b\n":             "",
		"-N a\nCOMMIT\n*nat\n:c - [0]\n": "",
		"-P INPUT\n":                     "",
	} {
		chain := "a"
		if strings.HasPrefix(text, "-P") {
			chain = "INPUT"
		}
		c, ok := parseListed(text, chain)
		got := ""
		if ok {
			got = c.Name + " " + c.Policy
			for _, r := range c.Rules {
				got += "; " + r.Text
			}
		}
		if got != want || ok != (want != "") || ok && !c.Full {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
