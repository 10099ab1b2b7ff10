// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// R77: whatever was sent once may be sent again, by the same program and by the next one, which
// may know nothing of it.
func TestR77SecondRun(t *testing.T) {
	eachLives(t, func(t *testing.T, l *lives) {
		l.id.Name = "nat"
		wishes := []transaction.Body{
			transaction.RewriteChains{Chains: []rules.Chain{
				chainOf("tw-INBOUND", "-p tcp -m tcp --dport 15008 -j RETURN", "-p tcp -j tw-IN_REDIRECT"),
				chainOf("tw-IN_REDIRECT", "-p tcp -j REDIRECT --to-ports 15006"),
				chainOf("tw-OUTPUT", "-m addrtype --dst-type LOCAL -j RETURN", "-p tcp -j tw-REDIRECT"),
				chainOf("tw-REDIRECT", "-p tcp -j REDIRECT --to-ports 15001"),
			}},
			transaction.InsertRule("PREROUTING", rule("-p tcp -j tw-INBOUND"), transaction.InsertBottom),
			transaction.InsertRule("OUTPUT", rule("-p tcp -j tw-OUTPUT"), transaction.InsertBottom),
		}
		want := ""
		for run := range 3 {
			l.begin(actors.Options{})
			if run == 2 {
				l.dir = t.TempDir() // nothing is known of the runs before
				l.end()
				l.begin(actors.Options{})
			}
			for range 2 {
				for _, w := range wishes {
					l.ask(w)
				}
			}
			l.ask(transaction.EndGrace{})
			l.ask(transaction.Cleanup{})
			if sent := l.did(); run > 0 && len(sent) > 0 {
				t.Errorf("run %d sent %q", run, sent)
			}
			l.end()
			if got := l.save(); run > 0 && got != want {
				t.Errorf("run %d:\n%swant:\n%s", run, got, want)
			}
			want = l.save()
		}
		if !strings.Contains(want, "-A OUTPUT -p tcp -j tw-OUTPUT\n") {
			t.Error(want)
		}
	})
}

// R83: what an earlier run has left goes after grace though it refers to itself, in a cycle of
// what somebody could load or in a row; a chain that a stranger jumps to stays as it is, and keeps
// nothing else from going.
func TestR83OrphansOfEachOther(t *testing.T) {
	eachLives(t, func(t *testing.T, l *lives) {
		l.tool(`*filter
:tw-keep - [0:0]
:tw-old-a - [0:0]
:tw-old-b - [0:0]
:tw-old-c - [0:0]
:tw-old-d - [0:0]
:tw-pinned - [0:0]
:USER-HOOK - [0:0]
-A INPUT -j tw-keep
-A tw-keep -j RETURN
-A tw-old-a -p tcp -j tw-old-b
-A tw-old-b -j tw-old-c
-A tw-old-c -j DROP
-A tw-old-d -i eth7 -j tw-old-a
-A tw-pinned -p udp -j ACCEPT
-A USER-HOOK -j tw-pinned
COMMIT
`, "-restore", "--noflush")
		l.begin(actors.Options{})
		l.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-keep", "-j RETURN")}})
		l.ask(transaction.InsertRule("INPUT", rule("-j tw-keep"), transaction.InsertTop))
		l.ask(transaction.EndGrace{})
		a, err := l.rt.Ask(context.Background(), l.id, transaction.Cleanup{})
		if err != nil || a.Result != actors.Applied && !strings.Contains(a.Err.Error(), "tw-pinned") {
			t.Errorf("%v %v", a, err)
		}
		l.end()
		got := l.save()
		for _, line := range []string{"-A INPUT -j tw-keep\n", "-A tw-keep -j RETURN\n", "-A tw-pinned -p udp -j ACCEPT\n", "-A USER-HOOK -j tw-pinned\n"} {
			if !strings.Contains(got, line) {
				t.Errorf("%q is gone", line)
			}
		}
		if strings.Contains(got, "tw-old") {
			t.Error(got)
		}
	})
}

// R85: what an earlier run has left in a chain goes when the chain is asked for: the rule for an
// address that is dead does not stay before the new one.
func TestR85DeadAddressFirst(t *testing.T) {
	eachLives(t, func(t *testing.T, l *lives) {
		l.id.Name = "nat"
		dead, live, other := "10.0.0.7:80", "10.0.0.8:80", "10.0.0.9:443"
		if l.id.IPVersion == rules.IPv6 {
			dead, live, other = "[fd00::7]:80", "[fd00::8]:80", "[fd00::9]:443"
		}
		to := func(port, address string) string {
			return "-p tcp -m tcp --dport " + port + " -j DNAT --to-destination " + address
		}
		l.tool("*nat\n:tw-dnat - [0:0]\n-A tw-dnat "+to("8126", dead)+"\n-A tw-dnat "+to("8126", live)+"\n-A tw-dnat "+to("8127", other)+"\n-A PREROUTING -j tw-dnat\nCOMMIT\n", "-restore", "--noflush")
		l.begin(actors.Options{})
		l.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-dnat", to("8126", live))}})
		l.ask(transaction.InsertRule("PREROUTING", rule("-j tw-dnat"), transaction.InsertTop))
		l.end()
		if got, want := l.save(), "-A PREROUTING -j tw-dnat\n-A tw-dnat "+to("8126", live)+"\nCOMMIT\n"; !strings.HasSuffix(got, want) {
			t.Errorf("got:\n%swant:\n%s", got, want)
		}
	})
}

// R88: what is there in one IP version says nothing about the other.
func TestR88OneVersionHasIt(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b), func(t *testing.T) {
			h := newHost(t, b, rules.IPv4, actors.Options{Refresh: time.Hour})
			h.iptables("-N tw-a", "-A tw-a -p tcp -j ACCEPT", "-A INPUT -j tw-a")
			for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
				h.id.IPVersion = v
				h.ask(transaction.InsertRule("INPUT", rule("-j tw-a"), transaction.InsertTop))
				h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", "-p tcp -j ACCEPT")}})
				if got, want := h.save(), "-A INPUT -j tw-a\n-A tw-a -p tcp -j ACCEPT\nCOMMIT\n"; !strings.HasSuffix(got, want) {
					t.Errorf("IPv%d:\n%swant:\n%s", v, got, want)
				}
			}
		})
	}
}
