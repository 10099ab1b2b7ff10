// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// fault is one way in which a message can be bad.
type fault struct {
	name string
	rule string // in place of one rule of the message
	// restores is how many blocks the live table may see.
	restores int
	want     actors.Result
	bad      func(bench *isolation, i int) []transaction.Message // instead of rule
}

func faults(v rules.IPVersion) []fault {
	source := "10.0.0.256"
	if v == rules.IPv6 {
		source = "2001:db8::12345"
	}
	return []fault{
		{name: "unknown option", rule: "-p tcp --bogus 1 -j DROP", restores: 1},
		{name: "unknown match", rule: "-m nosuchmatch -j DROP", restores: 1},
		{name: "missing set", rule: "-m set --match-set tw-nosuch src -j DROP", restores: 3},
		{name: "address", rule: "-s " + source + " -j DROP", restores: 3},
		{name: "target not in table", rule: "-p tcp -j REDIRECT --to-ports 80", restores: 1},
		{name: "match not at hook", rule: "-m owner --uid-owner 0 -j DROP", restores: 1},
		{name: "kernel alone knows", rule: "-m ipvs --ipvs -j DROP", restores: 1},
		{name: "loop of two", restores: 1, want: actors.Conflict, bad: loopOfTwo},
		{name: "foreign chain", restores: 1, bad: foreignChain},
	}
}

func loopOfTwo(b *isolation, i int) []transaction.Message {
	one, two := b.rules(i, 1), b.rules(i+1, 1)
	one[5], two[5] = rule("-j "+b.chain(i+1)), rule("-j "+b.chain(i))
	return []transaction.Message{b.message(i, one), b.message(i+1, two)}
}

func foreignChain(b *isolation, i int) []transaction.Message {
	m := b.message(i, b.rules(i, 1))
	m.Body = transaction.RewriteChains{Chains: []rules.Chain{{Name: "STRANGER", Rules: b.rules(i, 1)}}}
	return []transaction.Message{m}
}

// isolation is a table of many chains, reached from FORWARD through a dispatch chain, each
// of which one message rewrites.
type isolation struct {
	t       *testing.T
	id      rules.TableID
	k       *dataplane.Kernel
	m       *actors.Machine
	chains  int
	records []actors.BatchRecord
	answers map[string]actors.Answer
	version int
}

func (b *isolation) chain(i int) string { return fmt.Sprintf("tw-%04d", i) }

func (b *isolation) net(i int) string {
	if b.id.IPVersion == rules.IPv6 {
		return fmt.Sprintf("2001:db8::%x/128", i+1)
	}
	return fmt.Sprintf("10.%d.%d.1/32", i/250, i%250)
}

// rules are ten rules as agents write them; version changes what one matches.
func (b *isolation) rules(i, version int) []rules.Rule {
	out := []rules.Rule{rule("-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")}
	for n := range 7 {
		out = append(out, rule(fmt.Sprintf(`-s %s -p tcp -m tcp --dport %d -m comment --comment "rule %d of %d" -j ACCEPT`,
			b.net(i), 1000+version*10+n, n, i)))
	}
	return append(out, rule("-p udp -m multiport --dports 53,123 -j ACCEPT"), rule(`-m comment --comment "back" -j RETURN`))
}

func (b *isolation) message(i int, rs []rules.Rule) transaction.Message {
	return transaction.Message{
		ID: fmt.Sprint("m", i), Owner: fmt.Sprint("feature", i),
		Body: transaction.RewriteChains{Chains: []rules.Chain{{Name: b.chain(i), Rules: rs}}},
	}
}

// newIsolation fills the table.
func newIsolation(t *testing.T, k *dataplane.Kernel, id rules.TableID, chains int) *isolation {
	b := &isolation{t: t, id: id, k: k, chains: chains, answers: map[string]actors.Answer{}}
	stranger := []byte("*filter\n:STRANGER - [0:0]\nCOMMIT\n")
	if err := k.Restore(context.Background(), id, stranger); err != nil {
		t.Fatal(err)
	}
	b.m = actors.NewMachine(actors.MachineConfig{
		Dataplane: k,
		Table: func(rules.TableID) transaction.Config {
			return transaction.Config{
				Prefixes: []string{"tw-"}, MaxDepth: k.Info().MaxDepth, Backend: k.Info().Backend, Kinds: true,
			}
		},
		Observe: func(e actors.Event) {
			if e.Kind == actors.EventAnswer {
				b.answers[e.Answer.ID] = *e.Answer
			}
		},
		OnBatch: func(r actors.BatchRecord) { b.records = append(b.records, r) },
	})
	dispatch := rules.Chain{Name: "tw-dispatch"}
	var msgs []transaction.Message
	for i := range chains {
		dispatch.Rules = append(dispatch.Rules, rule("-g "+b.chain(i)))
		msgs = append(msgs, b.message(i, b.rules(i, 0)))
	}
	msgs = append(msgs,
		transaction.Message{ID: "dispatch", Body: transaction.RewriteChains{Chains: []rules.Chain{dispatch}}},
		transaction.Message{ID: "hook", Body: transaction.InsertRule("FORWARD", rule("-j tw-dispatch"), transaction.InsertTop)})
	b.send(msgs)
	for id, a := range b.answers {
		if a.Result != actors.Applied {
			t.Fatalf("%s: %v", id, a.Err)
		}
	}
	return b
}

// send has the messages planned as one batch, and returns how long that took.
func (b *isolation) send(msgs []transaction.Message) time.Duration {
	b.records, b.answers = nil, map[string]actors.Answer{}
	for _, m := range msgs {
		if err := b.m.Send(b.id, m); err != nil {
			b.t.Fatal(err)
		}
	}
	begin := time.Now()
	b.m.Settle()
	return time.Since(begin)
}

// batch returns a message for each of the first n chains, with so many bad ones in it.
func (b *isolation) batch(n int, f fault, bad int) (msgs []transaction.Message, isBad map[string]bool) {
	b.version++
	isBad = map[string]bool{}
	at := map[int]bool{}
	for i := range bad {
		at[(2*i+1)*n/(2*bad)] = true
	}
	for i := 0; i < n; i++ {
		switch {
		case !at[i]:
			msgs = append(msgs, b.message(i, b.rules(i, b.version)))
		case f.bad != nil:
			ms := f.bad(b, i)
			for _, m := range ms {
				isBad[m.ID] = true
			}
			msgs = append(msgs, ms...)
			i += len(ms) - 1
		default:
			rs := b.rules(i, b.version)
			rs[5] = rule(f.rule)
			m := b.message(i, rs)
			isBad[m.ID] = true
			msgs = append(msgs, m)
		}
	}
	return msgs, isBad
}

// check holds the answers and the kernel against what was sent.
func (b *isolation) check(msgs []transaction.Message, bad map[string]bool, want actors.Result) (applied, restores, probes int) {
	t := b.t
	t.Helper()
	snap, err := b.k.Read(context.Background(), b.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range msgs {
		a, ok := b.answers[m.ID]
		c := m.Body.(transaction.RewriteChains).Chains[0]
		switch {
		case !ok:
			t.Errorf("%s has no answer", m.ID)
		case bad[m.ID]:
			if a.Result != want {
				t.Errorf("%s: %v (%v), want %v", m.ID, a.Result, a.Err, want)
			}
			continue
		case a.Result != actors.Applied:
			t.Errorf("%s, which is innocent: %v: %v", m.ID, a.Result, a.Err)
			continue
		}
		applied++
		if got := snap.Chains[c.Name]; len(got.Rules) != len(c.Rules) || !strings.Contains(got.Rules[1].Text, portOf(c.Rules[1])) {
			t.Errorf("%s: the kernel does not hold chain %s as sent", m.ID, c.Name)
		}
	}
	for _, r := range b.records {
		restores += r.Restores
		probes += r.Probes
	}
	return applied, restores, probes
}

func portOf(r rules.Rule) string {
	words := strings.Fields(r.String())
	for i, w := range words {
		if w == "--dport" {
			return words[i+1]
		}
	}
	return "?"
}

// Whatever is wrong with some messages of a batch, all others land together, and the live
// table sees few blocks. The times are told, not judged: see BenchmarkIsolation.
func TestKernelIsolation(t *testing.T) {
	chains, bads := 100, []int{1, 3}
	if os.Getenv("TABLEWARD_SOAK") != "" {
		chains, bads = 1000, []int{1, 3, 10}
	}
	testns.Each(t, func(t *testing.T, backend dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		b := newIsolation(t, k, id, chains)
		var report strings.Builder
		w := tabwriter.NewWriter(&report, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "fault\tbad\trestores\tprobes\tapplied\tms\tgood ms\tratio")
		for _, f := range faults(v) {
			if f.want == 0 {
				f.want = actors.Rejected
			}
			for _, n := range bads {
				good, _ := b.batch(chains, f, 0)
				plain := b.send(good)
				msgs, bad := b.batch(chains, f, n)
				took := b.send(msgs)
				applied, restores, probes := b.check(msgs, bad, f.want)
				if restores > f.restores {
					t.Errorf("%s, %d bad: %d blocks on the live table, at most %d", f.name, n, restores, f.restores)
				}
				fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d of %d\t%.0f\t%.0f\t%.1f\n", f.name, n, restores, probes, applied, len(msgs),
					took.Seconds()*1e3, plain.Seconds()*1e3, took.Seconds()/plain.Seconds())
			}
		}
		w.Flush()
		t.Logf("%d messages of one chain with 10 rules, %s:\n%s", chains, backend, report.String())
	})
}
