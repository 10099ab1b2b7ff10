// SPDX-License-Identifier: Apache-2.0

package rulefile

import (
	"errors"
	"strings"
	"testing"

	"github.com/tableward/tableward/rules"
)

// TestRefused holds the place of each refusal. The table begins in line 1.
func TestRefused(t *testing.T) {
	long := strings.Repeat("x", 1024)
	for _, c := range []struct {
		name         string
		text         string // between *filter and COMMIT
		line, column int
		reason       string
	}{
		{"unknown kind of line", "hello", 2, 1, "unknown kind of line"},
		{"no command", "-s 192.0.2.1 -j DROP", 2, 1, "is no command"},
		{"quoting", ":a - [0:0]\n-A a -m comment --comment \"half -j DROP", 3, 27, "quote does not close"},
		{"newline in a comment", ":a - [0:0]\n-A a -m comment --comment \"x\n-A INPUT -j ACCEPT\"", 3, 27, "quote does not close"},
		{"NUL", ":a - [0:0]\n-A a -s 192.0.2.1\x00 -j DROP", 3, 18, "NUL"},
		{"CR inside", ":a - [0:0]\n-A a\r -j DROP", 3, 5, "carriage return"},
		{"hidden command", ":a - [0:0]\n-A a -j ACCEPT -F INPUT", 3, 16, "hidden command"},
		{"hidden long command", ":a - [0:0]\n-A a -j ACCEPT --flush INPUT", 3, 16, "hidden command"},
		{"many words", "-A INPUT" + strings.Repeat(" !", 300), 2, 516, "255 words"},
		{"long word", "-A INPUT -s " + long, 2, 13, "at most 1,023"},
		{"long line", "-A INPUT" + strings.Repeat(" xxxxxxxxxxxxxxxxxxx", 1000), 2, 10001, "10,000 bytes"},
		{"long chain name", ":" + strings.Repeat("c", 29) + " - [0:0]", 2, 2, "at most 28"},
		{"chain name like an option", "-N -x", 2, 4, "like an option"},
		{"rule above its chain", "-A a -j DROP\n:a - [0:0]", 2, 4, "declaration in line 3"},
		{"rule above -N", "-A a -j DROP\n-N a\n-A a -j DROP", 2, 4, "declaration in line 3"},
		{"jump above", "-A INPUT -p tcp -j a\n:a - [0:0]", 2, 20, "declaration in line 3"},
		{"goto above", ":b - [0:0]\n-A b --goto a\n:a - [0:0]", 3, 13, "declaration in line 4"},
		{"attached jump above", "-A INPUT --jump=a\n:a - [0:0]", 2, 17, "declaration in line 3"},
		{"removal above", "-D INPUT -j a\n:a - [0:0]", 2, 13, "declaration in line 3"},
		{"delete above", "-X a\n:a - [0:0]", 2, 4, "declaration in line 3"},
		{"flush above", "-F a\n:a - [0:0]", 2, 4, "declaration in line 3"},
		{"-N without a rule", "-N a\n-A INPUT -j a", 2, 4, `write ":a - [0:0]"`},
		{"-N of a built-in chain", "-N INPUT", 2, 4, "built in"},
		{"-N of a declared chain", ":a - [0:0]\n-N a", 3, 4, "a second time"},
		{"declared below its rules", ":a - [0:0]\n-A a -j DROP\n:a - [0:0]", 4, 2, "a second time: line 2"},
		{"declared in a second block", ":a - [0:0]\nCOMMIT\n*filter\n:a - [0:0]", 5, 2, "a second time: line 2"},
		{"policy of a user chain", ":a DROP [0:0]", 2, 4, "only a built-in chain"},
		{"insert at 2", "-I INPUT 2 -j DROP", 2, 10, "-I INPUT 2"},
		{"insert at 2 with counters", "[1:2] -I INPUT 2 -j DROP", 2, 16, "-I INPUT 2"},
		{"insert at 3 of a declared chain", ":a - [0:0]\n-I a 3 -j DROP", 3, 6, "-I a 3"},
		{"place without an anchor", "# place: before\n-A INPUT -j DROP", 2, 10, `"before" is no place`},
		{"place of an unknown kind", "# place: before rule X\n-A INPUT -j DROP", 2, 10, `"before rule X" is no place`},
		{"place with more words", "# place: near INPUT\n-A INPUT -j DROP", 2, 10, `"near INPUT" is no place`},
		{"place with a quote", "# place: after comment \"x\n-A INPUT -j DROP", 2, 9, "quote does not close"},
		{"place twice", "# place: near\n# place: near\n-A INPUT -j DROP", 3, 9, "line 2 says one"},
		{"place of an insert", "# place: near\n-I INPUT -j DROP", 2, 10, "with -A"},
		{"place of a rule of an own chain", ":a - [0:0]\n# place: near\n-A a -j DROP", 3, 10, "that the file does not declare"},
		{"place of nothing", "-A INPUT -j DROP\n# place: near", 3, 10, "with -A"},
		{"flush of all", "-F", 2, 1, "without a chain"},
		{"flush of a stranger", "-F INPUT", 2, 4, "does not declare"},
		{"flush below a rule", ":a - [0:0]\n-A a -j DROP\n--flush a", 4, 9, "below a rule"},
		{"delete of all", "-X", 2, 1, "without a chain"},
		{"-P", "-P INPUT DROP", 2, 1, ":INPUT DROP [0:0]"},
		{"-R", "-R INPUT 1 -j DROP", 2, 1, "-R is refused"},
		{"-E", "-E a b", 2, 1, "-E is refused"},
		{"-Z", "-Z", 2, 1, "-Z is refused"},
		{"-Z with counters", "[0:0]-Z INPUT", 2, 6, "-Z is refused"},
		{"-D by number", "-D INPUT 1", 2, 1, "-D with a number"},
		{"no COMMIT", "-A INPUT -j DROP\n*nat", 3, 1, "not committed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("dir/web.rules", []byte("*filter\n"+c.text+"\nCOMMIT\n"), Options{})
			checkRefusal(t, err, c.line, c.column, c.reason)
		})
	}
}

// TestRefusedFile is TestRefused for what does not stand in a table.
func TestRefusedFile(t *testing.T) {
	for _, c := range []struct {
		name, text   string
		line, column int
		reason       string
	}{
		{"unknown table", "*broute\nCOMMIT\n", 1, 2, "unknown table"},
		{"a rule outside", "-A INPUT -j DROP\n", 1, 1, "outside of a table"},
		{"no COMMIT at the end", "*filter\n-A INPUT -j DROP\n", 2, 17, "not committed"},
		{"ip inside of a table", "*filter\n# ip: 6\nCOMMIT\n", 2, 1, "inside of table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("dir/web.rules", []byte(c.text), Options{})
			checkRefusal(t, err, c.line, c.column, c.reason)
		})
	}
}

func checkRefusal(t *testing.T, err error, line, column int, reason string) {
	t.Helper()
	var refused *Error
	var syntax *rules.SyntaxError
	if !errors.As(err, &refused) || !errors.As(err, &syntax) {
		t.Fatalf("error %v (%T), want a refusal", err, err)
	}
	if syntax.Line != line || syntax.Column != column || !strings.Contains(syntax.Reason, reason) {
		t.Errorf("refused at %d:%d: %s; want %d:%d: %s", syntax.Line, syntax.Column, syntax.Reason, line, column, reason)
	}
	if refused.File != "dir/web.rules" {
		t.Errorf("file %q", refused.File)
	}
}

func TestErrorShowsThePlace(t *testing.T) {
	_, err := Parse("web.rules", []byte("*filter\n-F INPUT\nCOMMIT\n"), Options{})
	want := "web.rules:2:4: -F INPUT: the file does not declare this chain, so its rules are those of others\n" +
		"-F INPUT\n" +
		"   ^"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestClashes(t *testing.T) {
	parse := func(name, text string) *File {
		f, err := Parse(name, []byte(text), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const text = "*filter\n:a - [0:0]\nCOMMIT\n"
	first, second := parse("web.rules", text), parse("web.more.rules", text)
	other, v6 := parse("db.rules", text), parse("web.v6.rules", text)
	got := Clashes([]*File{first, other, second, v6})
	if len(got) != 2 || got[first] == nil || got[second] == nil {
		t.Fatalf("clashes: %v", got)
	}
	if want := `web.rules:2:2: chain a of 4/filter is declared by web.more.rules:2 too, and both are of owner "web"`; !strings.HasPrefix(got[first].Error(), want) {
		t.Errorf("got %q, want %q", got[first], want)
	}
}
