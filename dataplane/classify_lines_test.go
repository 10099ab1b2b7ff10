// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is Line comes first among Lines, and there are none where no line can be trusted.
func TestClassifyLinesOfFixtures(t *testing.T) {
	several := 0
	for _, f := range errorFixtures(t) {
		e := Classify(f.Exit, f.Stderr, []byte(f.Input))
		switch {
		case e == nil:
		case e.Class != Rejected:
			if e.Lines != nil || e.Apart() {
				t.Errorf("%s/%s%d: %s with lines %+v", f.Name, f.Backend, f.IP, e.Class, e.Lines)
			}
		default:
			if len(e.Lines) > 1 {
				several++
			}
			if len(e.Lines) == 0 || e.Lines[0].Line != e.Line || e.Lines[0].Text != e.Text || e.Lines[0].Reason != e.Reason {
				t.Errorf("%s/%s%d: line %d %q: %q, lines %+v", f.Name, f.Backend, f.IP, e.Line, e.Text, e.Reason, e.Lines)
			}
			for i, l := range e.Lines {
				if l.Text != lineOf(f.Input, l.Line) || i > 0 && l.Line <= e.Lines[i-1].Line {
					t.Errorf("%s/%s%d: lines %+v", f.Name, f.Backend, f.IP, e.Lines)
				}
			}
		}
	}
	if several == 0 {
		t.Error("no fixture names several lines")
	}
}

// said is what nft says of lines of a block.
func said(lines ...int) string {
	out := "iptables-nft-restore v1.8.9 (nf_tables): \n"
	for _, n := range lines {
		out += fmt.Sprintf("line %d: RULE_APPEND failed (Invalid argument): rule in chain a\n", n)
	}
	return out
}

func TestClassifyLines(t *testing.T) {
	input := "*filter\n:a - [0:0]\n-A a -j A\n-A a -j B\n:b - [0:0]\n-I b -j C\n-A a -j D\n-X old\n-R a 1 -j E\n[3:4] -A a -j F\n-A a -j G\nCOMMIT\n"
	for name, c := range map[string]struct {
		exit   int
		stderr string
		want   []int
		apart  bool
	}{
		"one":                             {4, said(4), []int{4}, true},
		"others between them":             {4, said(3, 6, 9, 11), []int{3, 6, 9, 11}, true},
		"in a row":                        {4, said(3, 4), []int{3, 4}, false},
		"a declaration between them":      {4, said(4, 6), []int{4, 6}, false},
		"a deletion between them":         {4, said(3, 7, 9), []int{3, 7, 9}, false},
		"counters between them":           {4, said(9, 11), []int{9, 11}, true},
		"in a row at the end":             {4, said(3, 6, 9, 10, 11), []int{3, 6, 9, 10, 11}, false},
		"twice":                           {4, said(4, 4, 7), []int{4, 7}, true},
		"out of order":                    {4, said(7, 3), []int{7, 3}, false},
		"a loop":                          {4, "line 4: RULE_APPEND failed (Too many links): rule in chain a\n", []int{4}, false},
		"a line that there is not":        {4, said(4, 99), []int{4}, true},
		"not even the first":              {4, said(99, 4), nil, false},
		"what kernels do not say":         {1, said(3, 6), nil, false},
		"a parser":                        {2, "iptables-restore v1.8.9 (legacy): unknown option \"--x\"\nError occurred at line: 6\nTry `iptables-restore -h'\n", []int{6}, true},
		"COMMIT":                          {1, "iptables-restore: line 12 failed\n", nil, false},
		"a chain that is not there, nft":  {1, "iptables-nft-restore: line 9 failed: No chain/target/match by that name.\n", []int{9}, true},
		"a line beside the kernel's word": {4, said(4) + "Error occurred at line: 6\n", []int{4}, true},
	} {
		e := Classify(c.exit, c.stderr, []byte(input))
		var got []int
		for _, l := range e.Lines {
			got = append(got, l.Line)
			if l.Text != lineOf(input, l.Line) || l.Reason == "" {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" || e.Apart() != c.apart {
			t.Errorf("%s: apart %v (-want +got):\n%s", name, e.Apart(), diff)
		}
	}
}

// The tool cuts what it says after 1,023 bytes, wherever that is, and ends the line.
func TestClassifyLinesCut(t *testing.T) {
	chain := strings.Repeat("c", 28)
	block, words := "*filter\n", ""
	for i := range 40 {
		block += "-A " + chain + " -j REDIRECT\n-A " + chain + " -j ACCEPT\n"
		words += fmt.Sprintf("line %d: RULE_APPEND failed (Invalid argument): rule in chain %s\n", 2*i+2, chain)
	}
	block += "COMMIT\n"
	for extra := range len(chain) + 60 {
		// So that the cut is at each place of the last line.
		cut := strings.Replace(words, "rule in", "rule "+strings.Repeat("x", extra)+" in", 1)[:1023] + "\n"
		e := Classify(4, "iptables-nft-restore v1.8.9 (nf_tables): \n"+cut, []byte(block))
		whole := strings.Count(cut[:1023], "\n")
		if len(e.Lines) != whole || !e.Apart() {
			t.Fatalf("%d lines of %d, apart %v:\n%s", len(e.Lines), whole, e.Apart(), cut)
		}
		for i, l := range e.Lines {
			if l.Line != 2*i+2 || i > 0 && !strings.HasSuffix(l.Reason, " "+chain) {
				t.Fatalf("%+v", l)
			}
		}
	}
}

// Of a tool that is kept open the lines count on.
func TestClassifyBefore(t *testing.T) {
	e := classify(4, said(1003, 1005), []byte("*filter\n:a - [0:0]\n-A a -j A\n-A a -j B\n-A a -j C\nCOMMIT\n"), 1000)
	if e.Line != 3 || len(e.Lines) != 2 || e.Lines[1].Text != "-A a -j C" || !e.Apart() {
		t.Errorf("%+v", e)
	}
	if e := classify(4, said(3), []byte("*filter\n:a - [0:0]\n-A a -j A\nCOMMIT\n"), 1000); e.Class != RejectedSomewhere {
		t.Errorf("%+v", e)
	}
}
