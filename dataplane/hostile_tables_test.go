// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// hostileChains are in each table, ours and others'.
var hostileChains = []string{"tw-a", "tw-b", "DOCKER-USER", "f\u00fcr", "a-name-of-exactly-28-letters"}

// fill makes tables of both IP versions that have something to lose: chains, policies and
// counters, and the sets that texts name.
func (h *hostileRun) fill() {
	h.t.Helper()
	makeSets(h.t, h.ns, h.v, "s1", "s6", "weave-;r^~$3]6!N")
	var b strings.Builder
	for i, table := range randomTables {
		fmt.Fprintf(&b, "*%s\n", table)
		for j, chain := range rules.BuiltinChains(table) {
			fmt.Fprintf(&b, ":%s %s [%d:%d]\n", chain, []string{"ACCEPT", "DROP"}[j%2], 10+i, 1000+j)
		}
		for _, chain := range hostileChains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
		}
		for j, chain := range append(rules.BuiltinChains(table), hostileChains...) {
			fmt.Fprintf(&b, "[%d:%d] -A %s -p tcp -m comment --comment \"%s %d\" -j RETURN\n", j+1, 100*i+j, chain, chain, j)
			fmt.Fprintf(&b, "[%d:%d] -A %s -p udp -m udp --dport %d -j ACCEPT\n", j+2, 101*i+j, chain, 50+j)
		}
		for _, chain := range rules.BuiltinChains(table)[:2] {
			fmt.Fprintf(&b, "[7:8] -A %s -j tw-a\n[9:10] -A %s -j DOCKER-USER\n", chain, chain)
		}
		b.WriteString("COMMIT\n")
	}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		cmd := exec.Command("nsenter", "--net="+h.ns, h.tool(v, "restore"), "--counters", "--noflush")
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+h.t.TempDir()+"/lock")
		cmd.Stdin = strings.NewReader(b.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Fatalf("%v: %s", err, out)
		}
	}
}

func (h *hostileRun) tool(v rules.IPVersion, what string) string {
	return fmt.Sprintf("%s-%s-%s", map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[v], h.b, what)
}

// savedTables is all that the tools show of all tables, in lines, without comments.
type savedTables map[rules.TableID][]string

// save reads all tables of both IP versions with their counters.
func (h *hostileRun) save() savedTables {
	h.t.Helper()
	h.looks++
	var ids []rules.TableID
	script := "set -e\n"
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		for _, table := range randomTables {
			ids = append(ids, rules.TableID{IPVersion: v, Name: table})
			script += h.tool(v, "save") + " -c -t " + table + "\n"
		}
	}
	cmd := exec.Command("nsenter", "--net="+h.ns, "sh", "-c", script)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		h.t.Fatalf("save: %v: %s", err, &stderr)
	}
	out := make(savedTables)
	for line := range strings.Lines(stdout.String()) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "#") {
			continue
		}
		if len(ids) == 0 {
			h.t.Fatalf("save: a line behind the last table: %q", line)
		}
		out[ids[0]] = append(out[ids[0]], line)
		if line == "COMMIT" {
			ids = ids[1:]
		}
	}
	if len(ids) > 0 {
		h.t.Fatalf("save: %v is not shown whole:\n%s", ids[0], &stdout)
	}
	return out
}

// lineChain returns the chain that a line of a save is about.
func lineChain(line string) string {
	rest, found := strings.CutPrefix(line, ":")
	if !found {
		_, rest, _ = strings.Cut(line, "] -A ")
	}
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// outside returns the lines of chains that placed texts were not written to.
func (h *hostileRun) outside(id rules.TableID, lines []string, placed []placedText) []string {
	written := make(map[string]bool)
	for _, p := range placed {
		if id == (rules.TableID{IPVersion: h.v, Name: p.table}) {
			written[p.chain] = true
		}
	}
	if len(written) == 0 {
		return lines
	}
	var out []string
	for _, line := range lines {
		if written[lineChain(line)] {
			continue
		}
		if h.b == dataplane.Legacy && strings.HasPrefix(line, ":") {
			line, _, _ = strings.Cut(line, " [") // each block takes policies' counters with it
		}
		out = append(out, line)
	}
	return out
}

// check looks at everything, and holds what may have changed since the last look.
func (h *hostileRun) check() {
	h.t.Helper()
	after, placed := h.save(), h.placed
	changed := h.changed(after, placed)
	h.before, h.placed = after, nil
	if changed != "" {
		h.t.Errorf("a text has changed %s", changed)
		h.blame(placed)
	}
	read := make(map[string][]savedTextRule)
	for _, table := range randomTables {
		for chain, rs := range h.read(after[rules.TableID{IPVersion: h.v, Name: table}]) {
			read[table+" "+chain] = rs
		}
	}
	for _, p := range placed {
		if problem := becomes(p.rule, read[p.table+" "+p.chain]); problem != "" {
			h.t.Errorf("%d/%s: %q, read as\n%q: %s", h.v, p.table, p.text, p.rule, problem)
		}
	}
}

// changed tells what is not as it was at the last look, but for the chains of placed texts.
func (h *hostileRun) changed(after savedTables, placed []placedText) string {
	var out string
	for id, lines := range after {
		if diff := cmp.Diff(h.outside(id, h.before[id], placed), h.outside(id, lines, placed)); diff != "" {
			out += fmt.Sprintf("%v (-before +after):\n%s", id, diff)
		}
	}
	return out
}

// blame loads texts once more, one by one, and tells which of them change something.
func (h *hostileRun) blame(placed []placedText) {
	h.t.Helper()
	for _, p := range placed {
		one := h.place([]acceptedText{p.acceptedText})
		if re := h.restore(one); re != nil {
			h.t.Errorf("%s: %q is refused when it comes again: %v", p.table, p.rule, re)
		}
		after := h.save()
		if changed := h.changed(after, one); changed != "" {
			h.t.Errorf("%s: %q changes %s", p.table, p.rule, changed)
		}
		h.before = after
	}
	h.t.FailNow()
}

// savedTextRule is a rule of a save, with the counters before it.
type savedTextRule struct {
	rules.SavedRule
	counters string
}

// read reads the lines of a table as the runtime reads them.
func (h *hostileRun) read(lines []string) map[string][]savedTextRule {
	h.t.Helper()
	set, err := rules.ParseSave(strings.NewReader(strings.Join(lines, "\n") + "\n"))
	if err != nil || len(set.Tables) != 1 || !set.Tables[0].Complete {
		h.t.Errorf("what the tables have become cannot be read: %v", err)
		return nil
	}
	counters := make(map[string][]string)
	for _, line := range lines {
		if c, _, found := strings.Cut(line, " -A "); found {
			counters[lineChain(line)] = append(counters[lineChain(line)], c)
		}
	}
	out := make(map[string][]savedTextRule)
	for _, c := range set.Tables[0].Chains {
		if len(c.Rules) != len(counters[c.Name]) {
			h.t.Errorf("chain %s: %d rules are read of %d", c.Name, len(c.Rules), len(counters[c.Name]))
			continue
		}
		for i, r := range c.Rules {
			out[c.Name] = append(out[c.Name], savedTextRule{r, counters[c.Name][i]})
		}
	}
	return out
}
