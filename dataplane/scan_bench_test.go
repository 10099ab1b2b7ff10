// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
)

// bigTable is restore input for so many chains of ten rules, in blocks of one hundred, all
// reached from FORWARD by way of one chain that is filled last.
func bigTable(chains int) [][]byte {
	var blocks [][]byte
	dispatch := []string{"-A FORWARD -j tw-dispatch"}
	numbers := make([]int, chains)
	for i := range numbers {
		numbers[i] = i
		dispatch = append(dispatch, fmt.Sprintf("-A tw-dispatch -s 10.%d.%d.0/24 -j tw-%d", i/250, i%250, i))
	}
	for part := range slices.Chunk(numbers, 100) {
		var heads, lines []string
		for _, i := range part {
			chain := fmt.Sprintf("tw-%d", i)
			heads = append(heads, ":"+chain+" - [0:0]")
			lines = append(lines, "-A "+chain+" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
			for j := range 7 {
				lines = append(lines, fmt.Sprintf("-A %s -s 10.%d.%d.%d/32 -p tcp -m tcp --dport %d -m comment --comment \"rule %d\" -j ACCEPT", chain, i/250, i%250, j, 1000+j, j))
			}
			lines = append(lines, "-A "+chain+" -p tcp -m multiport --dports 80,443 -j ACCEPT", "-A "+chain+" -m comment --comment last -j RETURN")
		}
		slices.Sort(heads)
		blocks = append(blocks, filterBlock(append(heads, lines...)...))
	}
	return append(blocks, filterBlock(append([]string{":tw-dispatch - [0:0]"}, dispatch...)...))
}

// filterBlock is a block of the filter table.
func filterBlock(lines ...string) []byte {
	return []byte("*filter\n" + strings.Join(lines, "\n") + "\nCOMMIT\n")
}

// Scan of tables of ten rules in each chain, beside Read, which runs iptables-save.
func BenchmarkScan(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, chains := range []int{100, 1000, 5000} {
			b.Run(fmt.Sprintf("%s/%d", backend, chains), func(b *testing.B) { benchmarkScan(b, backend, chains) })
		}
	}
}

func benchmarkScan(b *testing.B, backend dataplane.Backend, chains int) {
	k, err := dataplane.NewKernel(background, testns.Options(b, testns.New(b), backend))
	if err != nil {
		b.Skipf("no kernel: %v", err)
	}
	defer closeScanning(b, k)
	blocks := bigTable(chains)
	if backend == dataplane.Legacy {
		all := strings.Join(strings.Split(string(slices.Concat(blocks...)), "COMMIT\n*filter\n"), "")
		blocks = [][]byte{[]byte(all)}
	}
	for _, block := range blocks {
		if err := k.Restore(background, filter, block); err != nil {
			b.Fatal(err)
		}
	}
	run := func(name string, f func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("all", func() error { _, err := k.Scan(background, filter); return err })
	run("one", func() error { _, err := k.Scan(background, filter, "tw-50"); return err })
	if backend == dataplane.NFT {
		run("generation", func() error { _, err := dataplane.ScanGeneration(k); return err })
	}
	run("save", func() error { _, err := k.Read(background, filter); return err })
}

func closeScanning(tb testing.TB, k *dataplane.Kernel) {
	tb.Helper()
	dataplane.CloseScanner(k)
	if err := k.Close(); err != nil {
		tb.Error(err)
	}
}
