// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// lives are Runtimes in one network namespace, one after the other.
type lives struct {
	*host
	opts dataplane.Options
	dir  string
}

func eachLives(t *testing.T, f func(t *testing.T, l *lives)) {
	t.Helper()
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		ns := testns.New(t)
		l := &lives{host: &host{t: t, backend: b, id: rules.TableID{IPVersion: v, Name: "filter"}, ns: ns}, opts: testns.Options(t, ns, b), dir: t.TempDir()}
		l.lock = l.opts.LockFile
		f(t, l)
	})
}

// begin starts a Runtime on a Kernel of its own.
func (l *lives) begin(opts actors.Options) {
	l.t.Helper()
	k, err := dataplane.NewKernel(context.Background(), l.opts)
	if err != nil {
		l.t.Fatal(err)
	}
	opts.StateDir, opts.Refresh, opts.GraceTimeout = l.dir, time.Hour, time.Hour
	opts.Table.Prefixes, opts.Table.Grace = []string{"tw-"}, true
	l.events = make(chan actors.Event, 100_000)
	events := l.events
	opts.Observe = func(e actors.Event) { events <- e }
	rt, err := actors.New(k, opts.For(string(l.backend)))
	if err != nil {
		l.t.Fatal(err)
	}
	rt.Start()
	l.k, l.rt = k, rt
}

func (l *lives) end() {
	l.t.Helper()
	if err := l.rt.Stop(context.Background()); err != nil {
		l.t.Error(err)
	}
	if err := l.k.Close(); err != nil {
		l.t.Error(err)
	}
}

// did is what was sent to the live table, less *table and COMMIT.
func (l *lives) did() []string {
	l.t.Helper()
	var out []string
	for {
		select {
		case e := <-l.events:
			if e.Kind == actors.EventRestore {
				lines := strings.Split(strings.TrimSpace(string(e.Input)), "\n")
				out = append(out, lines[1:len(lines)-1]...)
			}
		default:
			return out
		}
	}
}

// count gives a chain the same rules with counters, as if packets had met them.
func (l *lives) count(chain string, rs ...string) {
	l.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "*filter\n:%s - [0:0]\n", chain)
	for i, r := range rs {
		fmt.Fprintf(&b, "[%d:%d] -A %s %s\n", i+1, 100*(i+1), chain, r)
	}
	l.tool(b.String()+"COMMIT\n", "-restore", "--noflush", "--counters")
}

func (l *lives) state() []byte {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("%d-filter.state", l.id.IPVersion)))
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

// What an earlier run has left is found by a scan: nothing is run and nothing written for what is
// asked again, counters stay, and what a stranger has changed is all that is mended.
func TestKernelRestart(t *testing.T) {
	eachLives(t, func(t *testing.T, l *lives) {
		a, b := ports(1, 2, 3), ports(4, 5)
		source := map[rules.IPVersion]string{rules.IPv4: "10.0.0.1/32", rules.IPv6: "fd00::1/128"}[l.id.IPVersion]
		old, kept := rule("-s "+source+" -j DROP"), rule("-p tcp --dport 9 -j DROP")
		wishes := []transaction.Body{
			transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", a...), chainOf("tw-b", b...), chainOf("web", "-j tw-b")}},
			transaction.InsertRule("FORWARD", rule("-j tw-a"), transaction.InsertTop),
			transaction.InsertRule("FORWARD", kept, transaction.InsertBottom),
		}
		l.begin(actors.Options{})
		for _, w := range append(slices.Clone(wishes), transaction.InsertRule("FORWARD", old, transaction.InsertTop)) {
			l.ask(w)
		}
		l.end()
		first := l.state()
		l.count("tw-a", a...)
		want, counted := l.save(), l.counted("tw-a")

		for range 2 {
			l.begin(actors.Options{})
			for _, w := range wishes {
				l.ask(w)
			}
			if runs, sent := l.k.Stats().Runs, l.did(); runs > 0 || len(sent) > 0 {
				t.Errorf("%d runs of tools, and sent\n%s", runs, strings.Join(sent, "\n"))
			}
			l.end()
			if got := l.save(); got != want {
				t.Fatalf("got\n%s\nwant\n%s", got, want)
			}
		}

		l.iptables("-A tw-b -p udp -j DROP")
		l.begin(actors.Options{})
		for _, w := range wishes {
			l.ask(w)
		}
		for _, line := range l.did() {
			if !strings.HasPrefix(line, ":tw-b ") && strings.Fields(line)[1] != "tw-b" {
				t.Errorf("tw-b was changed, and sent is %s", line)
			}
		}
		if got := l.save(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		l.ask(transaction.Cleanup{})
		if sent := l.did(); len(sent) > 0 {
			t.Errorf("during grace: %s", sent)
		}
		l.ask(transaction.EndGrace{})
		l.ask(transaction.Cleanup{})
		if sent := l.did(); len(sent) != 1 || sent[0] != "-D FORWARD "+old.String() {
			t.Errorf("after grace: %s", sent)
		}
		l.end()
		if got := l.counted("tw-a"); got != counted {
			t.Errorf("counters:\n%s\nwant\n%s", got, counted)
		}

		// As after a kill: the file is that of the first run.
		if err := os.WriteFile(filepath.Join(l.dir, fmt.Sprintf("%d-filter.state", l.id.IPVersion)), first, 0o600); err != nil {
			t.Fatal(err)
		}
		l.begin(actors.Options{})
		for _, w := range wishes {
			l.ask(w)
		}
		if sent := l.did(); len(sent) > 0 {
			t.Errorf("with an old file: %s", sent)
		}
		l.end()
	})
}
