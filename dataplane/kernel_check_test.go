// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

func chain(name string, texts ...string) rules.Chain {
	c := rules.Chain{Name: name}
	for _, text := range texts {
		c.Rules = append(c.Rules, rules.MustParseRule(text))
	}
	return c
}

// verdicts gives each verdict as a line.
func verdicts(t *testing.T, k *dataplane.Kernel, id rules.TableID, b dataplane.Batch) []string {
	t.Helper()
	vs, err := k.Check(background, id, b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range vs {
		line := fmt.Sprintf("%s %d", v.Chain, v.Index)
		if v.Hook != "" {
			line += " from " + v.Hook
		}
		if v.Err == nil {
			line += " skipped: " + v.Skipped
		} else {
			line += ": " + v.Err.Reason
			if v.Err.Class != dataplane.Rejected || v.Err.Line != 0 {
				t.Errorf("%s: %+v", line, v.Err)
			}
			for _, c := range append(b.Chains, b.Kernel...) {
				if c.Name == v.Chain && v.Index >= 0 && c.Rules[v.Index].String() != v.Err.Text {
					t.Errorf("%s: of %s", line, v.Err.Text)
				}
			}
		}
		out = append(out, line)
	}
	return out
}

const untold = "the kernel refuses it and the tool does not say why"

func TestKernelCheck(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		told := func(nft, legacy string) string {
			if b == dataplane.NFT {
				return nft
			}
			return legacy
		}
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for name, c := range map[string]struct {
			batch dataplane.Batch
			want  []string
		}{
			"nothing": {},
			"good, with what is around": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-p tcp --dport 80 -j tw-b", "-m owner --socket-exists -g FOREIGN"), chain("tw-b", "-j DROP")},
				Kernel: []rules.Chain{chain("OUTPUT", "-j tw-a"), chain("FOREIGN", "-j tw-b")},
				Around: []rules.Chain{chain("OUTPUT", "-p udp -j FOREIGN", "-j LOG"), chain("FOREIGN", "-j DEEPER")},
			}, nil},
			"refused anywhere": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-p tcp --bogus", "-j ACCEPT", "-p tcp --dport 99999", "-j MASQUERADE", "-j tw-missing")},
				Kernel: []rules.Chain{chain("INPUT", "-p tcp --dport http2", "-j tw-a")},
			}, []string{
				`tw-a 0: unknown option "--bogus"`,
				"tw-a 2: invalid port/service `99999' specified",
				"tw-a 3: " + told("RULE_APPEND failed (Invalid argument)", untold),
				"tw-a 4: " + told("Chain 'tw-missing' does not exist", "Couldn't load target `tw-missing':No such file or directory"),
				"INPUT 0: invalid port/service `http2' specified",
			}},
			"refused from a hook": {dataplane.Batch{
				Chains: []rules.Chain{
					chain("tw-a", "-p udp -j ACCEPT", "-m owner --socket-exists -j tw-b"),
					chain("tw-b", "-m owner --socket-exists -j DROP", "-j DROP"), chain("tw-c", "-m owner --socket-exists -j DROP"),
				},
				Kernel: []rules.Chain{chain("OUTPUT", "-j tw-c"), chain("FORWARD", "-m owner --socket-exists -j ACCEPT", "-j DROP")},
				Around: []rules.Chain{chain("INPUT", "-j FOREIGN"), chain("FOREIGN", "-j tw-a")},
			}, []string{
				"tw-a 1 from INPUT: " + told("RULE_APPEND failed (Invalid argument)", untold),
				"tw-b 0 from INPUT: " + told("RULE_APPEND failed (Invalid argument)", untold),
				"FORWARD 0 from FORWARD: " + told("RULE_APPEND failed (Invalid argument)", untold),
			}},
			"behind the end of a chain": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-m owner --socket-exists -j DROP", "-j RETURN", "-m owner --socket-exists -j DROP")},
				Kernel: []rules.Chain{chain("INPUT", "-j tw-a")},
			}, []string{
				"tw-a 0 from INPUT: " + told("RULE_APPEND failed (Invalid argument)", untold),
				told("tw-a 2 from INPUT: RULE_APPEND failed (Invalid argument)", ""),
			}},
			"refused in a built-in chain, not below it": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-m policy --dir in --pol ipsec -j DROP", "-j tw-b"), chain("tw-b", "-m mac --mac-source 00:00:00:00:00:01 -j DROP")},
				Kernel: []rules.Chain{chain("OUTPUT", "-m policy --dir in --pol ipsec -j ACCEPT", "-j tw-a")},
			}, []string{
				told("", "tw-a 0 from OUTPUT: "+untold),
				"tw-b 0 from OUTPUT: " + told("RULE_APPEND failed (Invalid argument)", untold),
				"OUTPUT 0 from OUTPUT: " + told("RULE_APPEND failed (Invalid argument)", untold),
			}},
			"a loop": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-j tw-b"), chain("tw-b", "-j tw-a")},
				Kernel: []rules.Chain{chain("INPUT", "-p udp -j DROP", "-j tw-a")},
			}, []string{"INPUT 1 from INPUT: " + told("RULE_APPEND failed (Too many links)", untold)}},
			"not tried": {dataplane.Batch{
				Chains: []rules.Chain{chain("tw-a", "-j IDLETIMER --timeout 9 --label l", "-m set --match-set tw-none src -j DROP")},
			}, []string{
				"tw-a 0 skipped: it would reach beyond a scratch namespace, or needs an object that one cannot have",
				"tw-a 1: set tw-none does not exist",
			}},
		} {
			c.want = slices.DeleteFunc(c.want, func(s string) bool { return s == "" })
			if diff := cmp.Diff(c.want, verdicts(t, k, id, c.batch)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if diff := cmp.Diff(render(t, dataplane.NewSim(b), id), render(t, k, id)); diff != "" {
			t.Errorf("the live table was written to:\n%s", diff)
		}
	})
}

// Fifteen chains below a built-in chain are all that nft takes. The scratch namespace adds
// none.
func TestKernelCheckDepth(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		for depth, nft := range map[int]int{15: 0, 16: 1} {
			var batch dataplane.Batch
			for i := range depth - 1 {
				batch.Chains = append(batch.Chains, chain(fmt.Sprintf("tw-%d", i), fmt.Sprintf("-j tw-%d", i+1)))
			}
			batch.Chains = append(batch.Chains, chain(fmt.Sprintf("tw-%d", depth-1), "-j ACCEPT"))
			batch.Kernel = []rules.Chain{chain("FORWARD", "-j tw-0")}
			want := nft
			if b == dataplane.Legacy {
				want = 0
			}
			if got := verdicts(t, k, rules.TableID{IPVersion: v, Name: "filter"}, batch); len(got) != want {
				t.Errorf("%d deep: %q", depth, got)
			}
		}
	})
}

// ipset runs ipset in a namespace.
func ipset(t *testing.T, ns string, args ...string) {
	t.Helper()
	for _, tool := range []string{"ipset", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s", tool)
		}
	}
	out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "ipset"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ipset %v: %v, %s", args, err, out)
	}
}

// Sets have in the scratch namespace the type and the family that they have in the live one.
func TestKernelCheckSets(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		ns := testns.New(t)
		ipset(t, ns, "create", "tw-four", "hash:net")
		ipset(t, ns, "create", "tw-six", "hash:ip,port", "family", "inet6", "timeout", "5", "counters")
		ipset(t, ns, "create", "tw-ports", "bitmap:port", "range", "0-1023")
		ipset(t, ns, "create", "tw-list", "list:set")
		k := newKernel(t, testns.Options(t, ns, b))
		batch := dataplane.Batch{Chains: []rules.Chain{chain("tw-a",
			"-m set --match-set tw-four src -j DROP", "-m set --match-set tw-six src,src -j DROP",
			"-m set --match-set tw-ports dst -j DROP", "-m set --match-set tw-list src -j DROP",
			"-m set --match-set tw-none src -j SET --add-set tw-list src")}}
		want := [][]string{
			{"tw-a 1: The protocol family of set tw-six is IPv6, which is not applicable.", "tw-a 4: set tw-none does not exist"},
			{"tw-a 0: The protocol family of set tw-four is IPv4, which is not applicable.", "tw-a 4: set tw-none does not exist"},
		}
		for i, id := range []rules.TableID{filter, filter6} {
			if diff := cmp.Diff(want[i], verdicts(t, k, id, batch)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", b, id, diff)
			}
		}
		canon, err := k.Canon(background, filter6, batch.Chains[0].Rules[:2])
		if err != nil || canon[0] != nil || canon[1][0] != batch.Chains[0].Rules[1].String() {
			t.Errorf("%s: %q, %v", b, canon, err)
		}
	}
}

// Big batches go in slices, and some rules of many are found.
func TestKernelCheckMany(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		k := newKernel(t, testns.Options(t, testns.New(t), b))
		var batch dataplane.Batch
		var want []string
		input := rules.Chain{Name: "INPUT"}
		for i := range 200 {
			c := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
			for j := range 10 {
				text := fmt.Sprintf("-p tcp --dport %d -m comment --comment \"rule %d\" -j ACCEPT", i+1, j)
				switch {
				case i%50 == 7 && j == 3:
					text = "-p tcp --bogus"
					want = append(want, c.Name+" 3")
				case i%60 == 9 && j == 5:
					text = "-j MASQUERADE"
					want = append(want, c.Name+" 5")
				case i%70 == 11 && j == 7:
					text = "-m owner --socket-exists -j ACCEPT"
					want = append(want, c.Name+" 7 from INPUT")
				}
				c.Rules = append(c.Rules, rules.MustParseRule(text))
			}
			batch.Chains = append(batch.Chains, c)
			if i%10 == 1 {
				input.Rules = append(input.Rules, rules.MustParseRule("-j "+c.Name))
			}
		}
		batch.Kernel = []rules.Chain{input}
		var got []string
		for _, line := range verdicts(t, k, filter, batch) {
			where, _, _ := strings.Cut(line, ": ")
			got = append(got, where)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", b, diff)
		}
		if s := k.Stats(); s.Runs != 0 || s.Probes == 0 {
			t.Errorf("%+v", s)
		}
	}
}
