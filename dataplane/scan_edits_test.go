// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// edited is what is edited: rules whose matches have a state among them.
const edited = ":tw-a - [0:0]; :tw-b - [0:0]; :tw-c - [0:0]; :INPUT ACCEPT [0:0]; -F INPUT; -A INPUT -j tw-a; " +
	"-A tw-a -m limit --limit 1/hour -m quota --quota 5000; -A tw-a -m statistic --mode nth --every 3 --packet 0; " +
	"-A tw-a -s @A -j DROP; -A tw-a -m set --match-set tw-s src -j tw-b; " +
	"-A tw-a -m recent --name tw-r --set; -A tw-a -m connlimit --connlimit-above 9 -j tw-c; " +
	"-A tw-a -m hashlimit --hashlimit-name tw-h --hashlimit-above 9/hour --hashlimit-mode srcip -j tw-c; " +
	"-A tw-b -s @A -j RETURN; -A tw-b -d @B -j DROP; -A tw-b -s @A -j RETURN"

// Whatever a stranger does to a chain is seen, and nothing else is.
func TestScanSeesEdits(t *testing.T) {
	cases := []struct {
		name, edit string
		changed    string // chains
	}{
		{"insert", "-I tw-b 2 -p tcp", "tw-b"},
		{"append", "-A tw-b -p tcp", "tw-b"},
		{"delete", "-D tw-b 1", "tw-b"},
		{"delete the last", "-D tw-b 3", "tw-b"},
		{"replace", "-R tw-b 2 -d @B -j ACCEPT", "tw-b"},
		{"replace by what is nearly the same", "-R tw-a 3 -s @A -j ACCEPT", "tw-a"},
		{"move", "-D tw-b 2; -A tw-b -d @B -j DROP", "tw-b"},
		{"double", "-A tw-b -d @B -j DROP", "tw-b"},
		{"flush", "-F tw-b", "tw-b"},
		{"flush an empty chain", "-F tw-c", ""},
		{"policy", ":INPUT DROP [0:0]", "INPUT"},
		{"policy and a rule", "-P FORWARD DROP; -A FORWARD -j ACCEPT", "FORWARD"},
		{"jump elsewhere", "-R INPUT 1 -j tw-b", "INPUT"},
		{"go where it jumped", "-R INPUT 1 -g tw-a", "INPUT"},
		{"another set", "-R tw-a 4 -m set --match-set tw-other src -j tw-b", "tw-a"},
		{"of two rules the same", "-R tw-b 1 -p tcp; -R tw-b 3 -p tcp", "tw-b"},
		{"a new chain", ":tw-new - [0:0]", "tw-new"},
		{"a chain that goes", "-F tw-a; -F tw-b; -X tw-b", "tw-a tw-b"},
		{"a rule from one chain to another", "-D tw-b 2; -A tw-c -d @B -j DROP", "tw-b tw-c"},
		{"counters", "-Z", ""},
		{"counters of a rule", "-R tw-b 2 -d @B -j DROP -c 5 500", ""},
		{"the same rules again", edited, ""},
		{"the same rule in place of itself", "-R tw-a 4 -m set --match-set tw-s src -j tw-b", ""},
	}
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		makeSets(t, k.ns, k.v, "tw-s", "tw-other")
		k.load("filter", edited)
		before := k.scan("filter")
		for _, c := range cases {
			k.load("filter", c.edit)
			after := k.scan("filter")
			if got := strings.Join(differ(before, after), " "); got != c.changed {
				t.Errorf("%s: %q differs, want %q", c.name, got, c.changed)
			}
			if b == dataplane.NFT && after.Generation < before.Generation {
				t.Errorf("%s: generation %d after %d", c.name, after.Generation, before.Generation)
			}
			k.load("filter", "-F; :FORWARD ACCEPT [0:0]; "+edited)
			k.load("filter", ":tw-new - [0:0]; -X tw-new")
			if got := differ(before, k.scan("filter")); len(got) > 0 {
				t.Fatalf("%s: %q differs after it was undone", c.name, got)
			}
		}
	})
}

// differ returns the chains in which two snapshots differ, sorted.
func differ(a, b rules.Snapshot) []string {
	var out []string
	for name, c := range a.Chains {
		d, found := b.Chains[name]
		if !found || d.Digest != c.Digest || d.Policy != c.Policy || !slices.Equal(d.Jumps, c.Jumps) {
			out = append(out, name)
		}
	}
	for name := range b.Chains {
		if _, found := a.Chains[name]; !found {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Packets change nothing of what is compared, nor does what happens to sets.
func TestScanIgnoresTraffic(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		makeSets(t, k.ns, k.v, "tw-s", "tw-other")
		k.load("filter", edited)
		before := k.scan("filter")
		k.run("ip", "link", "set", "lo", "up")
		if err := dataplane.Within(k.Kernel, func() error { return sendPackets(k.v, 20) }); err != nil {
			t.Fatal(err)
		}
		save := map[rules.IPVersion]string{4: "iptables-", 6: "ip6tables-"}[k.v] + string(b) + "-save"
		if out := k.run(save, "-c", "-t", "filter"); !counted.MatchString(out) {
			t.Fatalf("no packet was counted:\n%s", out)
		}
		for _, args := range [][]string{
			{"ipset", "add", "tw-s", map[rules.IPVersion]string{4: "192.0.2.1", 6: "2001:db8::1"}[k.v]},
			{"ipset", "create", "tw-new", "hash:ip"},
			{"ipset", "swap", "tw-s", "tw-other"},
		} {
			k.run(args...)
			if got := differ(before, k.scan("filter")); len(got) > 0 {
				t.Errorf("%v: %q differs", args, got)
			}
		}
	})
}

var counted = regexp.MustCompile(`(?m)^\[[1-9]\d*:\d+\] -A tw-a `)

// sendPackets sends packets on the loopback device, to a port that nobody listens at.
func sendPackets(v rules.IPVersion, n int) error {
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}})
	if v == rules.IPv6 {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: [16]byte{15: 1}}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for range n {
		if err := unix.Sendto(fd, []byte("x"), 0, to); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// writerStates are those between which a writer changes: as large as each other, and different in
// every chain. The policy comes behind other changes.
func writerStates(filler int) []string {
	many := strings.Repeat("; -A tw-many -p tcp -j DROP", filler)
	return []string{
		":tw-a - [0:0]; :tw-b - [0:0]; :tw-many - [0:0]; -F INPUT; -F FORWARD; -A INPUT -p tcp -j tw-a; -A INPUT -p udp -j tw-a; " +
			"-A FORWARD -j tw-b; -A tw-a -s @A -j DROP; -A tw-b -s @A -j DROP" + many + "; -P INPUT ACCEPT",
		":tw-a - [0:0]; :tw-b - [0:0]; :tw-many - [0:0]; -F INPUT; -F FORWARD; -A INPUT -p tcp -j tw-b; -A FORWARD -j tw-a; " +
			"-A FORWARD -p udp -j tw-b; -A tw-a -s @B -j DROP; -A tw-b -s @B -j DROP" + many + "; -P INPUT DROP",
	}
}

// While somebody changes the table all the time, what is read is of one state.
func TestScanIsOneState(t *testing.T) {
	filler, enough := 50, 20
	if os.Getenv("TABLEWARD_SOAK") != "" {
		filler, enough = 500, 300
	}
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		var want []rules.Snapshot
		write := ""
		for _, s := range writerStates(filler) {
			k.load("filter", s)
			want = append(want, k.scan("filter"))
			write += block("filter", forFamily(k.v, s))
		}
		if got := differ(want[0], want[1]); !slices.Equal(got, []string{"FORWARD", "INPUT", "tw-a", "tw-b"}) {
			t.Fatalf("%q differ", got)
		}
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- k.writeUntil(stop, strings.Repeat(write, 10)) }()
		seen, busy := make([]int, 2), 0
		for slices.Min(seen) < enough && busy < 100*enough {
			got, err := k.Scan(background, k.id("filter"))
			var re *dataplane.RestoreError
			if errors.As(err, &re) && re.Class == dataplane.Busy {
				busy++
				continue
			}
			i := slices.IndexFunc(want, func(w rules.Snapshot) bool { return len(differ(w, got)) == 0 })
			if err != nil || i < 0 {
				t.Errorf("%v, a mix: %+v\nof %+v\nand %+v", err, got, want[0], want[1])
				break
			}
			seen[i]++
		}
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if slices.Min(seen) < enough && !t.Failed() {
			t.Errorf("the states were seen %v times, %d times none", seen, busy)
		}
	})
}

// writeUntil writes blocks of the filter table again and again.
func (k scanning) writeUntil(stop <-chan struct{}, blocks string) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := k.Restore(background, k.id("filter"), []byte(blocks)); err != nil {
			return err
		}
	}
}
