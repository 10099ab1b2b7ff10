// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// changed is a block that gives a chain the ten rules of the first message or the second.
func changed(n int) []byte {
	c := messages(2, never, "").Chains[n%2]
	b := rules.Block{Table: "filter", Lines: []rules.Line{{Command: rules.Declare, Chain: "tw-0"}}}
	for _, r := range c.Rules {
		b.Lines = append(b.Lines, rules.Line{Command: rules.Append, Chain: "tw-0", Rule: r})
	}
	return rules.AppendRestore(nil, b)
}

// One chain of ten rules changed beside so many others: through a tool that is kept open, by a
// Kernel that starts one for each block, and by the plain tool from its start to its end.
// Five times each in turn, on one table; the ratios are of the medians.
func BenchmarkKernelOpenTool(b *testing.B) {
	const turns = 5
	for _, backend := range backends {
		for _, chains := range []int{100, 1000, 5000} {
			for _, gap := range []time.Duration{60 * time.Millisecond, 0} {
				b.Run(fmt.Sprintf("%s/%d/%v", backend, chains, gap), func(b *testing.B) {
					ns := testns.New(b)
					kernel := func() *dataplane.Kernel {
						k, err := dataplane.NewKernel(background, testns.Options(b, ns, backend))
						if err != nil {
							b.Skipf("no kernel: %v", err)
						}
						return k
					}
					open, each := kernel(), kernel()
					defer closeKernel(b, open)
					defer closeKernel(b, each)
					each.NeverLive()
					if err := open.Restore(background, filter, plainLoad(messages(chains, never, ""))); err != nil {
						b.Fatal(err)
					}
					ways := []func([]byte) error{
						func(block []byte) error { return open.Restore(background, filter, block) },
						func(block []byte) error { return each.Restore(background, filter, block) },
						plainTool(b, each, backend),
					}
					took := make([][]time.Duration, len(ways))
					n := 0
					for b.Loop() {
						for i, way := range ways {
							for range turns {
								n++
								block := changed(n)
								time.Sleep(gap)
								begin := time.Now()
								if err := way(block); err != nil {
									b.Fatal(err)
								}
								took[i] = append(took[i], time.Since(begin))
							}
						}
					}
					median := func(i int) float64 {
						slices.Sort(took[i])
						return took[i][len(took[i])/2].Seconds() * 1000
					}
					b.ReportMetric(median(0), "open-ms")
					b.ReportMetric(median(2), "exec-ms")
					b.ReportMetric(median(0)/median(2), "open/exec")
					b.ReportMetric(median(0)/median(1), "open/each")
				})
			}
		}
	}
}

// plainTool returns what runs the tool for a block, and waits for its end.
func plainTool(b *testing.B, k *dataplane.Kernel, backend dataplane.Backend) func([]byte) error {
	lock := "XTABLES_LOCKFILE=" + filepath.Join(b.TempDir(), "lock")
	path, err := exec.LookPath("iptables-" + string(backend) + "-restore")
	if err != nil {
		b.Skip(err)
	}
	return func(block []byte) error {
		cmd := exec.Command(path, "--noflush", "-w", "5")
		cmd.Env = append(os.Environ(), lock)
		cmd.Stdin = bytes.NewReader(block)
		if err := k.Start(cmd); err != nil {
			return err
		}
		return cmd.Wait()
	}
}
