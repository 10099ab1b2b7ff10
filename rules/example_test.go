// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"strings"

	"github.com/tableward/tableward/rules"
)

func ExampleParseRule() {
	r, err := rules.ParseRule(`-p tcp  -m set --match-set peers src -m comment --comment "web \"blue\"" -j tw-web`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r)
	fmt.Println(r.Target(), r.Jump(), r.Sets())

	// A verdict is a target, but no chain.
	r = rules.MustParseRule("-s 192.0.2.0/24 -j ACCEPT")
	fmt.Printf("%s %q\n", r.Target(), r.Jump())
	// Output:
	// -p tcp -m set --match-set peers src -m comment --comment "web \"blue\"" -j tw-web
	// tw-web tw-web [peers]
	// ACCEPT ""
}

// What would do something else than add one rule is refused.
func ExampleParseRule_refused() {
	for _, text := range []string{
		"-j ACCEPT -F INPUT",
		`-m comment --comment "open -j DROP`,
		"-m comment --comment \"two\nlines\" -j DROP",
	} {
		_, err := rules.ParseRule(text)
		fmt.Println(err)
	}
	// Output:
	// line 1, column 11: hidden command "-F": a rule may only hold matches and a target
	// -j ACCEPT -F INPUT
	//           ^
	// line 1, column 22: quote does not close
	// -m comment --comment "open -j DROP
	//                      ^
	// line 1, column 26: newline: a rule is one line
	// -m comment --comment "two\nlines" -j DROP
	//                          ^
}

func ExampleParseRestore() {
	in, err := rules.ParseRestore([]byte(`# ip: 6
*filter
:web - [0:0]
-A web -p tcp --dport 443 -j ACCEPT
-A INPUT -j web
COMMIT
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, b := range in.Blocks {
		fmt.Printf("IPv%d %s\n", b.IPVersion, b.Table)
		for _, l := range b.Lines {
			fmt.Printf("line %d: chain %s, rule %q\n", l.Number, l.Chain, l.Rule)
		}
	}
	// Output:
	// IPv6 filter
	// line 3: chain web, rule ""
	// line 4: chain web, rule "-p tcp --dport 443 -j ACCEPT"
	// line 5: chain INPUT, rule "-j web"
}

func ExampleAppendRestore() {
	b := rules.Block{Table: "filter", Lines: []rules.Line{
		{Command: rules.Declare, Chain: "tw-web", Policy: "-"},
		{Command: rules.Append, Chain: "tw-web", Rule: rules.MustParseRule("-j ACCEPT")},
	}}
	fmt.Print(string(rules.AppendRestore(nil, b)))
	// Output:
	// *filter
	// :tw-web - [0:0]
	// -A tw-web -j ACCEPT
	// COMMIT
}

func ExampleParseSave() {
	set, err := rules.ParseSave(strings.NewReader(`*filter
:INPUT DROP [10:840]
:tw-web - [0:0]
[7:420] -A INPUT -i eth0 -j tw-web
[0:0] -A tw-web -m socket [unsupported revision]
COMMIT
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range set.Tables[0].Chains {
		fmt.Printf("%s %q jumps to %q\n", c.Name, c.Policy, c.Jumps)
		for _, r := range c.Rules {
			fmt.Println(" ", r.Text, "; can be sent again:", r.Err == nil)
		}
	}
	// Output:
	// INPUT "DROP" jumps to ["tw-web"]
	//   -i eth0 -j tw-web ; can be sent again: true
	// tw-web "" jumps to []
	//   -m socket [unsupported revision] ; can be sent again: false
}
