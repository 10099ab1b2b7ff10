// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	speedDispatch = "tw-dispatch"
	speedRules    = 10 // of each chain
)

// speedBed is a runtime on a kernel in a namespace, and a plain tool in another one, with the
// same table in both.
type speedBed struct {
	tb       testing.TB // of what is being measured
	backend  dataplane.Backend
	size     speedSize
	kernel   *dataplane.Kernel
	rt       *actors.Runtime
	stranger *speedTool // in the runtime's namespace
	plain    *speedTool
	cleanups []func()
	options  dataplane.Options
	stateDir string // "": the runtime keeps nothing over its end

	versions []speedVersion // of each chain
	jumps    []rules.Rule   // of the dispatch chain
	turns    int

	mu      sync.Mutex     // guards steps
	steps   []actors.Step  // of the batches since they were looked at last
	answers sync.WaitGroup // that are still to come of messages that were told
}

// speedVersion tells the contents of a chain apart.
type speedVersion struct {
	whole int // is in seven of its rules
	one   int // is in one
}

// newSpeedBed returns a bed with nothing in its tables but a stranger's rules.
func newSpeedBed(tb testing.TB, backend dataplane.Backend, size speedSize) *speedBed {
	tb.Helper()
	s := &speedBed{tb: tb, backend: backend, size: size, versions: make([]speedVersion, size.chains)}
	for n := range size.chains {
		s.jumps = append(s.jumps, rule("-j "+chainName(n)))
	}
	options := testns.Options(tb, s.namespace(), backend)
	s.stranger = s.tool(options.NetNS, options.LockFile)
	s.plain = s.tool(s.namespace(), testns.Options(tb, "", backend).LockFile)
	if size.foreign > 0 {
		s.stranger.restore(tb, foreignBlock(size.foreign))
		s.plain.restore(tb, foreignBlock(size.foreign))
	}
	s.options = options
	s.start(options)
	return s
}

// start makes the runtime, as a program would that reads the documentation.
func (s *speedBed) start(options dataplane.Options) {
	s.startKernel(options)
	s.startRuntime()
}

func (s *speedBed) startKernel(options dataplane.Options) {
	k, err := dataplane.NewKernel(context.Background(), options)
	if err != nil {
		s.close()
		s.tb.Skipf("no kernel: %v", err)
	}
	s.cleanups = append(s.cleanups, func() {
		if err := k.Close(); err != nil {
			s.tb.Error(err)
		}
	})
	s.kernel = k
}

func (s *speedBed) startRuntime() {
	info := s.kernel.Info()
	table := transaction.Config{Prefixes: []string{"tw-"}, MaxDepth: info.MaxDepth, Extensions: info.Extensions}
	table.Grace = s.stateDir != ""
	rt, err := actors.New(s.kernel, actors.Options{
		Table: table, StateDir: s.stateDir, Refresh: -1, // only when the benchmark asks for it
		OnBatch: func(r actors.BatchRecord) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.steps = append(s.steps, r.Steps...)
		},
		OnAnswer: func(a actors.Answer) {
			s.check([]actors.Answer{a}, nil)
			s.answers.Done()
		},
	}.For(info.Backend))
	if err != nil {
		s.tb.Fatal(err)
	}
	rt.Start()
	s.cleanups = append(s.cleanups, func() {
		if err := rt.Stop(context.Background()); err != nil {
			s.tb.Error(err)
		}
	})
	s.rt = rt
}

// stop ends the runtime and its kernel.
func (s *speedBed) stop() {
	last := len(s.cleanups) - 2
	for _, f := range slices.Backward(s.cleanups[last:]) {
		f()
	}
	s.cleanups = s.cleanups[:last]
}

// namespace makes a namespace that lives as long as the bed.
func (s *speedBed) namespace() string {
	f, err := testns.Open()
	if err != nil {
		s.close()
		s.tb.Skipf("no network namespace can be made: %v", err)
	}
	s.cleanups = append(s.cleanups, func() { f.Close() })
	return testns.Path(f)
}

func (s *speedBed) tool(ns, lock string) *speedTool {
	t, err := newSpeedTool(ns, s.backend, lock)
	if err != nil {
		s.close()
		s.tb.Skipf("no plain tool: %v", err)
	}
	s.cleanups = append(s.cleanups, t.close)
	return t
}

func (s *speedBed) close() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	s.cleanups = nil
}

// send sends messages as one and waits for their answers.
func (s *speedBed) send(msgs ...transaction.Message) {
	s.check(s.rt.Send(context.Background(), filter4, msgs...))
}

func (s *speedBed) check(answers []actors.Answer, err error) {
	for _, a := range answers {
		if err == nil && a.Result != actors.Applied && a.Result != actors.Superseded {
			err = fmt.Errorf("%s: %s: %w", a.ID, a.Result, a.Err)
		}
	}
	if err != nil {
		s.tb.Error(err)
	}
}

// takeSteps returns what the runtime did since the last call.
func (s *speedBed) takeSteps() []actors.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.steps
	s.steps = nil
	return steps
}

// load gives both sides all chains.
func (s *speedBed) load() {
	s.plain.restore(s.tb, s.firstBlock())
	s.send(s.firstMessages()...)
}

// firstMessages are all chains, the dispatch chain and its hook, from nothing.
func (s *speedBed) firstMessages() []transaction.Message {
	var msgs []transaction.Message
	for n := range s.versions {
		msgs = append(msgs, rewriteOf(s.chain(n)))
	}
	msgs = append(msgs, rewriteOf(rules.Chain{Name: speedDispatch, Rules: s.jumps}))
	return append(msgs, transaction.Message{Body: transaction.InsertRule("FORWARD", rule("-j "+speedDispatch), transaction.InsertTop)})
}

// firstBlock is the same for the plain tool.
func (s *speedBed) firstBlock() []byte {
	var chains []rules.Chain
	for n := range s.versions {
		chains = append(chains, s.chain(n))
	}
	chains = append(chains, rules.Chain{Name: speedDispatch, Rules: s.jumps})
	return blockOf(chains, "-I FORWARD 1 -j "+speedDispatch)
}

// chain is a chain in its version of now.
func (s *speedBed) chain(n int) rules.Chain {
	v := s.versions[n]
	c := chainOf(chainName(n), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	for i := range speedRules - 3 {
		port := 1000 + i
		if i == 3 {
			port = 20_000 + v.one%10_000
		}
		c.Rules = append(c.Rules, rule(fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -m comment --comment \"policy %d, rule %d\" -j ACCEPT",
			v.whole%250, n/250, n%250, port, n, i)))
	}
	return rules.Chain{Name: c.Name, Rules: append(c.Rules,
		rule("-p tcp -m multiport --dports 80,443 -j ACCEPT"),
		rule(fmt.Sprintf("-m comment --comment \"end of policy %d\" -j RETURN", n)))}
}

// changed is a chain with seven rules other than before.
func (s *speedBed) changed(n int) rules.Chain {
	s.versions[n].whole++
	return s.chain(n)
}

// compare tells whether the runtime's table is the tool's. It is how the benchmark knows that
// both have done the same.
func (s *speedBed) compare() {
	ours, plain := savedTable(s.stranger.save(s.tb)), savedTable(s.plain.save(s.tb))
	if len(ours) < len(s.versions)*speedRules {
		s.tb.Errorf("the runtime's table has %d lines for %d chains", len(ours), len(s.versions))
	}
	for i := range min(len(ours), len(plain)) {
		if ours[i] != plain[i] {
			s.tb.Errorf("the runtime's table and the tool's differ: %q, %q", ours[i], plain[i])
			return
		}
	}
	if len(ours) != len(plain) {
		s.tb.Errorf("the runtime's table has %d lines, the tool's %d", len(ours), len(plain))
	}
}

// savedTable is the chains and rules of save output, chains in the order of their names.
func savedTable(saved []byte) []string {
	var lines []string
	for line := range strings.Lines(string(saved)) {
		if line[0] == ':' || line[0] == '-' {
			lines = append(lines, line)
		}
	}
	chain := func(line string) string { return strings.Fields(strings.Replace(line, ":", "-A ", 1))[1] }
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(chain(a), chain(b)) })
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, "[") // counters
	}
	return lines
}

func rewriteOf(chains ...rules.Chain) transaction.Message {
	return transaction.Message{Body: transaction.RewriteChains{Chains: chains}}
}

// blockOf is restore input as a program writes it that knows nothing of the table: each chain
// declared, which empties it, and all its rules.
func blockOf(chains []rules.Chain, more ...string) []byte {
	out := []byte("*filter\n")
	for _, c := range chains {
		out = fmt.Appendf(out, ":%s - [0:0]\n", c.Name)
	}
	for _, c := range chains {
		for _, r := range c.Rules {
			out = fmt.Appendf(out, "-A %s %s\n", c.Name, r.String())
		}
	}
	for _, line := range more {
		out = append(append(out, line...), '\n')
	}
	return append(out, "COMMIT\n"...)
}

// foreignBlock is a stranger's rules, in chains of 10 below a dispatch chain of its own.
func foreignBlock(n int) []byte {
	dispatch := rules.Chain{Name: "KUBE-SERVICES"}
	var chains []rules.Chain
	for i := range n / speedRules {
		c := rules.Chain{Name: fmt.Sprintf("KUBE-SVC-%d", i)}
		for j := range speedRules {
			c.Rules = append(c.Rules, rule(fmt.Sprintf("-s 11.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j ACCEPT", j, i/250, i%250)))
		}
		chains = append(chains, c)
		dispatch.Rules = append(dispatch.Rules, rule("-j "+c.Name))
	}
	return blockOf(append(chains, dispatch), "-A FORWARD -j "+dispatch.Name)
}
