// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// dispatched fills a table with n chains that are all reached.
func dispatched(b *testing.B, s *Sim, n int) {
	b.Helper()
	var in strings.Builder
	in.WriteString("*filter\n:tw-d - [0:0]\n")
	for i := range n {
		fmt.Fprintf(&in, ":tw-%d - [0:0]\n", i)
	}
	for i := range n {
		fmt.Fprintf(&in, "-A tw-d -j tw-%d\n", i)
	}
	in.WriteString("-A FORWARD -j tw-d\nCOMMIT\n")
	mustLoad(b, s, in.String())
}

// A block costs what it holds: the figures for 100 and 10,000 chains should be alike.
func BenchmarkSimSmallBlock(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := NewSim(NFT)
			dispatched(b, s, n)
			block := []byte("*filter\n:tw-5 - [0:0]\n:tw-6 - [0:0]\n:tw-8 - [0:0]\n-A tw-5 -s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT\n" +
				"-A tw-6 -j tw-7\n-A tw-8 -j DROP\nCOMMIT\n")
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Restore(context.Background(), filter4, block); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Rules that were never seen before, in blocks of 1,000 chains.
func BenchmarkSimRewrite(b *testing.B) {
	for _, backend := range []Backend{NFT, Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			s := NewSim(backend)
			dispatched(b, s, 1000)
			var blocks [][]byte
			for n := range 20 {
				var in strings.Builder
				in.WriteString("*filter\n")
				for i := range 1000 {
					fmt.Fprintf(&in, ":tw-%d - [0:0]\n", i)
				}
				for i := range 1000 {
					fmt.Fprintf(&in, "-A tw-%d -s 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j ACCEPT\n", i, n, i/250, i%250)
				}
				in.WriteString("COMMIT\n")
				blocks = append(blocks, []byte(in.String()))
			}
			i := 0
			for b.Loop() {
				if i++; i%len(blocks) == 0 {
					clear(s.table(filter4).cache)
				}
				if err := s.Restore(context.Background(), filter4, blocks[i%len(blocks)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "rewrites/s")
		})
	}
}
