// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// host is a Runtime on a kernel, and others who write to the same tables.
type host struct {
	t       testing.TB
	backend dataplane.Backend
	id      rules.TableID
	ns      string
	lock    string
	k       *dataplane.Kernel
	rt      *actors.Runtime
	events  chan actors.Event
}

func newHost(t testing.TB, b dataplane.Backend, v rules.IPVersion, opts actors.Options) *host {
	t.Helper()
	h := &host{t: t, backend: b, id: rules.TableID{IPVersion: v, Name: "filter"}, ns: testns.New(t), events: make(chan actors.Event, 100_000)}
	o := testns.Options(t, h.ns, b)
	h.lock = o.LockFile
	k, err := dataplane.NewKernel(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	h.k = k
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	opts.Observe = func(e actors.Event) { h.events <- e }
	h.rt = newRuntime(t, k, opts.For(string(b)))
	return h
}

// tool runs iptables, or another tool of the family, as somebody else does.
func (h *host) tool(input string, suffix string, args ...string) string {
	h.t.Helper()
	name := map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[h.id.IPVersion] + "-" + string(h.backend) + suffix
	cmd := exec.Command("nsenter", append([]string{"--net=" + h.ns, "env", "XTABLES_LOCKFILE=" + h.lock, name}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%s %v: %v: %s", name, args, err, stderr.String())
	}
	return string(out)
}

// iptables runs lines of commands, one after the other.
func (h *host) iptables(lines ...string) {
	h.t.Helper()
	for _, line := range lines {
		h.tool("", "", append([]string{"-w", "5"}, strings.Fields(line)...)...)
	}
}

// save is the table without counters and comments.
func (h *host) save() string {
	h.t.Helper()
	var out []string
	for line := range strings.Lines(h.tool("", "-save", "-t", h.id.Name)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(line, "[0:0]"))
		}
	}
	return strings.Join(out, "")
}

// await waits for an event of a kind about a chain.
func (h *host) await(kind actors.EventKind, chain string) actors.Drift {
	h.t.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case e := <-h.events:
			if e.Kind == kind && e.Drift.Chain == chain {
				return *e.Drift
			}
		case <-limit:
			h.t.Fatalf("no event %d about %s", kind, chain)
		}
	}
}

func (h *host) ask(body transaction.Body) {
	h.t.Helper()
	if a, err := h.rt.Ask(context.Background(), h.id, body); err != nil || a.Err != nil {
		h.t.Fatal(err, a.Err)
	}
}

func (h *host) status() actors.TableStatus {
	h.t.Helper()
	st, err := h.rt.Status(context.Background())
	if err != nil || len(st) != 1 {
		h.t.Fatal(err, st)
	}
	return st[0]
}

// until waits for a condition.
func (h *host) until(what string, ok func() bool, instead ...*string) {
	h.t.Helper()
	for limit := time.Now().Add(10 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(limit) {
			for _, s := range instead {
				what += "; instead:\n" + *s
			}
			h.t.Fatalf("never: %s", what)
		}
	}
}

func eachHost(t *testing.T, opts actors.Options, f func(t *testing.T, h *host)) {
	t.Helper()
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			t.Run(fmt.Sprintf("%s%d", b, v), func(t *testing.T) { f(t, newHost(t, b, v, opts)) })
		}
	}
}

// What others do to what is ours is noticed without a refresh, told, and mended, and the
// counters of rules that nobody touched stay.
func TestKernelDrift(t *testing.T) {
	acts := []struct {
		name  string
		lines []string
		chain string
		says  string
	}{
		{"a rule lost", []string{"-D tw-a 2"}, "tw-a", "1 rule missing"},
		{"a rule added", []string{"-I tw-a 2 -p udp -j DROP"}, "tw-a", "1 rule added"},
		{"a rule changed", []string{"-R tw-a 2 -p udp -m udp --dport 9 -j DROP"}, "tw-a", "1 rule missing, 1 rule added"},
		{"rules moved", []string{"-D tw-a 1", "-A tw-a -p tcp -m tcp --dport 1 -j ACCEPT"}, "tw-a", "1 rule out of place"},
		{"a rule doubled", []string{"-A tw-a -p tcp -m tcp --dport 1 -j ACCEPT"}, "tw-a", "1 rule doubled"},
		{"a chain flushed", []string{"-F tw-a"}, "tw-a", "5 rules missing"},
		{"a chain gone", []string{"*filter", "-D FORWARD -j tw-a", "-F tw-a", "-X tw-a"}, "tw-a", "it is gone"},
		{"all flushed", []string{"*filter", "-F", "-X"}, "tw-a", "it is gone"},
		{"a chain back", []string{"-N tw-old", "-A tw-old -j DROP"}, "tw-old", "it was deleted and is back"},
		{"a policy", []string{"-P FORWARD ACCEPT"}, "FORWARD", "its policy is ACCEPT"},
		{"a hook lost", []string{"-D FORWARD -j tw-a"}, "FORWARD", "1 rule missing"},
		{"a hook doubled", []string{"-A FORWARD -j tw-a"}, "FORWARD", "1 rule doubled"},
		{"a hook out of place", []string{"-I FORWARD -p tcp -j RETURN"}, "FORWARD", "1 rule out of place"},
	}
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{
			chainOf("tw-a", ports(1, 2, 3, 4, 5)...), chainOf("tw-old", "-j ACCEPT"),
		}})
		h.ask(transaction.InsertRule("FORWARD", rule("-j tw-a"), transaction.InsertTop))
		h.ask(transaction.SetPolicy{Chain: "FORWARD", Policy: "DROP"})
		h.ask(transaction.DeleteChains{Chains: []string{"tw-old"}})
		h.quiet() // the answer to a delete comes before the name goes
		want := h.save()
		for _, act := range acts {
			h.quiet()
			restores := h.status().Restores
			if strings.HasPrefix(act.lines[0], "-") {
				h.iptables(act.lines...)
			} else {
				h.tool(strings.Join(act.lines, "\n")+"\nCOMMIT\n", "-restore", "--noflush")
			}
			d := h.await(actors.EventDrift, act.chain)
			if len(act.lines) == 1 && !strings.Contains(d.Drift.String(), act.says) {
				t.Errorf("%s: %s, not %q", act.name, d, act.says)
			}
			if h.backend == dataplane.NFT && len(d.By) == 0 {
				t.Errorf("%s: nobody is named", act.name)
			}
			t.Logf("%s: %s", act.name, d)
			if act.name == "a hook out of place" {
				h.until("our hook is first", func() bool {
					return strings.Contains(h.save(), "-A FORWARD -j tw-a\n-A FORWARD -p tcp -j RETURN\n")
				})
				h.iptables("-D FORWARD -p tcp -j RETURN") // a stranger's rule is his to remove
			}
			got := ""
			h.until(act.name+" is repaired", func() bool {
				got = h.save()
				return got == want
			}, &got)
			h.await(actors.EventRepaired, act.chain)
			if n := h.status().Restores - restores; n > 4 {
				t.Errorf("%s: %d restores", act.name, n)
			}
		}
	})
}

func ports(of ...int) []string {
	var out []string
	for _, n := range of {
		out = append(out, fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", n))
	}
	return out
}

// quiet waits until all that was written is verified.
func (h *host) quiet() {
	h.t.Helper()
	for {
		select {
		case <-h.events:
			continue
		case <-time.After(150 * time.Millisecond):
			return
		}
	}
}

// traffic sends n packets to each UDP port n of the host itself.
func (h *host) traffic(ports ...int) {
	h.t.Helper()
	to := map[rules.IPVersion]string{rules.IPv4: "127.0.0.1", rules.IPv6: "::1"}[h.id.IPVersion]
	script := "ip link set lo up\n"
	for _, port := range ports {
		script += fmt.Sprintf("for i in $(seq %d); do echo > /dev/udp/%s/%d; done\n", port, to, port)
	}
	if err := inNamespace(h.ns, "bash", "-c", script); err != nil {
		h.t.Fatal(err)
	}
}

// counted is the chain as save prints it with counters.
func (h *host) counted(chain string) string {
	h.t.Helper()
	var out []string
	for line := range strings.Lines(h.tool("", "-save", "-c", "-t", h.id.Name)) {
		if strings.Contains(line, "-A "+chain+" ") {
			out = append(out, strings.TrimSpace(strings.Replace(line, "-A "+chain+" ", "", 1)))
		}
	}
	return strings.Join(out, "\n")
}

// A rewrite changes only the rules that change, and so does a repair: all others keep their
// counters.
func TestKernelRewriteKeepsCounters(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		var p []string
		for port := range 5 {
			p = append(p, fmt.Sprintf("-p udp -m udp --dport %d -j ACCEPT", port+1))
		}
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", p...)}})
		h.ask(transaction.InsertRule("OUTPUT", rule("-j tw-a"), transaction.InsertTop))
		h.quiet()
		h.traffic(1, 2, 3, 4, 5)
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", p[0], p[1], "-p tcp -j DROP", p[3], p[4])}})
		want := fmt.Sprintf("[1:29] %s\n[2:58] %s\n[0:0] -p tcp -j DROP\n[4:116] %s\n[5:145] %s", p[0], p[1], p[3], p[4])
		if h.id.IPVersion == rules.IPv6 {
			want = fmt.Sprintf("[1:49] %s\n[2:98] %s\n[0:0] -p tcp -j DROP\n[4:196] %s\n[5:245] %s", p[0], p[1], p[3], p[4])
		}
		if got := h.counted("tw-a"); got != want {
			t.Errorf("after a rewrite:\n%s\nwant:\n%s", got, want)
		}
		h.quiet()
		h.iptables("-D tw-a 3")
		h.await(actors.EventRepaired, "tw-a")
		if got := h.counted("tw-a"); got != want {
			t.Errorf("after a repair:\n%s\nwant:\n%s", got, want)
		}
		if st := h.status(); st.Reads != 1 {
			t.Errorf("%d reads", st.Reads)
		}
	})
}

// Nobody writes: a refresh is no restore and no read.
func TestKernelRefreshCostsNothing(t *testing.T) {
	eachHost(t, actors.Options{Refresh: time.Hour}, func(t *testing.T, h *host) {
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(1, 2)...)}})
		h.ask(transaction.InsertRule("FORWARD", rule("-j tw-a"), transaction.InsertTop))
		h.quiet()
		before, runs := h.status(), h.k.Stats()
		for range 20 {
			h.ask(transaction.Refresh{})
			h.ask(transaction.Cleanup{})
		}
		after := h.status()
		if after.Reads != before.Reads || after.Restores != before.Restores {
			t.Errorf("%d reads, %d restores", after.Reads-before.Reads, after.Restores-before.Restores)
		}
		if now := h.k.Stats(); now.Runs != runs.Runs {
			t.Errorf("%d runs of a tool", now.Runs-runs.Runs)
		}
	})
}
