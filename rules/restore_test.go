// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRestore(t *testing.T) {
	input := "# ip: 4 is the default\n" +
		"\n" +
		"*filter\r\n" +
		":INPUT DROP [12:34]\n" +
		":web -\n" +
		"  # a comment\n" +
		"[12:34] -A web -j ACCEPT\n" +
		"\t--append  \"web\"  -s 10.0.0.1  --jump DROP \n" +
		"-I web -j LOG\n" +
		"-I web 3 -j LOG\n" +
		"--ins web ! -s 10.0.0.1\n" +
		"-D web -j LOG\n" +
		"-D web 2\n" +
		"-R web 1 -j LOG\n" +
		"-N a\n" +
		"-F\n" +
		"--flush web\n" +
		"-X\n" +
		"--delete-chain a\n" +
		"-P INPUT ACCEPT\n" +
		"-E a b\n" +
		"-Z web\n" +
		"COMMIT \n" +
		"# ip: 6\n" +
		"* nat\n" +
		"COMMIT\n" +
		"#ip:4\n" +
		"*raw\n" +
		"COMMIT"
	parsed, err := ParseRestore([]byte(input))
	if err != nil {
		t.Fatal(err)
	}
	accept, drop, log := MustParseRule("-j ACCEPT"), MustParseRule("-s 10.0.0.1 --jump DROP"), MustParseRule("-j LOG")
	want := &Input{Blocks: []Block{
		{Table: "filter", Number: 3, Lines: []Line{
			{Command: Declare, Chain: "INPUT", Policy: "DROP", Column: 2},
			{Command: Declare, Chain: "web", Policy: "-", Column: 2},
			{Command: Append, Chain: "web", Rule: accept, Column: 12, RuleColumn: 16},
			{Command: Append, Chain: "web", Rule: drop, Column: 12, RuleColumn: 19},
			{Command: Insert, Chain: "web", Rule: log, Column: 4, RuleColumn: 8},
			{Command: Insert, Chain: "web", Index: 3, Rule: log, Column: 4, RuleColumn: 10},
			{Command: Insert, Chain: "web", Rule: MustParseRule("! -s 10.0.0.1"), Column: 7, RuleColumn: 11},
			{Command: Delete, Chain: "web", Rule: log, Column: 4, RuleColumn: 8},
			{Command: DeleteIndex, Chain: "web", Index: 2, Column: 4},
			{Command: Replace, Chain: "web", Index: 1, Rule: log, Column: 4, RuleColumn: 10},
			{Command: NewChain, Chain: "a", Column: 4},
			{Command: Flush},
			{Command: Flush, Chain: "web", Column: 9},
			{Command: DeleteChain},
			{Command: DeleteChain, Chain: "a", Column: 16},
			{Command: Policy, Chain: "INPUT", Policy: "ACCEPT", Column: 4},
			{Command: Rename, Chain: "a", NewName: "b", Column: 4},
			{Command: Zero, Chain: "web", Column: 4},
		}},
		{Table: "nat", Number: 25, IPVersion: IPv6},
		{Table: "raw", Number: 28, IPVersion: IPv4},
	}}
	lines := strings.Split(input, "\n")
	number := 4
	for i := range want.Blocks[0].Lines {
		l := &want.Blocks[0].Lines[i]
		if number == 6 {
			number++
		}
		l.Number, l.Text = number, lines[number-1]
		number++
	}
	// "# ip: 4 is the default" is a comment, since more follows the number.
	if diff := cmp.Diff(want, parsed, cmp.AllowUnexported(Rule{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	rendered := string(AppendRestore([]byte("before\n"), parsed.Blocks[0]))
	wantText := `before
*filter
:INPUT DROP [0:0]
:web - [0:0]
-A web -j ACCEPT
-A web -s 10.0.0.1 --jump DROP
-I web -j LOG
-I web 3 -j LOG
-I web ! -s 10.0.0.1
-D web -j LOG
-D web 2
-R web 1 -j LOG
-N a
-F
-F web
-X
-X a
-P INPUT ACCEPT
-E a b
-Z web
COMMIT
`
	if diff := cmp.Diff(wantText, rendered); diff != "" {
		t.Errorf("rendered: -want +got\n%s", diff)
	}
}

func TestParseRestoreRefuses(t *testing.T) {
	long := strings.Repeat("c", 29)
	for _, test := range []struct {
		input        string
		line, column int
		reason       string
	}{
		{"hello\n", 1, 1, "unknown kind of line: neither *table, :chain, a command such as -A, COMMIT nor a # comment"},
		{"*nat\nhello\nCOMMIT\n", 2, 1, "unknown kind of line: neither *table, :chain, a command such as -A, COMMIT nor a # comment"},
		{" *nat\n", 1, 2, "*table, :chain and COMMIT stand at the begin of a line"},
		{"*nat\n :a -\n", 2, 2, "*table, :chain and COMMIT stand at the begin of a line"},
		{"\n-A web -j DROP\n", 2, 1, "a command outside of a table"},
		{":web -\n", 1, 1, "chain outside of a table"},
		{"COMMIT\n", 1, 1, "COMMIT outside of a table"},
		{"*nst\n", 1, 2, `unknown table "nst": one of filter, mangle, nat, raw, security`},
		{"*\n", 1, 2, `unknown table "": one of filter, mangle, nat, raw, security`},
		{"*nat x\n", 1, 6, "unexpected word after the table's name"},
		{"*nat\n*raw\n", 2, 1, "table nat not committed before line 2"},
		{"*nat\n# end\n", 2, 6, "table nat not committed: no COMMIT at the end of the input"},
		{"*nat\n-A w -j A\x00\n", 2, 10, "NUL byte"},
		{"*nat\n-A w\r -j A\n", 2, 5, "carriage return inside a line"},
		{"*nat\r\r\n", 1, 5, "carriage return inside a line"},
		{"# n\xe9\n", 1, 4, "byte 0xe9 is not UTF-8"},
		{"*nat\n#" + strings.Repeat("x", 10000) + "\n", 2, 10001, "line over 10,000 bytes"},
		{"*nat\n-A w -s " + strings.Repeat("1", 1024), 2, 9, "word of 1024 bytes: at most 1,023"},
		{"*nat\n-A w " + strings.Repeat("! ", 254), 2, 512, "more than 255 words"},
		{"*nat\n-A w -m comment --comment \"a\n", 2, 27, "quote does not close"},
		{"*nat\n:w\n", 2, 3, `a policy is missing: write ":w - [0:0]"`},
		{"*nat\n:w - 0:0\n", 2, 6, "unexpected word: counters are [packets:bytes]"},
		{"*nat\n:w - [0:0] x\n", 2, 12, "unexpected word after the counters"},
		{"*nat\n:" + long + " -\n", 2, 2, `chain name "` + long + `" has 29 bytes: at most 28`},
		{"*nat\n:\n", 2, 2, "a chain name is missing"},
		{"*nat\n:-A -\n", 2, 2, `chain name "-A" begins with "-" like an option`},
		{"*nat\n:\"w\" -\n", 2, 2, `chain name "\"w\"" has a double quote`},
		{"*nat\n-A " + long + " -j DROP\n", 2, 4, `chain name "` + long + `" has 29 bytes: at most 28`},
		{"*nat\n-A \"a b\" -j DROP\n", 2, 4, `chain name "a b" has a blank`},
		{"*nat\n-A -j DROP\n", 2, 4, `chain name "-j" begins with "-" like an option`},
		{"*nat\n-A\n", 2, 3, "-A needs a chain"},
		{"*nat\n-A w\n", 2, 5, "a rule without text"},
		{"*nat\n-I w 2\n", 2, 7, "a rule without text"},
		{"*nat\n-I w 0 -j DROP\n", 2, 6, `"0" is neither an index from 1 to 2147483647 nor the begin of a rule`},
		{"*nat\n-I w x -j DROP\n", 2, 6, `"x" is neither an index from 1 to 2147483647 nor the begin of a rule`},
		{"*nat\n-D w 99999999999\n", 2, 6, `"99999999999" is neither an index from 1 to 2147483647 nor the begin of a rule`},
		{"*nat\n-D w 1 -j DROP\n", 2, 8, "unexpected word after the index"},
		{"*nat\n-R w -j DROP\n", 2, 13, "-R needs an index"},
		{"*nat\n-N\n", 2, 3, "-N needs 1 argument(s)"},
		{"*nat\n-N a b\n", 2, 6, "unexpected word after -N"},
		{"*nat\n-F a -j DROP\n", 2, 6, "unexpected word after -F"},
		{"*nat\n-E a -b\n", 2, 6, `chain name "-b" begins with "-" like an option`},
		{"*nat\n-L w\n", 2, 1, `command "-L" changes nothing`},
		{"*nat\n--check w -j DROP\n", 2, 1, `command "--check" changes nothing`},
		{"*nat\n-s 10.0.0.1 -A w\n", 2, 1, `unknown kind of line: "-s" is no command`},
		{"*nat\n-t nat -A w\n", 2, 1, `unknown kind of line: "-t" is no command`},
		{"*nat\n--nothing w\n", 2, 1, `unknown kind of line: "--nothing" is no command`},
		{"*nat\n--del w 1\n", 2, 1, `command "--del" is ambiguous`},
		{"*nat\n--i w -j DROP\n", 2, 1, `command "--i" is ambiguous`},
		{"*nat\n-Aw -j DROP\n", 2, 1, `unknown command "-Aw": a blank belongs after -A`},
		{"*nat\n-\n", 2, 1, "unknown kind of line: a command is expected"},
		{"*nat\n[1:2]\n", 2, 6, "counters without a command"},
		{"*nat\n[1:2] x\n", 2, 7, "unknown kind of line: a command is expected"},
		{"*nat\n[1:2 -A w\n", 2, 1, "unknown kind of line: counters are [packets:bytes]"},
		{"*nat\n# ip: 6\n", 2, 1, `"# ip: 6" inside of table nat: it stands between tables`},
		{"# ip: v5\n", 1, 1, `unknown IP version "v5": write "# ip: 4" or "# ip: 6"`},
		{"*nat\n-A w -j DROP -F\n", 2, 14, `hidden command "-F": a rule may only hold matches and a target`},
		{"*nat\n-A w -A v -j DROP\n", 2, 6, `a rule is written without its chain: it cannot begin with "-A"`},
		{"*nat\n[1:2] -I w 2  -j \"\"\n", 2, 18, "an empty target"},
	} {
		_, err := ParseRestore([]byte(test.input))
		text := strings.TrimSuffix(strings.Split(test.input, "\n")[test.line-1], "\r")
		want := &SyntaxError{test.line, test.column, text, test.reason}
		var got *SyntaxError
		if !errors.As(err, &got) {
			t.Errorf("%.60q: error %v", test.input, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.60q: -want +got\n%s", test.input, diff)
		}
	}
}

// TestRestoreFiles reads what people feed to iptables-restore.
func TestRestoreFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/*.rules")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseRestore(data); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		checkStable(t, data)
	}
}

// checkStable renders parsed input and parses it again: both must say the same.
func checkStable(t *testing.T, data []byte) {
	t.Helper()
	first, err := ParseRestore(data)
	if err != nil {
		return
	}
	rendered := render(first)
	second, err := ParseRestore(rendered)
	if err != nil {
		t.Fatalf("%q renders to %q: %v", data, rendered, err)
	}
	if diff := cmp.Diff(withoutPlace(first), withoutPlace(second), cmp.AllowUnexported(Rule{})); diff != "" {
		t.Fatalf("%q: -first +second\n%s", data, diff)
	}
	if again := render(second); string(again) != string(rendered) {
		t.Fatalf("%q renders to %q, then to %q", data, rendered, again)
	}
}

func render(in *Input) []byte {
	var out []byte
	for _, block := range in.Blocks {
		if block.IPVersion != 0 {
			out = append(out, "# ip: "...)
			out = append(out, byte('0'+block.IPVersion), '\n')
		}
		out = AppendRestore(out, block)
	}
	return out
}

// withoutPlace removes where the lines stood.
func withoutPlace(in *Input) *Input {
	out := &Input{}
	for _, block := range in.Blocks {
		lines := append([]Line(nil), block.Lines...)
		for i := range lines {
			lines[i].Number, lines[i].Text, lines[i].Column, lines[i].RuleColumn = 0, "", 0, 0
		}
		block.Number, block.Lines = 0, lines
		out.Blocks = append(out.Blocks, block)
	}
	return out
}

func TestAppendRestoreQuotes(t *testing.T) {
	block := Block{Table: "filter", Lines: []Line{
		{Command: Declare, Chain: "a"},
		{Command: Flush, Chain: "a b"}, // never made by ParseRestore; must stay one word all the same
		{Command: Policy, Chain: "INPUT"},
	}}
	want := "*filter\n:a - [0:0]\n-F \"a b\"\n-P INPUT -\nCOMMIT\n"
	if diff := cmp.Diff(want, string(AppendRestore(nil, block))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
