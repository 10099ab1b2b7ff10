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
	Setup   string // what else it took, "" for a run by root on a table that holds fixtureSeed
	Input   string
	Exit    int
	Stderr  string
	Want    struct {
		Class string
		Line  int
	}
}

// fixtureSeed is what the table held when the rows were captured.
const fixtureSeed = "*filter\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -j RETURN\n-A INPUT -j A\nCOMMIT\n"

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

// Every row says where its words come from: a tool printed them, or they are quoted.
func TestFixtureSources(t *testing.T) {
	for _, f := range errorFixtures(t) {
		if !strings.HasPrefix(f.Source, "captured 1.8.9") && !strings.HasPrefix(f.Source, "quoted ") {
			t.Errorf("%s: source %q", f.Name, f.Source)
		}
	}
}

// Words that no tool is known to print are never taken to name a line, nor to be passing.
func TestClassifyUnknownWords(t *testing.T) {
	input := []byte("*filter\n:x - [0:0]\n-A x -j ACCEPT\nCOMMIT\n")
	for _, stderr := range []string{
		"what is this\n",
		"iptables-restore: line 99 failed\n",
		"iptables-restore: line 0 failed\n",
		"iptables-restore: error in line 3\n",
		"iptables-restore v9.9 (ebpf): verifier refused program of line 3\n",
		"line 3: failed\n",
		"line 3: RULE_APPEND failed (Invalid argument): rule in chain x\n", // of exit code 4 alone
		"Error at line: 3\n",
		"iptables-nft-restore v1.8.9 (nf_tables): the lock is busy, try later\n",
		"  Error occurred at line: 3\n",
		"netlink: line 3 failed\n",
		"",
	} {
		for _, exit := range []int{1, 3, 111} {
			e := Classify(exit, stderr, input)
			if e == nil || e.Class != RejectedSomewhere || e.Line != 0 || e.Text != "" {
				t.Errorf("exit %d, %q: %+v", exit, stderr, e)
			}
		}
	}
	for exit, stderr := range map[int]string{-1: "", 137: "Killed\n", 139: "Segmentation fault\n"} {
		if e := Classify(exit, stderr, input); e.Class != Unknown || e.Line != 0 {
			t.Errorf("exit %d: %+v", exit, e)
		}
	}
	if e := Classify(0, "Warning: using chain LOG, not extension\n", input); e != nil {
		t.Errorf("exit 0: %+v", e)
	}
}

func lineOf(input string, line int) string {
	if line == 0 {
		return ""
	}
	return strings.TrimRight(strings.Split(input, "\n")[line-1], "\r")
}

// opaque are rows about what a rule says, which the simulator knows of its vocabulary alone.
var opaque = map[string]bool{
	"unknown reject type": true, "match without a kernel module": true, "quoted words in the text": true,
	"a line that lists": true, "policy in at OUTPUT": true, "policy out at INPUT": true,
	"clamped segment size at INPUT": true, "source group at OUTPUT": true,
	"physical output device at OUTPUT": true, "incoming interface of an address at OUTPUT": true,
}

// The same exit, the same words: the simulator is held to what the tools printed.
func TestSimSpeaksAsTheTools(t *testing.T) {
	for _, f := range errorFixtures(t) {
		if f.Setup != "" || opaque[f.Name] {
			continue
		}
		t.Run(fmt.Sprintf("%s/%s%d", f.Name, f.Backend, f.IP), func(t *testing.T) {
			s := NewSim(f.Backend)
			run := simRun{sim: s, v: 4}
			if f.IP == 6 {
				run.v = 6
			}
			if err := s.Load(run.v, []byte(fixtureSeed)); err != nil {
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

// A block that cannot be sent now may be later; one of which the kernel has more to say than
// the tool's socket holds never will.
func TestClassifyNoBufferSpace(t *testing.T) {
	for stderr, want := range map[string]Class{
		"iptables-nft-restore: sendmsg() failed: No buffer space available\niptables-nft-restore: line 3 failed: No buffer space available.\n": Busy,
		"iptables-nft-restore: line 217 failed: No buffer space available.\n":                                                                  TooLarge,
	} {
		if e := Classify(1, stderr, []byte("*filter\n:x - [0:0]\n-A x -j ACCEPT\nCOMMIT\n")); e.Class != want {
			t.Errorf("%q: %v, want %v", stderr, e.Class, want)
		}
	}
}
