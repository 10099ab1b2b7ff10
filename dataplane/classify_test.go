// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// testdata/errors.json holds what the tools printed, and what it means. Where source begins
// with "captured" the row is what that release printed for that input.
type errorFixture struct {
	Name    string
	Backend Backend
	IP      int
	Source  string
	Input   string
	Exit    int
	Stderr  string
	Want    struct {
		Class string
		Line  int
	}
}

func errorFixtures(t *testing.T) []errorFixture {
	t.Helper()
	b, err := os.ReadFile("testdata/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []errorFixture
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestClassify(t *testing.T) {
	for _, f := range errorFixtures(t) {
		t.Run(fmt.Sprintf("%s/%s%d", f.Name, f.Backend, f.IP), func(t *testing.T) {
			e := Classify(f.Exit, f.Stderr, []byte(f.Input))
			if f.Want.Class == "" {
				if e != nil {
					t.Fatalf("got %+v, want success", e)
				}
				return
			}
			if e == nil {
				t.Fatal("got success")
			}
			if e.Class.String() != f.Want.Class || e.Line != f.Want.Line {
				t.Fatalf("got %s at line %d, want %s at line %d\n%s", e.Class, e.Line, f.Want.Class, f.Want.Line, f.Stderr)
			}
			if e.ExitCode != f.Exit || e.Stderr != f.Stderr {
				t.Errorf("exit %d, stderr %q", e.ExitCode, e.Stderr)
			}
			if want := lineOf(f.Input, f.Want.Line); e.Text != want {
				t.Errorf("text %q, want %q", e.Text, want)
			}
			for _, never := range []string{"tables-", "v1.8.9", "Error occurred", "Try `", "\n"} {
				if strings.Contains(e.Reason, never) && !strings.Contains(e.Reason, "option cannot be used in") {
					t.Errorf("reason %q has %q in it", e.Reason, never)
				}
			}
			if e.Reason == "" {
				t.Error("no reason")
			}
		})
	}
}

func lineOf(input string, line int) string {
	if line == 0 {
		return ""
	}
	return strings.TrimRight(strings.Split(input, "\n")[line-1], "\r")
}

// The same exit, the same words: the simulator is held to what the tools printed.
func TestSimSpeaksAsTheTools(t *testing.T) {
	for _, f := range errorFixtures(t) {
		if !strings.HasPrefix(f.Source, "captured") || strings.Contains(f.Name, "lock") || strings.Contains(f.Name, "root") ||
			f.Name == "unknown reject type" || f.Name == "match without a kernel module" || f.Input == "" || f.Name == "quoted words in the text" {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s%d", f.Name, f.Backend, f.IP), func(t *testing.T) {
			s := NewSim(f.Backend)
			run := simRun{sim: s, v: 4}
			if f.IP == 6 {
				run.v = 6
			}
			seed := "*filter\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\n-A INPUT -j A\nCOMMIT\n"
			if err := s.Load(run.v, []byte(seed)); err != nil {
				t.Fatal(err)
			}
			got := toolError{}
			if te := run.run([]byte(f.Input)); te != nil {
				got = *te
			}
			if got.exit != f.Exit || got.stderr != f.Stderr {
				t.Errorf("exit %d, want %d\n%s\nwant\n%s", got.exit, f.Exit, got.stderr, f.Stderr)
			}
		})
	}
}

func TestRestoreErrorText(t *testing.T) {
	e := Classify(2, "iptables-restore v1.8.9 (legacy): unknown option \"--bogus\"\nError occurred at line: 2\n", []byte("*filter\n-A x --bogus\nCOMMIT\n"))
	if got, want := e.Error(), `rejected at line 2: unknown option "--bogus" (-A x --bogus)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := Class(99).String(), "class(99)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
