// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A conformance case is what a table holds, and what is then written to it. Words beginning
// with @ are addresses: @A and @B of the IP version under test, @0 any
// address, @X one of the other version.
type conformanceCase struct {
	name  string
	table string // filter if empty
	seed  string // lines of a block, joined by "; "
	input string // the same; or, after a "!", a whole input as it is
}

func (c conformanceCase) tableName() string {
	if c.table == "" {
		return "filter"
	}
	return c.table
}

func block(table, lines string) string {
	if strings.HasPrefix(lines, "!") {
		return lines[1:]
	}
	var b strings.Builder
	b.WriteString("*" + table + "\n")
	if lines != "" {
		for _, l := range strings.Split(lines, "; ") {
			b.WriteString(l + "\n")
		}
	}
	return b.String() + "COMMIT\n"
}

func forFamily(v rules.IPVersion, s string) string {
	r := strings.NewReplacer("@A", "10.1.0.1/32", "@B", "10.2.0.0/16", "@X", "2001:db8::7", "@0", "0.0.0.0/0")
	if v == rules.IPv6 {
		r = strings.NewReplacer("@A", "2001:db8::1/128", "@B", "2001:db8:2::/48", "@X", "10.0.0.7", "@0", "::/0")
	}
	return r.Replace(s)
}

// answer is what a conforming dataplane must agree on.
type answer struct {
	Class  string `json:",omitempty"`
	Line   int    `json:",omitempty"`
	Reason string `json:",omitempty"`
	Exit   int    `json:",omitempty"`
	Table  []string
}

func ask(t *testing.T, d restorer, id rules.TableID, input string) answer {
	t.Helper()
	var a answer
	if err := d.Restore(context.Background(), id, []byte(input)); err != nil {
		var re *dataplane.RestoreError
		if !errors.As(err, &re) {
			t.Fatalf("not a RestoreError: %v", err)
		}
		a = answer{Class: re.Class.String(), Line: re.Line, Reason: re.Reason, Exit: re.ExitCode}
		if re.Class == dataplane.Unknown {
			a.Reason, a.Exit = "", 0
		}
	}
	a.Table = render(t, d, id)
	return a
}

type restorer interface {
	Restore(context.Context, rules.TableID, []byte) error
	Read(context.Context, rules.TableID, ...string) (rules.Snapshot, error)
}

// render gives a snapshot as text.
func render(t *testing.T, d restorer, id rules.TableID) []string {
	t.Helper()
	snap, err := d.Read(context.Background(), id)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	var out []string
	for name, c := range snap.Chains {
		if c.Policy == "ACCEPT" && len(c.Rules) == 0 {
			continue
		}
		s := fmt.Sprintf(":%s %s jumps %v", name, c.Policy, c.Jumps)
		for _, r := range c.Rules {
			s += "; " + r.Text
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// answerOf seeds a table and returns the answer to the case.
func (c conformanceCase) answerOf(t *testing.T, d restorer, v rules.IPVersion) answer {
	t.Helper()
	id := rules.TableID{IPVersion: v, Name: c.tableName()}
	if c.seed != "" {
		if err := d.Restore(context.Background(), id, []byte(forFamily(v, block(id.Name, c.seed)))); err != nil {
			t.Fatalf("%s: seed: %v", c.name, err)
		}
	}
	return ask(t, d, id, forFamily(v, block(id.Name, c.input)))
}

// clearTable empties a table: chains are flushed, then deleted, policies go back.
func clearTable(t *testing.T, k *dataplane.Kernel, id rules.TableID) {
	t.Helper()
	var b strings.Builder
	b.WriteString("*" + id.Name + "\n")
	for _, name := range rules.BuiltinChains(id.Name) {
		b.WriteString(":" + name + " ACCEPT [0:0]\n")
	}
	b.WriteString("-F\n-X\nCOMMIT\n")
	if err := k.Restore(context.Background(), id, []byte(b.String())); err != nil {
		t.Fatalf("clear: %v", err)
	}
}

// shards is how many namespaces work on one combination at a time: an nft commit that
// deletes waits for a grace period of its namespace, so they wait together.
const shards = 8

// sharded runs f for shards 0 to shards-1, each with a kernel of its own.
func sharded(t *testing.T, f func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, ns string, shard int)) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for i := range shards {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				ns := testns.New(t)
				k, err := dataplane.NewKernel(context.Background(), testns.Options(t, ns, b))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { k.Close() })
				f(t, b, v, k, ns, i)
			})
		}
	})
}

var update = flag.Bool("update", false, "write testdata/answers.json and testdata/vocabulary.json, from what the tools say")

const answersFile = "testdata/answers.json"

func TestSimConforms(t *testing.T) {
	recorded := make(map[string]answer)
	var mu sync.Mutex // guards recorded
	sharded(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel, _ string, shard int) {
		for i, c := range conformanceCases() {
			if i%shards != shard {
				continue
			}
			clearTable(t, k, rules.TableID{IPVersion: v, Name: c.tableName()})
			want := c.answerOf(t, k, v)
			if diff := cmp.Diff(want, c.answerOf(t, dataplane.NewSim(b), v)); diff != "" {
				t.Errorf("%s: the simulator differs from the kernel (-kernel +sim):\n%s\nseed:  %s\ninput: %s", c.name, diff, c.seed, c.input)
			}
			mu.Lock()
			recorded[c.key(b, v)] = want
			mu.Unlock()
		}
	})
	if !*update {
		return
	}
	text, err := json.MarshalIndent(recorded, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(answersFile, append(text, '\n'), 0o666); err != nil {
		t.Fatal(err)
	}
}

func (c conformanceCase) key(b dataplane.Backend, v rules.IPVersion) string {
	return fmt.Sprintf("%s%d %s", b, v, c.name)
}

// TestSimAnswers holds the simulator to what a kernel answered once: where there is no
// kernel to ask, it must not drift either.
func TestSimAnswers(t *testing.T) {
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	recorded := make(map[string]answer)
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			for _, c := range conformanceCases() {
				want, ok := recorded[c.key(b, v)]
				delete(recorded, c.key(b, v))
				if !ok {
					t.Errorf("%s: no answer is recorded", c.key(b, v))
				} else if diff := cmp.Diff(want, c.answerOf(t, dataplane.NewSim(b), v)); diff != "" {
					t.Errorf("%s (-recorded +sim):\n%s", c.key(b, v), diff)
				}
			}
		}
	}
	for name := range recorded {
		t.Errorf("%s: an answer to no case", name)
	}
}
