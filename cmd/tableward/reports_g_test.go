// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// The tests of this file go on with those of reports_test.go: one bad item among good ones.

// eachSim runs f on simulators. What these tests ask of kernels, tests of actors ask them.
func eachSim(t *testing.T, f func(t *testing.T, v rules.IPVersion, w world)) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			t.Run(fmt.Sprintf("%s%d", b, v), func(t *testing.T) { f(t, v, simWorld{dataplane.NewSim(b)}) })
		}
	}
}

// oneBad is a rules file with a bad line among good ones.
type oneBad struct {
	bad    string // the line
	says   string // on stderr, behind "rejected: FILE:"
	advice string
}

// R64, R65, R67, R71: one bad line costs its chain. The rest is applied, in one block; the
// line is shown with a mark, the reason and what to do.
func TestR64R65R67R71OneBadLine(t *testing.T) {
	eachSim(t, func(t *testing.T, v rules.IPVersion, w world) {
		address, table := "2001:db8::7", "6/filter"
		if v == rules.IPv6 {
			address, table = "192.0.2.7", "4/filter"
		}
		for name, c := range map[string]oneBad{
			"R64 address of the other version": {"-A bad-a -p tcp -d " + address + " -j ACCEPT", ":6:20: " + address + " is an IPv", "write the rule for the table " + table},
			"R65 empty variable":               {"-A bad-a -m comment --comment \"to VIP\" -s  -j ACCEPT", ":6:40: --source has no value", "write the value behind -s"},
			"R67 long comment":                 {"-A bad-a -m comment --comment " + strings.Repeat("é", 128) + " -j ACCEPT", ":6:31: --comment has 256 bytes", "write at most 255 bytes"},
			"R71 port without protocol":        {"-A bad-a --dport 80 -j DROP", ":6:10: --dport without a protocol", "write -p tcp before it"},
		} {
			t.Run(name, func(t *testing.T) {
				file := write(t, "some.rules", "*filter\n:good-a - [0:0]\n:bad-a - [0:0]\n:good-b - [0:0]\n-A good-a -p tcp -j ACCEPT\n"+c.bad+"\n-A good-b -p udp -j ACCEPT\nCOMMIT\n")
				r := w.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), file)
				for _, want := range []string{"rejected: " + file + c.says, "what to do: " + c.advice, "\n" + c.bad[:24], "^\n"} {
					if !strings.Contains(r.stderr, want) {
						t.Errorf("stderr lacks %q:\n%s", want, r.stderr)
					}
				}
				if r.code != exitPartly || strings.Count(r.stderr, "rejected: ") != 1 {
					t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
				}
				wantChains(t, "after "+name, w.chains(t, rules.TableID{IPVersion: v, Name: "filter"}), map[string][]string{
					"good-a": {"-p tcp -j ACCEPT"}, "good-b": {"-p udp -j ACCEPT"},
				})
			})
		}
	})
}

// R73: a file that uses a chain before it makes it is refused whole, at its line: nothing of
// it is half done. Ours is written declarations first, as --dry-run shows.
func TestR73ChainBeforeItsDeclaration(t *testing.T) {
	eachSim(t, func(t *testing.T, v rules.IPVersion, w world) {
		ipv6 := fmt.Sprintf("--ipv6=%t", v == rules.IPv6)
		before := w.chains(t, rules.TableID{IPVersion: v, Name: "mangle"})
		file := write(t, "late.rules", "*mangle\n-A late-allow -p tcp -j MARK --set-xmark 0x2/0xffffffff\n-N late-public\n-N late-allow\n-A late-public -j late-allow\nCOMMIT\n")
		r := w.tableward(t, "apply", ipv6, file)
		if r.code != exitUsage || !strings.Contains(r.stderr, "refused: "+file+":2:") || !strings.Contains(r.stderr, "late-allow") {
			t.Errorf("exit status %d\n%s", r.code, r.stderr)
		}
		wantChains(t, "after a refused file", w.chains(t, rules.TableID{IPVersion: v, Name: "mangle"}), before)
		good := write(t, "good.rules", "*mangle\n:z-a - [0:0]\n-A z-a -p tcp -j RETURN\n:a-z - [0:0]\n-A a-z -j z-a\n-A PREROUTING -j a-z\nCOMMIT\n")
		r = w.tableward(t, "apply", ipv6, "--dry-run", good)
		if lines := strings.SplitN(r.stdout, "-A ", 2); r.code != exitOK || len(lines) < 2 || strings.Contains(lines[1], "\n:") {
			t.Errorf("exit status %d: a chain is declared behind a rule:\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}

// R74: of a file with two tables of which the second fails, the first is applied as it would
// be alone, and the answers say which is which; each block has one table.
func TestR74TwoTablesOneFails(t *testing.T) {
	eachSim(t, func(t *testing.T, v rules.IPVersion, w world) {
		file := write(t, "two.rules", "*nat\n:n-a - [0:0]\n-A n-a -p tcp -j RETURN\nCOMMIT\n*filter\n:f-a - [0:0]\n-A f-a -j MASQUERADE\n:f-b - [0:0]\n-A f-b -p tcp -j RETURN\nCOMMIT\n")
		r := w.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "-o", "json", file)
		for _, a := range decode(t, r).Answers {
			want := "applied"
			if a.Error != nil && a.Error.Chain == "f-a" {
				want = "rejected"
			}
			if a.Result != want {
				t.Errorf("%s of table %s: %s: %+v", a.ID, a.Table, a.Result, a.Error)
			}
		}
		if r.code != exitPartly {
			t.Errorf("exit status %d\n%s", r.code, r.stderr)
		}
		wantChains(t, "nat", w.chains(t, rules.TableID{IPVersion: v, Name: "nat"}), map[string][]string{"n-a": {"-p tcp -j RETURN"}})
		wantChains(t, "filter", w.chains(t, rules.TableID{IPVersion: v, Name: "filter"}), map[string][]string{"f-b": {"-p tcp -j RETURN"}})
	})
}

// R76: with an environment that takes nothing, a thousand messages cost a handful of runs of
// the tool, not two thousand; no message is blamed, and the reason is said once. The report
// asks to keep the batch and back off; here that is for what passes, and what is absent is
// answered at once.
func TestR76EnvironmentIsAskedSeldom(t *testing.T) {
	const n = 1000
	var text strings.Builder
	text.WriteString("*filter\n")
	for i := range n {
		fmt.Fprintf(&text, ":e-%d - [0:0]\n-A e-%d -p tcp -m tcp --dport %d -j ACCEPT\n", i, i, 1+i)
	}
	text.WriteString("COMMIT\n")
	file := write(t, "many.rules", text.String())
	for name, c := range map[string]struct {
		exit  int
		words string
		code  int
		says  string
	}{
		"no permission":   {3, "iptables-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)", exitPermission, "CAP_NET_ADMIN is missing"},
		"no table":        {2, "iptables-restore v1.8.9 (nf_tables): iptables-restore: line 1 table name 'filter' invalid\nError occurred at line: 1", exitEnvironment, "table filter is not available"},
		"no nf_tables":    {1, "iptables-restore/1.8.9 (nf_tables) Failed to initialize nft: Protocol not supported", exitEnvironment, "Failed to initialize nft"},
		"out of memory":   {1, "iptables: calloc failed: Cannot allocate memory", exitEnvironment, "within the timeout"},
		"killed at start": {137, "", exitEnvironment, "within the timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := filepath.Join(t.TempDir(), "calls")
			fails := sayVersion + fmt.Sprintf("echo \"$*\" >>%s\nread -r line\n[ -n '%s' ] && echo '%s' >&2\nexit %d\n", calls, c.words, strings.ReplaceAll(c.words, "'", `'\''`), c.exit)
			a := fakeKernel(t, dataplane.NFT, fakes(fails, saveAll))
			timeout := "30s"
			if c.says == "within the timeout" { // what passes is tried again until then
				timeout = "350ms"
			}
			r := runApp(t, t.Context(), a, "", "apply", "-o", "json", "--timeout", timeout, file)
			if r.code != c.code || strings.Count(r.stderr, c.says) != 1 || strings.Contains(r.stderr, "rejected") {
				t.Errorf("exit status %d, stderr\n%.500s", r.code, r.stderr)
			}
			out := decode(t, r)
			for _, answer := range out.Answers {
				if answer.Result != "unavailable" {
					t.Errorf("%s: %s", answer.ID, answer.Result)
				}
			}
			runs, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(string(runs), "\n"); len(out.Answers) != n || got > 8 {
				t.Errorf("%d answers; the tool was run %d times:\n%s", len(out.Answers), got, runs)
			}
		})
	}
}
