// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// The tests of this file go on with those of reports_cdl_kernel_test.go.

// R104: in five minutes in which nobody sends and nobody else writes nothing is written, and
// the table is looked at once with each refresh.
func TestR104FiveIdleMinutes(t *testing.T) {
	for name, of := range map[string]func(*dataplane.Sim) actors.Dataplane{
		"scans": func(s *dataplane.Sim) actors.Dataplane { return s },
		"reads": func(s *dataplane.Sim) actors.Dataplane { return unaided{s} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := dataplane.NewSim(dataplane.NFT)
				var mu sync.Mutex // guards the next two
				idle, calls := false, map[dataplane.Op]int{}
				sim.Hook = func(c dataplane.Call) error {
					mu.Lock()
					defer mu.Unlock()
					if idle {
						calls[c.Op]++
					}
					return nil
				}
				rt := newRuntime(t, of(sim), actors.Options{Refresh: time.Minute, NoJitter: true})
				var msgs []transaction.Message
				for n := range 200 {
					msgs = append(msgs, rewriteOf(chainOf(fmt.Sprintf("tw-%d", n), ports(1, 2, 3)...)))
				}
				msgs = append(msgs, hooks("INPUT", "tw-7"))
				if as, err := rt.Send(t.Context(), filter4, msgs...); err != nil || as[len(as)-1].Err != nil {
					t.Fatal(err, as)
				}
				time.Sleep(150 * time.Second) // what was written is verified
				mu.Lock()
				idle = true
				mu.Unlock()
				time.Sleep(5 * time.Minute)
				settleDeadLetters(t, rt)
				mu.Lock()
				defer mu.Unlock()
				want := map[dataplane.Op]int{map[string]dataplane.Op{"scans": dataplane.OpPulse, "reads": dataplane.OpRead}[name]: 5}
				if diff := cmp.Diff(want, calls); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// userNamespace is set where TestR107TooLongInUserNamespace is run again.
const userNamespace = "TABLEWARD_TEST_R107"

// R107: in a user namespace nobody may have the tool's socket take more than some hundred
// kilobytes, so that nft refuses a larger block, with the number of its last line. The block is
// halved, no message is blamed, and the log holds no block. What is sent as one piece is tried
// as one block each time; what comes by itself is gathered into no block that is too large.
func TestR107TooLongInUserNamespace(t *testing.T) {
	if os.Getenv(userNamespace) == "" {
		againInUserNamespace(t)
		return
	}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		t.Run(fmt.Sprintf("nft%d", v), func(t *testing.T) {
			var log syncBuffer
			h := newHost(t, dataplane.NFT, v, actors.Options{Refresh: -1, Logger: zerolog.New(&log).Level(zerolog.InfoLevel)})
			const chains, each = 45, 15
			long := strings.Repeat("x", 200)
			all := func(n int) []transaction.Message {
				msgs := make([]transaction.Message, chains)
				for i := range msgs {
					chain := chainOf(fmt.Sprintf("tw-%d", i))
					for port := range each {
						chain.Rules = append(chain.Rules, rule(fmt.Sprintf("-p tcp -m tcp --dport %d -m comment --comment \"%d %s\" -j ACCEPT", port+1, n, long)))
					}
					msgs[i] = rewriteOf(chain)
				}
				return msgs
			}
			applied := func(as []actors.Answer, err error) {
				for _, a := range as {
					if a.Result != actors.Applied {
						t.Errorf("%v %v", a.Result, a.Err)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
			refused := func() (n int) {
				for len(h.events) > 0 {
					var re *dataplane.RestoreError
					if e := <-h.events; e.Kind == actors.EventRestore && errors.As(e.Err, &re) {
						if n++; re.Class != dataplane.TooLarge || re.Line != 0 || re.Text != "" {
							t.Errorf("%+v", re)
						}
					}
				}
				return n
			}
			applied(h.rt.Send(t.Context(), h.id, all(0)...))
			if got := refused(); got == 0 || got > 3 {
				t.Errorf("%d blocks were too large", got)
			}
			var wg sync.WaitGroup
			for _, m := range all(1) {
				wg.Go(func() { applied(h.rt.Send(t.Context(), h.id, m)) })
			}
			wg.Wait()
			if got := refused(); got != 0 {
				t.Errorf("%d blocks were too large though it was known", got)
			}
			if got := strings.Count(h.save(), "\"1 "+long+"\" -j ACCEPT\n"); got != chains*each {
				t.Errorf("%d rules", got)
			}
			if said := log.String(); len(said) > 2000 || !strings.Contains(said, "too-large") {
				t.Errorf("%d bytes of log:\n%.3000s", len(said), said)
			}
		})
	}
}

// againInUserNamespace runs the test again, in a user and a network namespace of its own.
func againInUserNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), userNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil && strings.Contains(err.Error(), "fork/exec"):
		t.Skipf("no user namespace: %v", err)
	case err != nil || strings.Count(string(out), "--- PASS") != 3:
		t.Errorf("in a user namespace: %v\n%s", err, out)
	}
}

// R113: what others did is told by chain, with what is missing and what was added; counted; and
// in the log.
func TestR113DriftIsTold(t *testing.T) {
	var log syncBuffer
	eachHost(t, actors.Options{Refresh: -1, Logger: zerolog.New(&log)}, func(t *testing.T, h *host) {
		begin := len(log.String())
		h.ask(transaction.RewriteChains{Chains: []rules.Chain{chainOf("tw-a", ports(1, 2, 3)...), chainOf("tw-b", ports(1, 2)...), chainOf("tw-c", ports(1)...)}})
		h.refresh()
		before := h.status()
		h.drifts()
		h.tool("*filter\n-D tw-a 2\n-A tw-b -p udp -j DROP\n-F tw-c\n-X tw-c\nCOMMIT\n", "-restore", "--noflush", "-w", "5")
		h.refresh()
		h.told("what was done", map[string]string{"tw-a": "1 rule missing", "tw-b": "1 rule added", "tw-c": "it is gone"})
		h.holds("the table repaired", map[string][]string{"tw-a": ports(1, 2, 3), "tw-b": ports(1, 2), "tw-c": ports(1)})
		var st actors.TableStatus
		h.until("three repairs are counted", func() bool {
			st = h.status()
			return st.Repaired == before.Repaired+3
		})
		if st.Drifts != before.Drifts+3 {
			t.Errorf("%d drifts are counted", st.Drifts-before.Drifts)
		}
		said := log.String()[begin:]
		if strings.Count(said, "\n") != 1 || !strings.Contains(said, `"chains":3,"message":"drift: `) {
			t.Errorf("log:\n%s", said)
		}
	})
}
