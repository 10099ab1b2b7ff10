// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// seed is what a stranger and an earlier run left behind.
const seed = `*filter
:DOCKER-USER - [0:0]
:tw-old - [0:0]
:tw-e - [0:0]
-A INPUT -s 192.0.2.1/32 -j ACCEPT
-A INPUT -i eth9 -j DOCKER-USER
-A INPUT -s 192.0.2.2/32 -m comment --comment "the gate" -j ACCEPT
-A FORWARD -j tw-old
-A DOCKER-USER -j RETURN
-A tw-old -j tw-e
-A tw-e -s 192.0.2.3/32 -j DROP
COMMIT
`

// seedTwin has a stranger's copies of rules that owners list: they are adopted where they are.
var seedTwin = strings.Replace(seed, "-i eth9 -j DOCKER", "-j DOCKER", 1)

var (
	genOwner  = rapid.SampledFrom([]string{"a", "b", ""})
	genChain  = rapid.SampledFrom([]string{"tw-a", "tw-b", "tw-c", "tw-d", "tw-e", "tw-old"})
	genKernel = rapid.SampledFrom([]string{"INPUT", "FORWARD", "DOCKER-USER"})
	genRule   = rapid.Custom(func(t *rapid.T) rules.Rule {
		switch rapid.IntRange(0, 11).Draw(t, "jump") {
		case 0, 1, 2, 3:
			return rule("-j " + genChain.Draw(t, "target"))
		case 4:
			return rule("-j " + rapid.SampledFrom([]string{"DOCKER-USER", "NOPE"}).Draw(t, "foreign"))
		}
		if rapid.IntRange(0, 5).Draw(t, "comment") == 0 {
			return rule("-m comment --comment ours -j RETURN")
		}
		return rule(fmt.Sprintf("-s 10.0.0.%d/32 -j ACCEPT", rapid.IntRange(1, 5).Draw(t, "n")))
	})
	genAnchor = rapid.SampledFrom([]transaction.Anchor{
		transaction.JumpTo("DOCKER-USER"), transaction.JumpTo("tw-a"), transaction.JumpTo("tw-b"), transaction.JumpTo("tw-old"),
		transaction.Commented("the gate"), transaction.Commented("ours"), transaction.Commented("nobody's"),
	})
	genRules = rapid.SliceOfN(genRule, 0, 3)
)

func genMessage(t *rapid.T, i int) transaction.Message {
	m := transaction.Message{ID: fmt.Sprint(i), Owner: genOwner.Draw(t, "owner")}
	m.Priority = map[string]int{"a": 1, "b": 0}[m.Owner]
	switch rapid.IntRange(0, 12).Draw(t, "kind") {
	case 0, 1, 2, 3:
		b := transaction.RewriteChains{}
		for _, name := range rapid.SliceOfNDistinct(genChain, 1, 2, rapid.ID).Draw(t, "chains") {
			b.Chains = append(b.Chains, rules.Chain{Name: name, Rules: genRules.Draw(t, "rules")})
		}
		m.Body = b
	case 4, 5:
		m.Body = transaction.DeleteChains{Chains: rapid.SliceOfNDistinct(genChain, 1, 2, rapid.ID).Draw(t, "chains")}
	case 6, 7, 8:
		b := transaction.EditRules{Chain: genKernel.Draw(t, "kernel")}
		for range rapid.IntRange(1, 2).Draw(t, "edits") {
			op := transaction.Op(rapid.IntRange(int(transaction.InsertTop), int(transaction.Ban)).Draw(t, "op"))
			e := transaction.Edit{Op: op, Rule: genRule.Draw(t, "rule")}
			if op == transaction.InsertBefore || op == transaction.InsertAfter {
				e.Anchor = genAnchor.Draw(t, "anchor")
			}
			b.Edits = append(b.Edits, e)
		}
		m.Body = b
	case 9:
		m.Body = transaction.EndGrace{}
	case 10:
		m.Body = transaction.SetPolicy{
			Chain:  rapid.SampledFrom([]string{"INPUT", "FORWARD"}).Draw(t, "chain"),
			Policy: rapid.SampledFrom([]string{"ACCEPT", "DROP", "-"}).Draw(t, "policy"),
		}
	default:
		m.Body = transaction.OverrideStub{
			Chain: genChain.Draw(t, "chain"), Rules: genRules.Draw(t, "rules"), Remove: rapid.Bool().Draw(t, "remove"),
		}
	}
	return m
}

func genMessages(t *rapid.T) []transaction.Message {
	out := make([]transaction.Message, rapid.IntRange(1, 14).Draw(t, "messages"))
	for i := range out {
		out[i] = genMessage(t, i)
	}
	return out
}

func genConfig(t *rapid.T) transaction.Config {
	return transaction.Config{Prefixes: []string{"tw-"}, Grace: rapid.Bool().Draw(t, "grace"), MaxDepth: 15}
}

// good returns the messages that are applied when each is a batch by itself.
func good(t *rapid.T, tb testing.TB, cfg transaction.Config, msgs []transaction.Message) []transaction.Message {
	h := newHost(tb, cfg, seedTwin)
	var out []transaction.Message
	for _, m := range msgs {
		if h.batch(m)[0].Result == transaction.Applied {
			out = append(out, m)
		}
	}
	return out
}

// cutting applies messages in the batches that cuts say.
func cutting(tb testing.TB, cfg transaction.Config, msgs []transaction.Message, cuts func(i int) bool) *host {
	h := newHost(tb, cfg, seedTwin)
	var batch []transaction.Message
	for i, m := range msgs {
		batch = append(batch, m)
		if cuts(i) || i == len(msgs)-1 {
			for j, o := range h.batch(batch...) {
				if o.Err != nil {
					tb.Fatalf("message %s is good alone and refused in a batch: %v", batch[j].ID, o.Err)
				}
			}
			batch = nil
		}
	}
	return h
}

// Batching is invisible: any cut of messages that are good ends in the same kernel.
func TestPropertyBatchingIsInvisible(t *testing.T) { rapid.Check(t, batchingIsInvisible(t)) }

// FuzzBatching lets the fuzzer draw the messages.
func FuzzBatching(f *testing.F) {
	draws := make([]byte, 1<<16) // too few and rapid skips the input
	for i := range draws {
		draws[i] = byte(i * i >> 3)
	}
	f.Add(draws)
	f.Fuzz(func(t *testing.T, data []byte) { rapid.MakeFuzz(batchingIsInvisible(t))(t, data) })
}

func batchingIsInvisible(t testing.TB) func(*rapid.T) {
	return func(rt *rapid.T) {
		cfg := genConfig(rt)
		msgs := good(rt, t, cfg, genMessages(rt))
		one := cutting(t, cfg, msgs, func(int) bool { return true })
		all := cutting(t, cfg, msgs, func(int) bool { return false })
		some := cutting(t, cfg, msgs, func(int) bool { return rapid.Bool().Draw(rt, "cut") })
		if diff := cmp.Diff(one.save(), all.save()); diff != "" {
			rt.Fatalf("one by one (-) and all at once (+) differ:\n%s", diff)
		}
		if diff := cmp.Diff(one.save(), some.save()); diff != "" {
			rt.Fatalf("one by one (-) and in some batches (+) differ:\n%s", diff)
		}
	}
}

// What is sent again, or read back, plans nothing.
func TestPropertyUnchangedWishesPlanNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		h := newHost(t, cfg, seed)
		msgs := genMessages(rt)
		h.batch(msgs...)
		h.read()
		before := len(h.sent)
		h.batch(message("refresh", "", transaction.Refresh{}))
		if len(h.sent) != before {
			rt.Fatalf("a refresh of an unchanged table sent\n%s", h.sent[before])
		}
	})
}

// A transaction that is dropped leaves no trace: the same batch afterwards plans the same.
func TestPropertyDroppedTxnLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		h, untouched := newHost(t, cfg, seed), newHost(t, cfg, seed)
		first := genMessages(rt)
		h.batch(first...)
		untouched.batch(first...)
		txn, _ := h.state.Propose(genMessages(rt))
		txn.Plan()
		next := genMessages(rt)
		h.batch(next...)
		untouched.batch(next...)
		if diff := cmp.Diff(untouched.sent, h.sent); diff != "" {
			rt.Fatalf("a dropped transaction left a trace:\n%s", diff)
		}
	})
}

// After a stranger has edited our chains and the rules of kernel chains, a refresh restores
// exactly what is wished.
func TestPropertyRefreshRepairs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		h := newHost(t, cfg, seed)
		h.batch(genMessages(rt)...)
		want := h.save()
		var b strings.Builder
		b.WriteString("*filter\n")
		for _, line := range strings.Split(want, "\n") {
			name, ok := strings.CutPrefix(line, ":tw-")
			if ok && rapid.Bool().Draw(rt, "flush") && h.state.ContentOf("tw-"+strings.Fields(name)[0]) == transaction.Ours {
				fmt.Fprintf(&b, "-F tw-%s\n-A tw-%s -j ACCEPT\n", strings.Fields(name)[0], strings.Fields(name)[0])
			}
		}
		b.WriteString("COMMIT\n")
		h.stranger(b.String())
		h.read()
		h.batch(message("refresh", "", transaction.Refresh{}))
		if diff := cmp.Diff(want, h.save()); diff != "" {
			rt.Fatalf("after the repair (-want +got):\n%s", diff)
		}
	})
}

// Whatever strangers make of a kernel chain, whose rules they move, double, delete and put in
// between, a refresh brings ours to where they belong and leaves theirs alone; a second one
// finds nothing to do.
func TestPropertyRefreshPutsKernelChainsInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		h := newHost(t, cfg, seed)
		m := newModel(cfg.Grace)
		msgs := genMessages(rt)
		for i, o := range h.batch(msgs...) {
			if o.Err == nil {
				m.apply(msgs[i])
			}
		}
		for range 2 {
			kernel := rapid.SampledFrom([]string{"INPUT", "FORWARD"}).Draw(rt, "stranger in")
			m.rows[kernel] = genForeign(rt, m.rows[kernel])
			input := "*filter\n-F " + kernel + "\n"
			for _, r := range m.rows[kernel] {
				input += "-A " + kernel + " " + r + "\n"
			}
			h.stranger(input + "COMMIT\n")
			m.settle(kernel, nil)
			h.read()
			h.batch(message("refresh", "", transaction.Refresh{}))
			if diff := cmp.Diff(m.rows[kernel], rulesOf(h.save(), kernel)); diff != "" {
				rt.Fatalf("%s after the refresh: the model (-) and the simulator (+) differ:\n%s\n%s%s", kernel, diff, input, h.sent[len(h.sent)-1])
			}
			sent := len(h.sent)
			h.read()
			h.batch(message("refresh", "", transaction.Refresh{}))
			if len(h.sent) > sent {
				rt.Fatalf("a second refresh sent\n%s", h.sent[sent])
			}
		}
	})
}

// genForeign is what strangers make of a chain's rules.
func genForeign(t *rapid.T, rows []string) []string {
	rows = slices.Clone(rows)
	for range rapid.IntRange(1, 4).Draw(t, "foreign edits") {
		at := rapid.IntRange(0, len(rows)).Draw(t, "at")
		if len(rows) == 0 || rapid.IntRange(0, 3).Draw(t, "put in") == 0 {
			r := rapid.SampledFrom([]string{"-s 192.0.2.9/32 -j DROP", "-i eth8 -j DOCKER-USER", `-m comment --comment "the gate" -j RETURN`}).Draw(t, "foreign rule")
			rows = slices.Insert(rows, at, r)
			continue
		}
		from := rapid.IntRange(0, len(rows)-1).Draw(t, "from")
		r := rows[from]
		if what := rapid.IntRange(0, 3).Draw(t, "what"); what > 0 { // 0: double it
			rows = slices.Delete(rows, from, from+1)
			if what == 1 { // or delete it, else move it
				continue
			}
		}
		rows = slices.Insert(rows, min(at, len(rows)), r)
	}
	return rows
}

func rulesOf(save, chain string) []string {
	var out []string
	for _, line := range strings.Split(save, "\n") {
		if r, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
			out = append(out, r)
		}
	}
	return out
}

// The kernel holds what a model without any of our machinery says.
func TestPropertyModelAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		h := newHost(t, cfg, seed)
		m := newModel(cfg.Grace)
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			msgs := genMessages(rt)
			outcomes := h.batch(msgs...)
			for i, o := range outcomes {
				if o.Result == transaction.Applied || o.Result == transaction.Superseded {
					m.apply(msgs[i])
					m.chains() // a stub on the way costs an earlier chain its content
				}
			}
			if diff := cmp.Diff(m.save(), ruleLines(h.save())); diff != "" {
				rt.Fatalf("the model (-) and the simulator (+) differ:\n%s\n%s", diff, h.sent[max(0, len(h.sent)-2):])
			}
		}
	})
}

// ruleLines leaves only what the model says something about.
func ruleLines(save string) []string {
	var out []string
	for _, line := range strings.Split(save, "\n") {
		if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, ":") {
			out = append(out, strings.TrimSuffix(line, " [0:0]"))
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(modelKey(a), modelKey(b)) })
	return out
}

func modelKey(line string) string {
	if strings.HasPrefix(line, ":") {
		return line
	}
	return "A " + strings.Fields(line)[1]
}
