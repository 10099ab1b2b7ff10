// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const header = `{"tableward":"log/v1"}` + "\n"

// TestParseRefuses: each slip is an Error with the place where it stands.
func TestParseRefuses(t *testing.T) {
	body := `"table":"filter","refresh":true`
	for _, c := range []struct {
		name, log string
		line, col int
		reason    string
	}{
		{"nothing", "", 1, 1, `the first line must say "tableward":"log/v1"`},
		{"no header", `{"at":"0s","id":"1","table":"filter","refresh":true}`, 1, 1, `the first line must say`},
		{"another version", `{"tableward":"log/v2"}`, 1, 14, `"log/v2": one of log/v1`},
		{"header field", `{"tableward":"log/v1","prefixes":["tw-"]}`, 1, 23, `unknown field "prefixes"`},
		{"backend", `{"tableward":"log/v1","backend":"bpf"}`, 1, 33, `"bpf": one of nft, legacy`},
		{"prefix", `{"tableward":"log/v1","prefix":["tw-","tw"]}`, 1, 39, `prefix "tw" must end in`},
		{"prefix type", `{"tableward":"log/v1","prefix":"tw-"}`, 1, 32, `an array is wanted`},
		{"grace type", `{"tableward":"log/v1","grace":"yes"}`, 1, 31, `true or false is wanted`},
		{"timers", `{"tableward":"log/v1","timers":true}`, 1, 32, `timers are not supported yet`},
		{"seed field", `{"tableward":"log/v1","seed":[{"ip":4,"save":""}]}`, 1, 39, `unknown field "save"`},
		{"seed empty", `{"tableward":"log/v1","seed":[{"ip":4}]}`, 1, 31, `a seed needs its restore input`},
		{"seed ip", `{"tableward":"log/v1","seed":[{"ip":5,"restore":"x"}]}`, 1, 37, `IP version 4 or 6`},
		{"set without name", `{"tableward":"log/v1","sets":[{"ip":4}]}`, 1, 31, `a set needs its name`},
		{"not JSON", header + "\n" + `{"at":"0s",}`, 3, 12, `invalid character '}'`},
		{"cut off", header + `{"at":"0s"`, 2, 10, `unexpected end of JSON input`},
		{"two values", header + `{} {}`, 2, 4, `invalid character '{' after`},
		{"not UTF-8", header + "{\"at\":\"\xff\"}", 2, 8, `not UTF-8`},
		{"no object", header + `[]`, 2, 1, `an object is wanted`},
		{"unknown field", header + `{"at":"0s","id":"1",` + body + `,"prio":1}`, 2, 53, `unknown field "prio"`},
		{"field twice", header + `{"at":"0s","id":"1","id":"2",` + body + `}`, 2, 21, `"id" is given twice`},
		{"no at", header + `{"id":"1",` + body + `}`, 2, 1, `the line has no "at"`},
		{"at type", header + `{"at":0,"id":"1",` + body + `}`, 2, 7, `a string is wanted`},
		{"at is no time", header + `{"at":"soon","id":"1",` + body + `}`, 2, 7, `"soon" is no time`},
		{"at negative", header + `{"at":"-1s","id":"1",` + body + `}`, 2, 7, `"-1s" is no time`},
		{"at backwards", header + `{"at":"1s","id":"1",` + body + "}\n" + `{"at":"10ms","id":"2",` + body + `}`, 3, 7, `10ms is before 1s`},
		{"no id", header + `{"at":"0s",` + body + `}`, 2, 1, `a message needs an id`},
		{"id twice", header + `{"at":"0s","id":"1",` + body + "}\n" + `{"at":"0s","id":"1",` + body + `}`, 3, 17, `id "1" is given twice`},
		{"unknown table", header + `{"at":"0s","id":"1","table":"broute","refresh":true}`, 2, 29, `unknown table "broute"`},
		{"no table", header + `{"at":"0s","id":"1","refresh":true}`, 2, 1, `the table is not named`},
		{"ip", header + `{"at":"0s","id":"1","ip":5,` + body + `}`, 2, 26, `IP version 4 or 6`},
		{"ip type", header + `{"at":"0s","id":"1","ip":4.5,` + body + `}`, 2, 26, `a whole number is wanted`},
		{"priority type", header + `{"at":"0s","id":"1","priority":"1",` + body + `}`, 2, 32, `a whole number is wanted`},
		{"no body", header + `{"at":"0s","id":"1","table":"filter"}`, 2, 1, `this one is 0 of them`},
		{"two bodies", header + `{"at":"0s","id":"1",` + body + `,"endgrace":true}`, 2, 1, `this one is 2 of them`},
		{"refresh false", header + `{"at":"0s","id":"1","table":"filter","refresh":false}`, 2, 48, `true is wanted`},
		{"insync with table", header + `{"at":"0s","id":"1","table":"filter","insync":true}`, 2, 29, `insync is said to all tables`},
		{"rewrite type", header + `{"at":"0s","id":"1","table":"filter","rewrite":["a"]}`, 2, 48, `an object is wanted`},
		{"rewrite of nothing", header + `{"at":"0s","id":"1","table":"filter","rewrite":{}}`, 2, 48, `no chain is named`},
		{"rewrite chain twice", header + `{"at":"0s","id":"1","table":"filter","rewrite":{"a":[],"a":[]}}`, 2, 56, `"a" is given twice`},
		{"rule type", header + `{"at":"0s","id":"1","table":"filter","rewrite":{"a":[1]}}`, 2, 54, `a string is wanted`},
		{"delete type", header + `{"at":"0s","id":"1","table":"filter","delete":"a"}`, 2, 47, `an array is wanted`},
		{"insert field", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","pos":1}}`, 2, 78, `unknown field "pos"`},
		{"insert at", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","at":"end"}}`, 2, 83, `"end": one of top, near, bottom`},
		{"insert at two places", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","at":"top","after":{"chain":"B"}}}`, 2, 47, `a rule has one place`},
		{"anchor of no kind", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","after":{}}}`, 2, 86, `an anchor is the chain`},
		{"anchor of two kinds", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","before":{"chain":"B","comment":"C"}}}`, 2, 87, `an anchor is the chain`},
		{"anchor field", header + `{"at":"0s","id":"1","table":"filter","insert":{"chain":"INPUT","rule":"-j A","before":{"rule":"-j B"}}}`, 2, 88, `unknown field "rule"`},
		{"insert chain", header + `{"at":"0s","id":"1","table":"filter","insert":{"rule":"-j A"}}`, 2, 47, `the chain is not named`},
		{"remove keep", header + `{"at":"0s","id":"1","table":"filter","remove":{"chain":"INPUT","rule":"-j A","keep":1}}`, 2, 85, `true or false is wanted`},
		{"policy field", header + `{"at":"0s","id":"1","table":"filter","policy":{"chain":"INPUT","policy":"DROP"}}`, 2, 64, `unknown field "policy"`},
		{"stub of two", header + `{"at":"0s","id":"1","table":"filter","stub":{"a":null,"b":null}}`, 2, 45, `one chain is wanted`},
		{"kernel with id", header + `{"at":"0s","id":"1","kernel":{"restore":"x"}}`, 2, 12, `unknown field "id"`},
		{"kernel without at", header + `{"kernel":{"restore":"x"}}`, 2, 1, `the line has no "at"`},
		{"kernel does nothing", header + `{"at":"0s","kernel":{}}`, 2, 21, `one of restore, holds, fail, sets, nosets`},
		{"kernel does two things", header + `{"at":"0s","kernel":{"restore":"x","sets":[]}}`, 2, 21, `one of restore, holds, fail, sets, nosets`},
		{"holds no table", header + `{"at":"0s","kernel":{"holds":"x"}}`, 2, 21, `the table is not named`},
		{"fail without table", header + `{"at":"0s","kernel":{"fail":{"on":"any","exit":1}}}`, 2, 21, `the table is not named`},
		{"fail on what", header + `{"at":"0s","kernel":{"table":"nat","fail":{"exit":1}}}`, 2, 43, `does not say "on" what`},
		{"fail on nonsense", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"write","exit":1}}}`, 2, 49, `"write": one of modify, delete, read, any`},
		{"fail in no way", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"any"}}}`, 2, 43, `one of exit, hang, killed, spawn`},
		{"fail in two ways", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"any","exit":1,"hang":true}}}`, 2, 43, `one of exit, hang, killed, spawn`},
		{"fail with success", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"any","exit":0}}}`, 2, 43, `exit status 0 is no fault`},
		{"fail never", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"any","exit":1,"times":0}}}`, 2, 43, `times is at least 1`},
		{"spawn", header + `{"at":"0s","kernel":{"table":"nat","fail":{"on":"any","spawn":"EIO"}}}`, 2, 63, `"EIO": one of ENOMEM`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(c.log))
			var bad *Error
			if !errors.As(err, &bad) {
				t.Fatalf("error %v, want an *Error", err)
			}
			if bad.Line != c.line || bad.Column != c.col || !strings.Contains(bad.Reason, c.reason) {
				t.Errorf("got line %d, column %d: %s\nwant line %d, column %d: %s", bad.Line, bad.Column, bad.Reason, c.line, c.col, c.reason)
			}
		})
	}
}

func TestParse(t *testing.T) {
	l, err := Parse(strings.NewReader(`{"tableward":"log/v1","backend":"legacy","prefix":["tw-"],"owners":["a","b"],"grace":true,"timers":false,"sets":[{"name":"s"}]}

{"at":"1m","id":"1","owner":"a","priority":-3,"ip":6,"table":"nat","insert":{"chain":"OUTPUT","rule":"-j  tw-x","at":"bottom"}}
{"at":"1m","kernel":{"table":"nat","fail":{"on":"modify","exit":1}}}
{"at":"90s","id":"2","table":"nat","stub":{"tw-x":null}}
{"at":"90s","id":"3","insync":true}` + "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	h := l.Header
	if h.Backend != dataplane.Legacy || !h.Grace || len(h.Owners) != 2 || h.Sets[0] != (Set{rules.IPv4, "s"}) {
		t.Errorf("header %+v", h)
	}
	first := l.Entries[0]
	edit := first.Message.Body.(transaction.EditRules).Edits[0]
	if first.At != time.Minute || first.Message.Priority != -3 || first.Message.Table.String() != "6/nat" ||
		edit.Op != transaction.InsertBottom || edit.Rule.String() != "-j tw-x" {
		t.Errorf("first message %+v", first.Message)
	}
	if f := l.Entries[1].Kernel.Fail; f.Times != 1 || f.Exit != 1 {
		t.Errorf("fault %+v", f)
	}
	if b := l.Entries[2].Message.Body.(transaction.OverrideStub); !b.Remove || b.Chain != "tw-x" {
		t.Errorf("override %+v", b)
	}
	if _, ok := l.Entries[3].Message.Body.(transaction.InSync); !ok {
		t.Errorf("last message %+v", l.Entries[3].Message)
	}
}

// TestParseKeepsRefused: text that is no rule is the message's fault, not the log's.
func TestParseKeepsRefused(t *testing.T) {
	l, err := Parse(strings.NewReader(header +
		`{"at":"0s","id":"1","owner":"a","table":"filter","rewrite":{"a":["-j ACCEPT"],"b":["-s \u0000","-j \"x"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	e := l.Entries[0].Message.Refused
	if e == nil || e.ID != "1" || e.Owner != "a" || e.Table.String() != "4/filter" || e.Chain != "b" || e.Rule != "-s \x00" || e.Column != 4 {
		t.Errorf("refused %+v", e)
	}
}

// TestReplayRefuses: what the kernel does not take from a stranger is a bad log.
func TestReplayRefuses(t *testing.T) {
	for _, c := range []struct{ name, log, want string }{
		{"seed", `{"tableward":"log/v1","seed":[{"restore":"*filter\n-A nope -j ACCEPT\nCOMMIT\n"}]}`, "line 1, column 31: the kernel refuses the seed: rejected at line 2"},
		{"restore", header + `{"at":"0s","kernel":{"restore":"*filter\n:a - [0:0]\n-A a -j b\nCOMMIT\n"}}`, "line 2, column 21: the kernel refuses this: "},
		{"delete of a referenced chain", header + `{"at":"0s","kernel":{"restore":"*filter\n:a - [0:0]\n-A INPUT -j a\n-X a\nCOMMIT\n"}}`, "line 2, column 21: the kernel refuses this: "},
		{"holds", header + `{"at":"0s","kernel":{"holds":"*filter\n-A nope -j ACCEPT\nCOMMIT\n"}}`, "line 2, column 21: the kernel refuses this: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Parse(strings.NewReader(c.log))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Replay(l); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %s...", err, c.want)
			}
		})
	}
}

// TestBackoffIsBounded: rests double from 100 ms and never exceed 5 s.
func TestBackoffIsBounded(t *testing.T) {
	out, err := Replay(parseFile(t, replayDir+"/never-lands.log"))
	if err != nil {
		t.Fatal(err)
	}
	var rest time.Duration
	var before time.Duration
	for _, r := range out.Records {
		if r.Kind != actors.EventWait {
			continue
		}
		if r.At > 0 {
			want := min(max(2*rest, 100*time.Millisecond), 5*time.Second)
			if rest = r.At - before; rest != want {
				t.Fatalf("rest of %v before %v, want %v", rest, r.At, want)
			}
		}
		before = r.At
	}
	if rest != 5*time.Second {
		t.Errorf("the last rest is %v, want 5s", rest)
	}
}
