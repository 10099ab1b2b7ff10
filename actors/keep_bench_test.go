// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// BenchmarkRestart: a table of 5,000 chains with 10 rules each that an earlier run has left, from
// a Runtime that has touched nothing to the answers of the first messages, which ask for all of it
// again; beside each run one of iptables-save. The ratio is of the medians. What NewKernel takes,
// to find out about the tools, is told by itself.
func BenchmarkRestart(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b.Run(string(backend), func(b *testing.B) { benchRestart(b, backend) })
	}
}

func benchRestart(b *testing.B, backend dataplane.Backend) {
	ns := testns.New(b)
	l := &lives{
		host: &host{t: b, backend: backend, id: filter4, ns: ns},
		opts: testns.Options(b, ns, backend), dir: b.TempDir(),
	}
	l.lock = l.opts.LockFile
	wishes := transaction.RewriteChains{}
	for i := range 5000 {
		c := rules.Chain{Name: fmt.Sprintf("tw-%04d", i)}
		for k := range 10 {
			c.Rules = append(c.Rules, rule(fmt.Sprintf("-s 10.%d.%d.%d/32 -p tcp -m tcp --dport 443 -j ACCEPT", k, i/250, i%250)))
		}
		wishes.Chains = append(wishes.Chains, c)
	}
	hook := transaction.InsertRule("FORWARD", rule("-j tw-0000"), transaction.InsertTop)
	l.begin(actors.Options{})
	l.ask(wishes)
	l.ask(hook)
	l.end()
	var restarts, saves, kernels []time.Duration
	var cpu, saveCPU time.Duration
	for b.Loop() {
		start := time.Now()
		l.begin(actors.Options{})
		kernels = append(kernels, time.Since(start))
		start = time.Now()
		used := cpuOf(b, syscall.RUSAGE_SELF)
		if err := l.rt.Owner("", 0).Tell(l.id, wishes); err != nil {
			b.Fatal(err)
		}
		l.ask(hook)
		restarts = append(restarts, time.Since(start))
		cpu += cpuOf(b, syscall.RUSAGE_SELF) - used
		if runs := l.k.Stats().Runs; runs > 0 {
			b.Errorf("%d runs of tools", runs)
		}
		l.end()
		start = time.Now()
		used = cpuOf(b, syscall.RUSAGE_CHILDREN)
		l.tool("", "-save", "-t", "filter")
		saveCPU += cpuOf(b, syscall.RUSAGE_CHILDREN) - used
		saves = append(saves, time.Since(start))
	}
	slices.Sort(restarts)
	slices.Sort(saves)
	slices.Sort(kernels)
	b.ReportMetric(float64(kernels[len(kernels)/2].Milliseconds()), "ms/NewKernel")
	restart, save := restarts[len(restarts)/2], saves[len(saves)/2]
	b.ReportMetric(float64(restart.Milliseconds()), "ms/restart")
	b.ReportMetric(float64(save.Milliseconds()), "ms/save")
	b.ReportMetric(float64(restart)/float64(save), "ratio")
	b.ReportMetric(float64(cpu)/float64(saveCPU), "cpu-ratio")
	b.ReportMetric(float64(cpu.Milliseconds())/float64(len(restarts)), "cpu-ms/restart")
}

// cpuOf is the processor time that this process, or the tools that it ran, have used: on a busy
// machine it says more than the clock.
func cpuOf(b *testing.B, who int) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
