// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// pulsing is a Kernel in a namespace, and who else writes there.
type pulsing struct {
	*dataplane.Kernel
	t        testing.TB
	b        dataplane.Backend
	v        rules.IPVersion
	ns, lock string
}

func newPulsing(t testing.TB, b dataplane.Backend, v rules.IPVersion) pulsing {
	t.Helper()
	ns := testns.New(t)
	o := testns.Options(t, ns, b)
	k, err := dataplane.NewKernel(background, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // a test may have closed it
			t.Errorf("close: %v", err)
		}
	})
	return pulsing{k, t, b, v, ns, o.LockFile}
}

func eachPulsing(t *testing.T, f func(t *testing.T, k pulsing)) {
	t.Helper()
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		f(t, newPulsing(t, b, v))
	})
}

func (k pulsing) id(table string) rules.TableID { return rules.TableID{IPVersion: k.v, Name: table} }

func (k pulsing) pulse(table string) uint64 {
	k.t.Helper()
	n, err := k.Pulse(background, k.id(table))
	if err != nil || n == 0 {
		k.t.Fatalf("pulse %d: %v", n, err)
	}
	return n
}

// restore gives the Kernel lines, joined by "; ", for a table.
func (k pulsing) restore(table, lines string) error {
	return k.Restore(background, k.id(table), []byte("*"+table+"\n"+strings.ReplaceAll(lines, "; ", "\n")+"\nCOMMIT\n"))
}

func (k pulsing) load(table, lines string) {
	k.t.Helper()
	if err := k.restore(table, lines); err != nil {
		k.t.Fatalf("%s: %v", lines, err)
	}
}

// command is a command of somebody else in the namespace. "iptables" and "iptables-restore" at
// its beginning are those of the backend and the IP version.
func (k pulsing) command(lock string, args ...string) *exec.Cmd {
	for _, suffix := range []string{"", "-restore"} {
		if args[0] == "iptables"+suffix {
			family := map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[k.v]
			args = append([]string{family + "-" + string(k.b) + suffix}, args[1:]...)
			break
		}
	}
	cmd := exec.Command("nsenter", append([]string{"--net=" + k.ns}, args...)...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock)
	return cmd
}

// foreign runs a command of somebody else who uses this lock file.
func (k pulsing) foreign(lock, command string) {
	k.t.Helper()
	if out, err := k.command(lock, strings.Fields(command)...).CombinedOutput(); err != nil {
		k.t.Errorf("%s: %v: %s", command, err, out)
	}
}

// ownBlocks are blocks of all kinds, in an order in which they can be applied.
var ownBlocks = []string{
	"", ":INPUT - [0:0]", ":INPUT DROP [0:0]", ":INPUT DROP [0:0]", ":INPUT ACCEPT [0:0]", "-P FORWARD DROP",
	":tw-a - [0:0]", ":tw-a - [0:0]", "-F tw-a", "-Z tw-a", "-A tw-a -j ACCEPT", ":tw-a - [0:0]", "-F tw-a",
	"-A tw-a -j ACCEPT; -F tw-a", "-A tw-a -j ACCEPT; -D tw-a -j ACCEPT", "-I tw-a -j DROP", "-R tw-a 1 -j ACCEPT",
	"-I tw-a 1 -p tcp -m comment --comment x; -D tw-a 2", "-D tw-a 1", "-N tw-b", "-X tw-b", "-N tw-b; -X tw-b",
	":tw-b - [0:0]; -A tw-b -m conntrack --ctstate NEW -j tw-a; -A INPUT -j tw-b", "-S tw-b", "-Z",
	":tw-b - [0:0]; -A tw-b -j tw-a; -A tw-b -j RETURN", "-D INPUT -j tw-b; -F tw-b; -X tw-b",
	"-E tw-a tw-c", ":tw-d - [0:0]; -A tw-c -j tw-d; COMMIT; *filter; -A tw-d -j DROP",
	"-A tw-none -j ACCEPT", "-A tw-c -p tcp --bogus", "-A tw-c -j tw-none", ":tw-e - [0:0]; -X tw-d", "-A tw-c -j ACCEPT",
}

// What a Kernel does itself does not change a pulse: blocks of all kinds, refused ones too, by
// tools that are kept open and by others.
func TestPulseOwnBlocks(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		k.load("mangle", ":tw-m - [0:0]")
		filter, nat := k.pulse("filter"), k.pulse("nat")
		for _, lines := range ownBlocks {
			err := k.restore("filter", lines)
			if bad := strings.Contains(lines, "bogus") || strings.Contains(lines, "-none") || strings.Contains(lines, "-X tw-d"); bad != (err != nil) {
				t.Errorf("%s: %v", lines, err)
			}
			if n := k.pulse("filter"); n != filter {
				t.Errorf("%s: %d changes", lines, n-filter)
				filter = n
			}
		}
		if _, err := k.Read(background, k.id("filter")); err != nil {
			t.Fatal(err)
		}
		if f, n := k.pulse("filter"), k.pulse("nat"); f != filter || n != nat {
			t.Errorf("after all: filter %d, nat %d changes", f-filter, n-nat)
		}
	})
}

// Nor does it when it writes several tables at once.
func TestPulseOwnTables(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		tables := []string{"filter", "nat", "mangle", "raw"}
		before := map[string]uint64{}
		for _, table := range tables {
			before[table] = k.pulse(table)
		}
		var wg sync.WaitGroup
		for _, table := range tables {
			wg.Go(func() {
				for i := range 12 {
					lines := fmt.Sprintf(":tw-a - [0:0]; -A tw-a -p tcp -m tcp --dport %d", i+1)
					if i%4 == 3 {
						lines = ":tw-a - [0:0]"
					}
					if err := k.restore(table, lines); err != nil {
						t.Errorf("%s: %v", table, err)
					}
				}
			})
		}
		wg.Wait()
		for _, table := range tables {
			if n := k.pulse(table); n != before[table] {
				t.Errorf("%s: %d changes", table, n-before[table])
			}
		}
	})
}

// A tool that is given up may have applied its block: the pulse changes. One that is killed
// while it is idle has done nothing, and the next one is ours as well.
func TestPulseAfterKill(t *testing.T) {
	k := newPulsing(t, dataplane.NFT, rules.IPv4)
	id := k.id("filter")
	before := k.pulse("filter")
	for i := range 10 {
		k.load("filter", fmt.Sprintf(":tw-a - [0:0]; -A tw-a -p tcp -m tcp --dport %d", i+1))
		pid := k.LivePID(id)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for unix.Kill(pid, 0) == nil {
			runtime.Gosched()
		}
	}
	if n := k.pulse("filter"); n != before {
		t.Errorf("killed while idle: %d changes", n-before)
	}
	k.load("filter", "-F tw-a")
	if err := unix.Kill(k.LivePID(id), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	if re := restoreError(t, k.Restore(ctx, id, []byte("*filter\n-A tw-a -j DROP\nCOMMIT\n"))); re.Class != dataplane.Unknown {
		t.Errorf("%v", re)
	}
	if k.pulse("filter") == before {
		t.Error("an unknown outcome does not change the pulse")
	}
}

func TestPulseErrors(t *testing.T) {
	eachPulsing(t, func(t *testing.T, k pulsing) {
		_, err := k.Pulse(background, rules.TableID{IPVersion: 5, Name: "filter"})
		if re := restoreError(t, err); re.Class != dataplane.Unavailable {
			t.Errorf("no IP version: %v", re)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		if _, err := k.Pulse(ctx, k.id("filter")); err == nil {
			t.Error("an ended context: no error")
		}
		if k.b == dataplane.NFT {
			return
		}
		_, err = k.Pulse(background, k.id("nosuch"))
		if re := restoreError(t, err); re.Class != dataplane.Unavailable || !strings.Contains(re.Reason, "nosuch") {
			t.Errorf("no such table: %v", re)
		}
	})
}

// Pulses of two Kernels differ, so that no comparison of them finds them equal.
func TestPulseOfAnotherKernel(t *testing.T) {
	a, b := newPulsing(t, dataplane.NFT, rules.IPv4), newPulsing(t, dataplane.NFT, rules.IPv4)
	if a.pulse("filter") == b.pulse("filter") {
		t.Error("the same")
	}
}

func BenchmarkPulse(b *testing.B) {
	for _, backend := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			k := newPulsing(b, backend, rules.IPv4)
			k.pulse("filter")
			for b.Loop() {
				k.pulse("filter")
			}
		})
	}
}
