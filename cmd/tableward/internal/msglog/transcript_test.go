// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

const sample = `{"tableward":"log/v1","prefix":["tw-"]}
{"at":"0s","kernel":{"table":"filter","fail":{"on":"modify","exit":4,"stderr":"Another app is currently holding the xtables lock.\n"}}}
{"at":"0s","id":"good","table":"filter","rewrite":{"tw-a":["-j tw-b"]}}
{"at":"0s","id":"two words","table":"filter","rewrite":{"tw-c":["-m comment --comment \"<&>\n\" -j ACCEPT"]}}
{"at":"1s","id":"x","owner":"x","table":"filter","rewrite":{"tw-x":["-j tw-y"]}}
{"at":"1s","id":"y","owner":"y","table":"filter","rewrite":{"tw-y":["-j tw-x"]}}
{"at":"2m","id":"bad","table":"nat","ip":6,"rewrite":{"tw-d":["-p tcp --bogus"]}}
`

const sampleText = `0s message "two words" rejected chain tw-c rule "-m comment --comment \"<&>\n\" -j ACCEPT" column 26: newline: a rule is one line
0s 4/filter read
0s 4/filter restore busy exit 4: the xtables lock is held by another program
    *filter
    :tw-a - [0:0]
    :tw-b - [0:0]
    -A tw-b -m comment --comment "tableward: missing chain" -j DROP
    -A tw-a -j tw-b
    COMMIT
0s 4/filter rest
100ms 4/filter restore ok
    *filter
    :tw-a - [0:0]
    :tw-b - [0:0]
    -A tw-b -m comment --comment "tableward: missing chain" -j DROP
    -A tw-a -j tw-b
    COMMIT
100ms message good applied
1s message x conflict chain tw-x rule "-j tw-y" column 4 with y: the chains jump in a circle: tw-x -> tw-y -> tw-x
1s message y conflict chain tw-y rule "-j tw-x" column 4 with x: the chains jump in a circle: tw-x -> tw-y -> tw-x
2m0s 6/nat read
2m0s 6/nat restore rejected line 3 exit 2: unknown option "--bogus"
    *nat
    :tw-d - [0:0]
    -A tw-d -p tcp --bogus
    COMMIT
2m0s message bad rejected chain tw-d rule "-p tcp --bogus" column 8: unknown option "--bogus"
final 4/filter
    *filter
    :INPUT ACCEPT [0:0]
    :FORWARD ACCEPT [0:0]
    :OUTPUT ACCEPT [0:0]
    :tw-a - [0:0]
    :tw-b - [0:0]
    -A tw-a -j tw-b
    -A tw-b -m comment --comment "tableward: missing chain" -j DROP
    COMMIT
final 6/nat
    *nat
    :PREROUTING ACCEPT [0:0]
    :INPUT ACCEPT [0:0]
    :OUTPUT ACCEPT [0:0]
    :POSTROUTING ACCEPT [0:0]
    COMMIT
`

const sampleJSON = `{"at":"0s","id":"two words","answer":"rejected","error":{"class":"rejected","chain":"tw-c","rule":"-m comment --comment \"<&>\n\" -j ACCEPT","column":26,"reason":"newline: a rule is one line"}}
{"at":"0s","ip":4,"table":"filter","read":true}
{"at":"0s","ip":4,"table":"filter","restore":"*filter\n:tw-a - [0:0]\n:tw-b - [0:0]\n-A tw-b -m comment --comment \"tableward: missing chain\" -j DROP\n-A tw-a -j tw-b\nCOMMIT\n","error":{"class":"busy","exit":4,"reason":"the xtables lock is held by another program"}}
{"at":"0s","ip":4,"table":"filter","rest":true}
`

func replaySample(t *testing.T) *Transcript {
	t.Helper()
	l, err := Parse(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	out, err := Replay(l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestText(t *testing.T) {
	if d := Diff("want", "got", sampleText, string(replaySample(t).AppendText(nil))); d != "" {
		t.Error(d)
	}
}

func TestJSON(t *testing.T) {
	got := string(replaySample(t).AppendJSON([]byte("kept\n")))
	if want := "kept\n" + sampleJSON; !strings.HasPrefix(got, want) {
		t.Error(Diff("want", "got", want, got))
	}
}

// TestDeterminism replays every log twice and compares the bytes.
func TestDeterminism(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(replayDir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		var first []byte
		for range 3 {
			out, err := Replay(parseFile(t, path))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			got := out.AppendText(out.AppendJSON(nil))
			if first == nil {
				first = got
			}
			if !bytes.Equal(first, got) {
				t.Errorf("%s: a second replay differs:\n%s", path, Diff("first", "second", string(first), string(got)))
			}
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ name, a, b, want string }{
		{"equal", "x\n", "x\n", ""},
		{"changed", "1\n2\n3\n4\n5\n", "1\n2\nthree\n4\n5\n", "--- a\n+++ b\n@@ -1,5 +1,5 @@\n 1\n 2\n-3\n+three\n 4\n 5\n"},
		{"from nothing", "", "x\n", "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+x\n"},
		{"no last newline", "x\n", "x", "--- a\n+++ b\n@@ -1,1 +1,1 @@\n-x\n+x\n\\ No newline at end of file\n"},
		{"two hunks", "a\n1\n2\n3\n4\n5\n6\n7\n8\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\n8\nB\n",
			"--- a\n+++ b\n@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -7,4 +7,4 @@\n 6\n 7\n 8\n-b\n+B\n"},
		{"one hunk", "a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
			"--- a\n+++ b\n@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Diff("a", "b", c.a, c.b); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
