// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// scan is the simulator's table by digests.
func (h *host) scan(chains ...string) rules.Snapshot {
	h.t.Helper()
	snap, err := h.sim.Scan(context.Background(), h.id, chains...)
	if err != nil {
		h.t.Fatal(err)
	}
	return snap
}

// look is a scan and what has to be asked besides. It returns the chains that were read.
func (h *host) look() (drifts []transaction.Drift, read []string) {
	h.t.Helper()
	l := transaction.Look{Scan: h.scan(), Text: map[string]rules.SavedChain{}}
	d := h.state.Doubts(l.Scan)
	var err error
	if l.Expected, err = h.sim.Expect(context.Background(), h.id, d.Expect); err != nil {
		h.t.Fatal(err)
	}
	for _, c := range d.Expect {
		l.Actual = h.scan(c.Name).Chains
	}
	if len(d.Text) > 0 {
		snap, err := h.sim.Read(context.Background(), h.id, d.Text...)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, name := range d.Text {
			l.Text[name] = snap.Chains[name]
		}
	}
	drifts = h.state.Look(l)
	h.check()
	return drifts, d.Text
}

// learn has the State know what the tool reads back.
func (h *host) learn(m transaction.Message) {
	h.t.Helper()
	asked := h.state.Unlearned([]transaction.Message{m})
	canons, err := h.sim.Canon(context.Background(), h.id, asked)
	if err != nil {
		h.t.Fatal(err)
	}
	for i, r := range asked {
		h.state.Learn(r.String(), canons[i])
	}
}

// saved is what the State leaves to the next one, by way of a file.
func (h *host) saved() transaction.Saved {
	h.t.Helper()
	h.state.Digests(h.scan()) // all that was written is verified
	v, ok := h.state.Save()
	if !ok {
		h.t.Fatal("nothing is to be saved")
	}
	text := string(transaction.AppendSaved(nil, v))
	back, err := transaction.ParseSaved(text)
	if err != nil {
		h.t.Fatalf("%v in\n%s", err, text)
	}
	back.Table = v.Table
	if again := string(transaction.AppendSaved(nil, back)); again != text {
		h.t.Fatalf("saved, parsed and saved:\n%s", cmp.Diff(text, again))
	}
	return back
}

// restart is a new State on the same simulator, with what was saved.
func (h *host) restart(cfg transaction.Config, v transaction.Saved) *host {
	h.t.Helper()
	cfg.Table = h.id
	state, err := transaction.NewState(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	if err := state.Load(v); err != nil {
		h.t.Fatal(err)
	}
	return &host{t: h.t, id: h.id, sim: h.sim, state: state}
}

// genWishes are messages that each say all that they are about, so that any may be said again.
func genWishes(t *rapid.T) []transaction.Message {
	var out []transaction.Message
	for i, name := range rapid.SliceOfNDistinct(genChain, 1, 5, rapid.ID).Draw(t, "chains") {
		c := rules.Chain{Name: name, Rules: genRules.Draw(t, "rules")}
		out = append(out, rewrite(fmt.Sprint("c", i), genOwner.Draw(t, "owner"), c))
	}
	for i, owner := range rapid.SliceOfNDistinct(genOwner, 0, 3, rapid.ID).Draw(t, "hookers") {
		b := transaction.EditRules{Chain: genKernel.Draw(t, "kernel")}
		for _, r := range rapid.SliceOfNDistinct(genRule, 1, 3, rules.Rule.String).Draw(t, "hooks") {
			op := rapid.SampledFrom([]transaction.Op{transaction.InsertTop, transaction.InsertBottom}).Draw(t, "op")
			b.Edits = append(b.Edits, transaction.Edit{Op: op, Rule: r})
		}
		out = append(out, transaction.Message{ID: fmt.Sprint("k", i), Owner: owner, Priority: map[string]int{"a": 1}[owner], Body: b})
	}
	return out
}

// A restart plans nothing for what is asked again, whatever the order; what a stranger has
// changed meanwhile is all that is written; and nothing of it is told as drift.
func TestPropertyRestart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := genConfig(rt)
		before := newHost(t, cfg, seed)
		var wishes []transaction.Message
		for _, m := range genWishes(rt) {
			before.learn(m)
			if before.batch(m)[0].Err == nil {
				wishes = append(wishes, m)
			}
		}
		v := before.saved()
		cfg.Grace = true
		h := before.restart(cfg, v)
		var changed string
		if rapid.Bool().Draw(rt, "changed") {
			changed = rapid.SampledFrom([]string{"INPUT", "FORWARD", "DOCKER-USER", "tw-a", "tw-b", "tw-old"}).Draw(rt, "stranger's")
			h.stranger("*filter\n:" + changed + " - [0:0]\n-A " + changed + " -p udp -j RETURN\nCOMMIT\n")
		}
		drifts, read := h.look()
		if len(drifts) > 0 || len(read) > 1 || len(read) == 1 && read[0] != changed {
			rt.Fatalf("drift %v, read %v, changed %q", drifts, read, changed)
		}
		if h.state.Unlearned(wishes) != nil && changed == "" {
			rt.Fatalf("to be asked: %v", h.state.Unlearned(wishes))
		}
		h.batch(rapid.Permutation(wishes).Draw(rt, "order")...)
		for _, block := range h.sent {
			for line := range strings.Lines(block) {
				if f := strings.Fields(line); f[0][0] == ':' && f[0] != ":"+changed || f[0][0] == '-' && f[1] != changed {
					rt.Fatalf("changed %q, and sent\n%s", changed, block)
				}
			}
		}
		if changed == "" && before.save() != h.save() {
			rt.Fatal(cmp.Diff(before.save(), h.save()))
		}
		again := h.saved() // what nobody has spoken of is not forgotten
		if changed == "" {
			for i := range v.Chains {
				v.Chains[i].Owner, v.Chains[i].Content = again.Chains[i].Owner, again.Chains[i].Content
			}
			if diff := cmp.Diff(v, again); diff != "" && len(h.sent) == 0 {
				rt.Fatalf("saved again:\n%s", diff)
			}
		}
	})
}

// A table that can only be read: what was saved says what is ours, and the text is compared.
func TestRestartWithoutScan(t *testing.T) {
	before := newHost(t, transaction.Config{Prefixes: []string{"tw-"}}, seed)
	wish := rewrite("1", "a", chainOf("tw-a", "-s 10.0.0.1/32 -j ACCEPT"), chainOf("tw-x"))
	before.batch(wish, message("2", "a", transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop)))
	h := before.restart(transaction.Config{Prefixes: []string{"tw-"}, Grace: true}, before.saved())
	h.read()
	h.batch(wish)
	if len(h.sent) > 0 {
		t.Errorf("sent %s", h.sent)
	}
	h.batch(message("3", "", transaction.EndGrace{}))
	h.read()
	h.batch(message("4", "", transaction.Cleanup{}))
	if strings.Contains(h.save(), "-A INPUT -j tw-a") {
		t.Errorf("what nobody lists any more is there still:\n%s", h.save())
	}
}

// What an earlier run listed in a kernel chain goes once grace is over, each copy, unless
// somebody lists it again; all else stays.
func TestLeftovers(t *testing.T) {
	cfg := transaction.Config{Prefixes: []string{"tw-"}, Grace: true}
	insert := func(id, chain, text string, at transaction.Op) transaction.Message {
		return message(id, "a", transaction.InsertRule(chain, rule(text), at))
	}
	const old, kept, strangers = "-s 10.0.0.7/32 -j DROP", "-s 10.0.0.8/32 -j DROP", "-s 192.0.2.1/32 -j ACCEPT"
	tests := []struct {
		name     string
		stranger string // between the runs
		read     bool   // the chain had to be read
	}{
		{"as it was", "", false},
		{"copied", "*filter\n-A INPUT " + old + "\nCOMMIT\n", true},
		{"gone already", "*filter\n-D INPUT " + old + "\nCOMMIT\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := newHost(t, cfg, seed)
			before.batch(insert("1", "INPUT", old, transaction.InsertTop), insert("2", "INPUT", kept, transaction.InsertBottom),
				insert("3", "DOCKER-USER", "-j tw-gone", transaction.InsertTop), rewrite("4", "a", chainOf("tw-gone", "-j DROP")))
			v := before.saved()
			h := before.restart(cfg, v)
			h.stranger(tt.stranger)
			if _, read := h.look(); slices.Contains(read, "INPUT") != tt.read {
				t.Errorf("read: %v", read)
			}
			h.batch(insert("5", "INPUT", kept, transaction.InsertBottom))
			h.look()
			h.batch(message("6", "", transaction.Cleanup{})) // grace is open
			if len(h.sent) > 0 {
				t.Fatalf("during grace: %s", h.sent)
			}
			if again := h.saved(); !strings.Contains(string(transaction.AppendSaved(nil, again)), old) {
				t.Error("a restart during grace forgets what is to go")
			}
			h.batch(message("7", "", transaction.EndGrace{}), message("8", "", transaction.Cleanup{}))
			for line, want := range map[string]bool{old: false, kept: true, strangers: true, "-j tw-gone": false, ":tw-gone": false} {
				if got := strings.Contains(h.save(), line); got != want {
					t.Errorf("%s: %v, want %v:\n%s", line, got, want, h.save())
				}
			}
			if again := h.saved(); strings.Contains(string(transaction.AppendSaved(nil, again)), old) {
				t.Error("what has gone is saved")
			}
		})
	}
}

// What only the newest read has shown does not go with it.
func TestLeftoversWaitForALook(t *testing.T) {
	cfg := transaction.Config{Prefixes: []string{"tw-"}}
	before := newHost(t, cfg, seed)
	before.batch(message("1", "a", transaction.InsertRule("INPUT", rule("-s 10.0.0.7/32 -j DROP"), transaction.InsertTop)))
	h := before.restart(cfg, before.saved())
	h.look()
	h.batch(message("2", "", transaction.Cleanup{}))
	if len(h.sent) > 0 {
		t.Fatalf("at the first look: %s", h.sent)
	}
	h.look()
	h.batch(message("3", "", transaction.Cleanup{}))
	if len(h.sent) == 0 || strings.Contains(h.save(), "10.0.0.7") {
		t.Errorf("at the second: %s", h.sent)
	}
}

// Chains without a prefix that were ours are ours: they can be written, and go if nobody does.
func TestSavedChainsAreOurs(t *testing.T) {
	cfg := transaction.Config{Prefixes: []string{"tw-"}}
	before := newHost(t, cfg, seed)
	before.batch(rewrite("1", "a", chainOf("web", "-j ACCEPT"), chainOf("dns", "-j ACCEPT")))
	h := before.restart(cfg, before.saved())
	h.look()
	if out := h.batch(rewrite("2", "b", chainOf("web", "-j ACCEPT")), rewrite("3", "b", chainOf("DOCKER-USER", "-j DROP"))); out[0].Err != nil || out[1].Err == nil {
		t.Errorf("web: %v, DOCKER-USER: %v", out[0].Err, out[1].Err)
	}
	h.look()
	h.batch(message("4", "", transaction.Cleanup{}))
	if save := h.save(); strings.Contains(save, ":dns") || !strings.Contains(save, ":web") || !strings.Contains(save, ":DOCKER-USER") {
		t.Errorf("after a cleanup:\n%s", save)
	}
}

// A chain of an earlier run of which nothing was saved is read before it is written, and a
// kernel chain that has come since is before a rule is put in.
func TestUnseenIsRead(t *testing.T) {
	cfg := transaction.Config{Prefixes: []string{"tw-"}, Grace: true}
	before := newHost(t, cfg, seed)
	v := before.saved()
	before.batch(rewrite("1", "a", chainOf("tw-late", "-s 10.0.0.1/32 -j ACCEPT")))
	h := before.restart(cfg, v)
	h.stranger("*filter\n:NEW - [0:0]\n-A NEW -j ACCEPT\nCOMMIT\n")
	h.look()
	wishes := []transaction.Message{
		rewrite("2", "a", chainOf("tw-late", "-s 10.0.0.1/32 -j ACCEPT")),
		message("3", "a", transaction.InsertRule("NEW", rule("-j tw-late"), transaction.InsertTop)),
	}
	names := h.state.Unseen(wishes)
	if !slices.Equal(names, []string{"NEW", "tw-late"}) {
		t.Fatalf("unseen: %v", names)
	}
	snap, err := h.sim.Read(context.Background(), h.id, names...)
	if err != nil {
		t.Fatal(err)
	}
	h.state.Look(transaction.Look{Scan: h.scan(names...), Asked: names, Text: snap.Chains})
	if names := h.state.Unseen(wishes); names != nil {
		t.Fatalf("unseen still: %v", names)
	}
	h.batch(wishes...)
	if got := strings.Join(h.sent, ""); strings.Contains(got, ":tw-late") || !strings.Contains(got, "-I NEW -j tw-late") {
		t.Errorf("sent\n%s", got)
	}
}

func TestLoadRefuses(t *testing.T) {
	chain := func(k transaction.SavedChain) transaction.Saved {
		return transaction.Saved{Table: filter4, Chains: []transaction.SavedChain{k}}
	}
	tests := map[string]transaction.Saved{
		"of another table": {Table: rules.TableID{IPVersion: rules.IPv6, Name: "filter"}},
		"a name":           chain(transaction.SavedChain{Name: "-x", Content: transaction.Ours}),
		"INPUT as ours":    chain(transaction.SavedChain{Name: "INPUT", Content: transaction.Ours}),
		"a listed rule":    chain(transaction.SavedChain{Name: "INPUT", Content: transaction.Foreign, Listed: []transaction.ListedRule{{List: "top", Text: "-A x"}}}),
	}
	for name, v := range tests {
		state, err := transaction.NewState(transaction.Config{Table: filter4})
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Load(v); err == nil {
			t.Errorf("%s is taken over", name)
		}
	}
}

const savedExample = `chain "FORWARD" foreign ff 1 ""
-j tw-a
listed top 1 "web"
-j tw-a
-j tw-a
listed placed 0 ""
-j DROP
chain "tw-a" ours 12ab - "web \"1\""
chain "tw-b" earlier 1 0 ""
`

func TestParseSaved(t *testing.T) {
	v, err := transaction.ParseSaved(savedExample)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(transaction.AppendSaved(nil, v)); got != savedExample {
		t.Error(cmp.Diff(savedExample, got))
	}
	if k := v.Chains[1]; k.Owner != `web "1"` || k.Known || k.Digest != 0x12ab || k.Content != transaction.Ours {
		t.Errorf("%+v", k)
	}
	for _, bad := range []string{
		"x\n", "chain\n", "chain a ours 1 0 \"\"\n", `chain "a" ours 1 0 ""`, "chain \"a\" mine 1 0 \"\"\n", "chain \"a\" absent 1 0 \"\"\n",
		"chain \"a\" ours z 0 \"\"\n", "chain \"a\" ours 1 1 \"\"\n", "chain \"a\" ours 1 -1 \"\"\n", "chain \"a\" ours 1 999999999 \"\"\n",
		"chain \"a\" ours 1 0 \"\" more\n", "chain \"a\" ours 1\n", "listed top 0 \"\"\n-j A\n",
		"chain \"a\" ours 1 0 \"\"\nlisted top 0 \"\"\n-j A\n", "chain \"a\" foreign 1 0 \"\"\nlisted left 0 \"\"\n-j A\n", "chain \"a\" foreign 1 0 \"\"\nlisted top 0 \"\"\n",
	} {
		if v, err := transaction.ParseSaved(bad); err == nil {
			t.Errorf("%q is %+v", bad, v)
		}
	}
	for i := range savedExample { // whatever it is then, it is no panic
		for bit := range 8 {
			b := []byte(savedExample)
			b[i] ^= 1 << bit
			if v, err := transaction.ParseSaved(string(b)); err == nil {
				_ = transaction.AppendSaved(nil, v)
			}
		}
		_, _ = transaction.ParseSaved(savedExample[:i])
	}
}

func BenchmarkSaved(b *testing.B) {
	h := newHost(b, transaction.Config{Prefixes: []string{"tw-"}}, "")
	var chains []rules.Chain
	for i := range 5000 {
		c := rules.Chain{Name: fmt.Sprintf("tw-%04d", i)}
		for k := range 10 {
			c.Rules = append(c.Rules, rule(fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport 443 -j ACCEPT", k, i/250, i%250)))
		}
		chains = append(chains, c)
	}
	h.batch(rewrite("1", "a", chains...))
	v := h.saved()
	text := string(transaction.AppendSaved(nil, v))
	scan := h.scan()
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			h.state.Save()
		}
	})
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			_ = transaction.AppendSaved(nil, v)
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := transaction.ParseSaved(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("look", func(b *testing.B) {
		for b.Loop() {
			r := h.restart(transaction.Config{Prefixes: []string{"tw-"}, Grace: true}, v)
			if d := r.state.Doubts(scan); len(d.Expect)+len(d.Text) > 0 {
				b.Fatal(d)
			}
			r.state.Look(transaction.Look{Scan: scan})
			txn, _ := r.state.Propose([]transaction.Message{rewrite("1", "a", chains...)})
			if len(txn.Plan().Modify.Lines) > 0 {
				b.Fatal("planned")
			}
			r.state.Commit(txn)
		}
	})
}
