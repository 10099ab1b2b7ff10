// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// Every change by somebody else changes the pulse, and then it stays as it is.
func TestPulseForeign(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		k.load("filter", ":tw-a - [0:0]; -A tw-a -j ACCEPT")
		other := map[rules.IPVersion]string{rules.IPv4: "ip6tables", rules.IPv6: "iptables"}[k.v] + "-" + string(k.b)
		unlocked := filepath.Join(t.TempDir(), "lock")
		type step struct{ lock, command string }
		steps := []step{ // with the lock, on legacy
			{k.lock, "iptables -A tw-a -p tcp"}, {k.lock, "iptables -R tw-a 1 -j DROP"}, {k.lock, "iptables -D tw-a 1"},
			{k.lock, "iptables -N theirs"}, {k.lock, "iptables -P INPUT DROP"}, {k.lock, "iptables -t nat -N theirs"},
			{k.lock, other + " -A INPUT -p tcp"},
		}
		if k.b == dataplane.Legacy {
			steps = append(steps, step{unlocked, "iptables -A tw-a -p tcp"}, step{unlocked, "iptables -D tw-a 1"},
				step{unlocked, "iptables -I INPUT -j tw-a"}, step{unlocked, "iptables -X theirs"}, step{unlocked, "iptables -F"})
		} else {
			steps = append(steps, step{"", "nft add table inet theirs"}, step{"", "nft flush chain ip" + map[rules.IPVersion]string{rules.IPv6: "6"}[k.v] + " filter tw-a"},
				step{"", "nft delete table inet theirs"}, step{"", "nft flush ruleset"})
		}
		for i, s := range steps {
			before := k.pulse("filter")
			k.foreign(s.lock, s.command)
			if i%2 == 1 { // an own block comes first: it may not take the change for its own
				k.load("filter", fmt.Sprintf(":tw-own - [0:0]; -A tw-own -p tcp -m tcp --dport %d", i))
			}
			after := k.pulse("filter")
			if after <= before {
				t.Errorf("%s: not seen", s.command)
			}
			if again := k.pulse("filter"); again != after {
				t.Errorf("%s: seen twice", s.command)
			}
		}
	})
}

// What only lists, and what is not a table's, changes nothing on nft.
func TestPulseForeignReads(t *testing.T) {
	k := newPulsing(t, dataplane.NFT, rules.IPv4)
	k.load("filter", ":tw-a - [0:0]; -A tw-a -j ACCEPT")
	before := k.pulse("filter")
	for _, command := range []string{"iptables -S", "iptables-nft-save", "iptables -Z", "nft list ruleset", "iptables-legacy -t mangle -N theirs"} {
		k.foreign(k.lock, command)
		if n := k.pulse("filter"); n != before {
			t.Errorf("%s: changed", command)
			before = n
		}
	}
}

// While a Kernel writes all the time, no foreign change goes unseen; on nft each is counted
// once, and nothing else is.
func TestPulseAmongWrites(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		tables := []string{"filter", "nat"}
		k.load("mangle", ":tw-m - [0:0]")
		begin := k.pulse("mangle")
		var seen, wrote int
		work := func(f func(i int)) {
			var own sync.WaitGroup
			for n, table := range tables {
				own.Go(func() {
					for i := range 50 {
						if err := k.restore(table, fmt.Sprintf(":tw-%d - [0:0]; -A tw-%d -p tcp -m tcp --dport %d", i%(9+n), i%(9+n), i+1)); err != nil {
							t.Errorf("%s: %v", table, err)
						}
						if i%5 == 0 { // commits nothing
							k.load(table, ":tw-e - [0:0]; -A tw-e -j RETURN; -F tw-e")
						}
					}
				})
			}
			for i := range 20 {
				f(i)
				wrote++
			}
			own.Wait()
		}
		work(func(i int) { k.foreign(k.lock, fmt.Sprintf("iptables -t mangle -A tw-m -p tcp --dport %d", i+1)) })
		if n := k.pulse("mangle") - begin; n == 0 || k.b == dataplane.NFT && n != uint64(wrote) {
			t.Errorf("%d changes, somebody else wrote %d times", n, wrote)
		}
		work(func(i int) {
			before := k.pulse("mangle")
			k.foreign(k.lock, fmt.Sprintf("iptables -t mangle -R tw-m %d -p udp", i+1))
			if k.pulse("mangle") > before {
				seen++
			}
		})
		if seen != wrote/2 {
			t.Errorf("%d of %d changes seen", seen, wrote/2)
		}
	})
}

// The lock file may be removed, and made again by somebody else; without a folder for it there
// is only what the kernel says.
func TestPulseLockFileReplaced(t *testing.T) {
	k := newPulsing(t, dataplane.Legacy, rules.IPv4)
	k.load("filter", ":tw-a - [0:0]; -A tw-a -j ACCEPT")
	before := k.pulse("filter")
	for _, step := range []func(){
		func() {
			if err := os.Remove(k.lock); err != nil {
				t.Fatal(err)
			}
		},
		func() { k.foreign(k.lock, "iptables -R tw-a 1 -j DROP") }, // makes it again
		func() { k.foreign(k.lock, "iptables -R tw-a 1 -j RETURN") },
	} {
		step()
		after := k.pulse("filter")
		if after == before {
			t.Errorf("not seen")
		}
		before = after
	}
	k.load("filter", "-A tw-a -j DROP")
	if k.pulse("filter") != before {
		t.Error("an own block changes the pulse when the lock file is another one")
	}
	if err := os.RemoveAll(filepath.Dir(k.lock)); err != nil {
		t.Fatal(err)
	}
	before = k.pulse("filter")
	k.foreign(filepath.Join(t.TempDir(), "lock"), "iptables -A tw-a -p tcp")
	if after := k.pulse("filter"); after == before || k.pulse("filter") != after {
		t.Error("without a lock file: not seen, or seen twice")
	}
}
