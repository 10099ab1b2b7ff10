// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	latencyChains = 100
	latencyRules  = 10
	latencyPairs  = 100 // fewer make no median
	busySenders   = 8
	busyEach      = 200
)

// BenchmarkLatency: the time from a message to its answer on an idle runtime, against a plain
// restore of the same block, in turns; and with senders that never rest, against the run of
// a block. Every message replaces one chain of a table of 100 reachable chains.
//
// ratio is answer/plain, medians, where plain is from the tool's start to its exit. An nft
// tool exits late, when the kernel has got rid of what was replaced; echo-ratio is against
// the moment at which the tool says that it is past COMMIT, as the runtime takes it, and
// free-p99 is the longest but one time from there to the exit.
//
// of-limit is the busy senders' p99 over two median runs and the spacing. A message has hardly
// more to wait for than the spacing and one run, so its p99 is that of the runs: of-slow-limit
// is over two p99 runs and the spacing. An nft run is slow when the kernel is not rid of what
// the one before freed, though the spacing is over; see free-p99.
func BenchmarkLatency(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			l := newLatency(b, backend)
			for b.Loop() {
				i := l.idle(b)
				answer, plain := quantile(i.answers, 0.5), quantile(i.plains, 0.5)
				b.ReportMetric(ms(answer), "answer-ms")
				b.ReportMetric(ms(plain), "plain-ms")
				b.ReportMetric(float64(answer)/float64(plain), "ratio")
				b.ReportMetric(float64(answer)/float64(quantile(i.echoes, 0.5)), "echo-ratio")
				b.ReportMetric(ms(quantile(i.frees, 0.99)), "free-p99-ms")
				answers, runs := l.busy(b)
				p99, run, slow := quantile(answers, 0.99), quantile(runs, 0.5), quantile(runs, 0.99)
				b.ReportMetric(ms(p99), "p99-ms")
				b.ReportMetric(ms(run), "run-ms")
				b.ReportMetric(ms(slow), "run-p99-ms")
				b.ReportMetric(float64(p99)/float64(2*run+l.spacing), "of-limit")
				b.ReportMetric(float64(p99)/float64(2*slow+l.spacing), "of-slow-limit")
			}
			b.ReportMetric(0, "ns/op") // of no meaning: a round is hundreds of messages
		})
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// latency is a runtime on a kernel, and a plain tool beside it.
type latency struct {
	rt      *actors.Runtime
	spacing time.Duration
	plain   *plainTool
	version int

	mu    sync.Mutex // guards the rest
	block []byte     // that the runtime sent last
	runs  []time.Duration
}

// timedKernel tells how long its restores take.
type timedKernel struct {
	*dataplane.Kernel
	l *latency
}

func (k timedKernel) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	begin := time.Now()
	err := k.Kernel.Restore(ctx, id, input)
	took := time.Since(begin)
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	k.l.block, k.l.runs = input, append(k.l.runs, took)
	return err
}

func newLatency(b *testing.B, backend dataplane.Backend) *latency {
	b.Helper()
	path := testns.New(b)
	k, err := dataplane.NewKernel(b.Context(), testns.Options(b, path, backend))
	if err != nil {
		b.Skipf("no kernel: %v", err)
	}
	b.Cleanup(func() {
		if err := k.Close(); err != nil {
			b.Errorf("close: %v", err)
		}
	})
	l := &latency{plain: newPlainTool(b, path, backend)}
	l.spacing = actors.LegacySpacing
	if backend == dataplane.NFT {
		l.spacing = actors.NFTPace
	}
	l.rt = newRuntime(b, timedKernel{k, l}, actors.Options{Refresh: -1}.For(k.Info().Backend))
	var msgs []transaction.Message
	for i := range latencyChains {
		hook := transaction.InsertRule("INPUT", rule("-j "+chainName(i)), transaction.InsertBottom)
		msgs = append(msgs, transaction.Message{Body: replacement(i, 0)}, transaction.Message{Body: hook})
	}
	answers, err := l.rt.Send(b.Context(), filter4, msgs...)
	for _, a := range answers {
		if a.Err != nil {
			b.Error(a.Err)
		}
	}
	if err != nil {
		b.Error(err)
	}
	return l
}

func chainName(i int) string { return fmt.Sprintf("tw-%d", i) }

// replacement is a chain's content in a version that was not there before.
func replacement(chain, version int) transaction.Body {
	c := rules.Chain{Name: chainName(chain)}
	for i := range latencyRules {
		text := fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j ACCEPT", i, version/250, version%250)
		c.Rules = append(c.Rules, rule(text))
	}
	return transaction.RewriteChains{Chains: []rules.Chain{c}}
}

// ask sends one message and returns how long its answer took.
func (l *latency) ask(b *testing.B, chain, version int) time.Duration {
	body := replacement(chain, version)
	begin := time.Now()
	a, err := l.rt.Ask(b.Context(), filter4, body)
	took := time.Since(begin)
	if err != nil || a.Result != actors.Applied {
		b.Error(err, a)
	}
	return took
}

// idleTimes are what messages to an idle runtime took, and plain restores until exit, until
// the echo, and from the echo to the exit.
type idleTimes struct{ answers, plains, echoes, frees []time.Duration }

// idle sends messages and runs plain restores, one after the other. All replace a chain, and
// come when the kernel has got rid of what the one before freed.
func (l *latency) idle(b *testing.B) (t idleTimes) {
	for i := range latencyPairs {
		l.version++
		quiet()
		t.answers = append(t.answers, l.ask(b, i%latencyChains, l.version))
		l.mu.Lock()
		block := l.block
		l.mu.Unlock()
		quiet()
		exit, _ := l.plain.restore(b, block, "--noflush")
		t.plains = append(t.plains, exit)
		quiet()
		exit, said := l.plain.restore(b, append(slices.Clip(block), "# past\n"...), "--noflush", "--verbose")
		t.echoes, t.frees = append(t.echoes, said), append(t.frees, exit-said)
	}
	return t
}

// quiet waits until nothing is under way: neither a tool that is ending, nor the spacing, nor
// what the kernel frees late. It is of no fixed length, so that no tick is met each time.
func quiet() { <-time.After(2*actors.NFTPace + rand.N(10*time.Millisecond)) }

// busy returns what messages took whose senders send the next one as soon as they have an
// answer, and the runs of blocks meanwhile.
func (l *latency) busy(b *testing.B) (answers, runs []time.Duration) {
	l.mu.Lock()
	l.runs = nil
	l.mu.Unlock()
	all := make([][]time.Duration, busySenders)
	first := l.version + 1
	l.version += busyEach
	var wg sync.WaitGroup
	for sender := range busySenders {
		wg.Go(func() {
			for i := range busyEach {
				all[sender] = append(all[sender], l.ask(b, sender, first+i))
			}
		})
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(all...), l.runs
}

func quantile(ds []time.Duration, q float64) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[int(q*float64(len(ds)-1))]
}

// plainTool runs a restore tool from a thread that is in a namespace, so that nothing but the
// tool is measured.
type plainTool struct {
	path string
	env  []string
	jobs chan func()
}

func newPlainTool(b *testing.B, ns string, backend dataplane.Backend) *plainTool {
	b.Helper()
	path := ""
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if found, err := exec.LookPath(dir + "iptables-" + string(backend) + "-restore"); err == nil && path == "" {
			path = found
		}
	}
	lock := "XTABLES_LOCKFILE=" + filepath.Join(b.TempDir(), "xtables.lock")
	p := &plainTool{path: path, env: append(os.Environ(), lock), jobs: make(chan func())}
	entered := make(chan error)
	go p.work(ns, entered)
	if err := <-entered; err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { close(p.jobs) })
	return p
}

// work does the jobs. Its thread ends with it, for it is not as others are.
func (p *plainTool) work(ns string, entered chan<- error) {
	runtime.LockOSThread()
	f, err := os.Open(ns)
	if err == nil {
		err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		f.Close()
	}
	entered <- err
	for job := range p.jobs {
		job()
	}
}

// restore returns how long the tool took for a block, from its start to its exit and to the
// last that it said.
func (p *plainTool) restore(b *testing.B, block []byte, args ...string) (exit, said time.Duration) {
	done := make(chan struct{})
	p.jobs <- func() {
		defer close(done)
		cmd := exec.Command(p.path, args...)
		out := &lastWord{begin: time.Now()}
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.env, bytes.NewReader(block), out, out
		if err := cmd.Run(); err != nil {
			b.Errorf("plain restore: %v\n%s", err, out.text)
		}
		exit, said = time.Since(out.begin), out.at
	}
	<-done
	return exit, said
}

// lastWord notes when something was written last.
type lastWord struct {
	begin time.Time
	at    time.Duration
	text  []byte
}

func (w *lastWord) Write(p []byte) (int, error) {
	w.at, w.text = time.Since(w.begin), append(w.text, p...)
	return len(p), nil
}
