// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tableward/tableward/dataplane"
)

// largeBlock has so many lines that nobody listens while it is written.
func largeBlock(n int) string {
	lines := []string{"-N tw-a", "-F tw-a"}
	for i := range 400 {
		lines = append(lines, fmt.Sprintf("-A tw-a -p tcp --dport %d -j ACCEPT", n+i))
	}
	return strings.Join(lines, "; ")
}

// A large block, while which nobody listens, is known as ours by the generation, be it taken
// or refused; and what somebody else does meanwhile is not.
func TestPulseLargeBlock(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		deafened, strange := 0, false
		dataplane.SetDeafened(k.Kernel, func() {
			if deafened++; strange {
				k.foreign(k.lock, fmt.Sprintf("iptables -t nat -N theirs-%d", deafened))
			}
		})
		pulse := k.pulse("filter")
		w := k.watch()
		for i, c := range []struct {
			name, block      string
			refused, strange bool
		}{
			{"made", largeBlock(1), false, false},
			{"once more", strings.TrimPrefix(largeBlock(2), "-N tw-a; "), false, false},
			{"edited", "-D tw-a 1; -I tw-a 200 -j RETURN" + strings.Repeat("; -I tw-a 1 -j RETURN", 300), false, false},
			{"refused", strings.TrimPrefix(largeBlock(3), "-N tw-a; ") + "; -A tw-a -j bogus", true, false},
			{"with somebody else's", strings.TrimPrefix(largeBlock(4), "-N tw-a; "), false, true},
			{"refused with somebody else's", strings.TrimPrefix(largeBlock(5), "-N tw-a; ") + "; -A tw-a -j bogus", true, true},
			{"after all", strings.TrimPrefix(largeBlock(6), "-N tw-a; "), false, false},
		} {
			strange = c.strange
			if err := k.restore("filter", c.block); (err != nil) != c.refused {
				t.Fatalf("%s: %v", c.name, err)
			}
			if k.b != dataplane.NFT {
				continue
			}
			if deafened != i+1 {
				t.Errorf("%s: somebody has listened", c.name)
			}
			now := k.pulse("filter")
			if changed := now != pulse; changed != c.strange {
				t.Errorf("%s: the pulse has changed: %v", c.name, changed)
			}
			if c.strange {
				w.next()
			}
			if len(w.changes) > 0 {
				t.Errorf("%s: told of %+v", c.name, w.next())
			}
			pulse = now
		}
		// Somebody listens again.
		out, err := k.command(k.lock, "iptables", "-N", "theirs").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if c := w.next(); k.b == dataplane.NFT && c.PID == 0 {
			t.Errorf("told of %+v, want the process", c)
		}
	})
}

// Tables that are written at the same time are not taken for somebody else's writes as long as
// they are written in blocks that do not outlast the large one; and nothing is hidden by them.
func TestPulseLargeBlocks(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		tables := []string{"filter", "nat", "mangle"}
		for _, table := range tables {
			k.pulse(table)
		}
		var wg sync.WaitGroup
		for _, table := range tables {
			wg.Go(func() {
				for n := range 5 {
					if err := k.restore(table, ":tw-a - [0:0]; "+strings.TrimPrefix(largeBlock(n), "-N tw-a; ")); err != nil {
						t.Errorf("%s: %v", table, err)
					}
				}
			})
		}
		wg.Wait()
		before := k.pulse("filter")
		k.foreign(k.lock, "iptables -t nat -N theirs")
		if k.b == dataplane.NFT && k.pulse("filter") == before {
			t.Error("a stranger's write is not seen")
		}
		again := k.pulse("filter")
		if err := k.restore("filter", ":tw-a - [0:0]; "+strings.TrimPrefix(largeBlock(9), "-N tw-a; ")); err != nil {
			t.Fatal(err)
		}
		if n := k.pulse("filter"); n != again {
			t.Errorf("%d changes by our own block", n-again)
		}
	})
}

func TestCommitsSurely(t *testing.T) {
	for lines, want := range map[string]bool{
		"":                                      false,
		":a - [0:0]":                            false,
		"-F a":                                  false,
		"-A a -j DROP":                          true,
		":a - [0:0]; -A a -j DROP":              true,
		"-D a 1; -I a 1 -j DROP":                true,
		"-I a 1 -j DROP; -A a -j DROP":          true,
		"-A a -j DROP; -F a":                    false,
		"-I a -j DROP; -A b -j DROP; -D a 1":    false,
		"-A a -j DROP; :b - [0:0]":              false,
		"-A a -j DROP; -X b":                    false,
		"-A a -j DROP; COMMIT; *filter; -F a":   false,
		"-A a -j DROP; COMMIT; *nat; -A a":      false,
		"-R a 1 -j DROP":                        false,
		"-P FORWARD DROP":                       false,
		"-A a -m comment --comment \"-F\" -j X": true,
	} {
		input := "*filter\n"
		for line := range strings.SplitSeq(lines, "; ") {
			input += line + "\n"
		}
		if got := dataplane.CommitsSurely([]byte(input + "COMMIT\n")); got != want {
			t.Errorf("%q: %v", lines, got)
		}
	}
}
