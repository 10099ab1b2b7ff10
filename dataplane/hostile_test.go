// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

const (
	hostileSeed   = 1
	hostileGroup  = 60  // texts in one block, each in a chain of its own
	hostileWindow = 240 // texts that are loaded between two looks at all tables
)

// hostileTexts is how many texts each combination gets, in the long form and else.
func hostileTexts() (n int, long bool) {
	if os.Getenv("TABLEWARD_SOAK") == "1" {
		return 50_000, true
	}
	return 3000, false
}

// TestHostileText holds that a rule text that is accepted never changes a chain that it is not
// written to, whatever it holds: no other chain, table, policy or counter, nor what the tool
// does with the lines behind it; and that it becomes the rule that we think it is. A quarter of the
// texts are good rules, the others are good ones spoiled.
func TestHostileText(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		t.Parallel()
		h := newHostileRun(t, b, v)
		g := newHostileGrammar(t, hostileSeed, b, v)
		waiting := make(map[string][]acceptedText)
		n, long := hostileTexts()
		for range n {
			text := g.text()
			a, err := text.accept(v)
			if err != nil {
				h.refused[hostileReason(err)]++
				continue
			}
			h.accepted.add(text)
			if jump := a.rule.Jump(); jump != "" && !slices.Contains(hostileChains, jump) {
				h.load([]acceptedText{a}) // nft names no line for these
				continue
			}
			if waiting[a.table] = append(waiting[a.table], a); len(waiting[a.table]) == hostileGroup {
				h.load(waiting[a.table])
				waiting[a.table] = nil
			}
		}
		for _, table := range randomTables {
			h.load(waiting[table])
		}
		h.check()
		t.Logf("seed %d: %d generated, refused by us %v; accepted %v: loaded %v with %d matches and targets, refused by the tool %v; %d blocks, %d looks",
			hostileSeed, n, h.refused, h.accepted, h.loaded, len(h.used), h.toolRefused, h.blocks, h.looks)
		if h.accepted.all*10 < n*4 || h.loaded.all*10 < n*2 {
			t.Errorf("of %d texts %v were accepted and %v loaded: with less than 40 %% and 20 %% the test says nothing", n, h.accepted, h.loaded)
		}
		for use := range g.uses {
			if long && !h.used[use] {
				t.Errorf("no rule with %s was loaded", use)
			}
		}
	})
}

// accept is what the runtime holds against a text before anybody sees it.
func (t hostileText) accept(v rules.IPVersion) (acceptedText, error) {
	r, err := rules.ParseRule(t.text)
	if err == nil {
		err = rules.CheckRule(rules.TableID{IPVersion: v, Name: t.table}, r)
	}
	return acceptedText{t, r}, err
}

type acceptedText struct {
	hostileText
	rule rules.Rule
}

// textCount counts texts, and those of them that are spoiled.
type textCount struct{ all, spoiled int }

func (c *textCount) add(t hostileText) {
	c.all++
	if t.spoiled {
		c.spoiled++
	}
}

func (c textCount) String() string { return fmt.Sprintf("%d (%d spoiled)", c.all, c.spoiled) }

// hostileRun is one combination.
type hostileRun struct {
	t      *testing.T
	b      dataplane.Backend
	v      rules.IPVersion
	k      *dataplane.Kernel
	ns     string
	before savedTables  // at the last look
	placed []placedText // since then

	refused                       map[string]int // by us, by what the reason is about
	accepted, loaded, toolRefused textCount
	used                          map[string]bool // "-m tcp", "-j LOG": in rules that were loaded
	blocks, looks                 int
}

// placedText is a text that the tool has taken, and where it stands.
type placedText struct {
	acceptedText
	chain string
}

func newHostileRun(t *testing.T, b dataplane.Backend, v rules.IPVersion) *hostileRun {
	t.Helper()
	ns := testns.New(t)
	k, err := dataplane.NewKernel(background, testns.Options(t, ns, b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	h := &hostileRun{t: t, b: b, v: v, k: k, ns: ns, refused: make(map[string]int), used: make(map[string]bool)}
	h.fill()
	h.before = h.save()
	return h
}

// place gives texts of one table their chains, and one more to a rule that stands behind them.
func (h *hostileRun) place(texts []acceptedText) []placedText {
	out := make([]placedText, 0, len(texts)+1)
	for _, a := range append(slices.Clip(texts), acceptedText{
		hostileText{table: texts[0].table}, rules.MustParseRule(fmt.Sprintf("-m comment --comment %d -j RETURN", h.blocks)),
	}) {
		out = append(out, placedText{a, fmt.Sprintf("tw-x%d", len(h.placed)+len(out))})
	}
	return out
}

// restore sends texts of one table in one block, as the runtime would.
func (h *hostileRun) restore(texts []placedText) *dataplane.RestoreError {
	h.t.Helper()
	h.blocks++
	block := rules.Block{Table: texts[0].table}
	for _, p := range texts {
		block.Lines = append(block.Lines, rules.Line{Command: rules.Declare, Chain: p.chain})
	}
	for i, p := range texts {
		c := rules.Append
		if i%3 == 2 {
			c = rules.Insert // as into a chain of others
		}
		block.Lines = append(block.Lines, rules.Line{Command: c, Chain: p.chain, Rule: p.rule})
	}
	err := h.k.Restore(background, rules.TableID{IPVersion: h.v, Name: block.Table}, rules.AppendRestore(nil, block))
	if err == nil {
		return nil
	}
	return restoreError(h.t, err)
}

// load sends texts of one table, without those that the tool refuses.
func (h *hostileRun) load(texts []acceptedText) {
	h.t.Helper()
	var read []acceptedText // by a tool that has then refused a later one
	for len(texts) > 0 {
		placed := h.place(texts)
		re := h.restore(placed)
		if re == nil {
			h.take(placed)
			break
		}
		switch i := re.Line - 2 - len(placed); {
		case re.Class == dataplane.Rejected && i >= 0 && i < len(texts):
			h.refuse(texts[i], len(texts) > 1)
			read = append(read, texts[:i]...)
			texts = texts[i+1:]
		case len(texts) > 1:
			h.load(texts[:len(texts)/2])
			texts = texts[len(texts)/2:]
		case re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere:
			h.refuse(texts[0], false)
			texts = nil
		default:
			h.t.Errorf("%s: %q is not refused as a rule is: %v\n%s", texts[0].table, texts[0].rule, re, re.Stderr)
			texts = nil
		}
	}
	if len(read) > 0 {
		h.load(read)
	}
}

// take notes what was loaded, and looks at it when there is enough.
func (h *hostileRun) take(placed []placedText) {
	h.t.Helper()
	for _, p := range placed[:len(placed)-1] {
		h.loaded.add(p.hostileText)
		note(h.used, p.rule)
	}
	if h.placed = append(h.placed, placed...); len(h.placed) >= hostileWindow {
		h.check()
	}
}

// refuse counts a text that the tool refuses. One of ten, in the long form each, is tried by
// itself: the fault must be its own, and not that of one before it.
func (h *hostileRun) refuse(a acceptedText, amongOthers bool) {
	h.t.Helper()
	h.toolRefused.add(a.hostileText)
	if _, long := hostileTexts(); !amongOthers || !long && h.toolRefused.all%10 > 0 {
		return
	}
	if placed := h.place([]acceptedText{a}); h.restore(placed) == nil {
		h.t.Errorf("%s: %q is refused behind others and taken alone", a.table, a.rule)
		h.placed = append(h.placed, placed...)
	}
}

// hostileReason returns what a refusal of ours is about.
func hostileReason(err error) string {
	var se *rules.SyntaxError
	if !errors.As(err, &se) {
		return "value"
	}
	for _, c := range hostileReasons {
		if strings.Contains(se.Reason, c.words) {
			return c.about
		}
	}
	return se.Reason
}

var hostileReasons = []struct{ words, about string }{
	{"newline", "control"}, {"NUL byte", "control"}, {"carriage return", "control"}, {"control character 0x", "control"},
	{"is not UTF-8", "UTF-8"}, {"quote does not close", "quote"}, {"single quotes", "quote"}, {"a backslash before", "quote"},
	{"hidden command", "command"}, {"written without its chain", "command"}, {"take it for an index", "index"},
	{`"--" ends`, "option"}, {"unknown option", "option"}, {"is an option of the tool", "option"}, {"exit with 0", "option"},
	{"other IP version", "option"}, {"names a table", "option"}, {"run a program", "option"},
	{"target", "target"}, {"name", "name"}, {"words", "size"}, {"bytes", "size"}, {"an empty rule", "empty"},
}
