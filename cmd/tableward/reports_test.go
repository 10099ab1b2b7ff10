// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// The tests of this file are named by the public bug reports about programs of this kind
// whose mistakes they keep out: what somebody sees who runs tableward.

// R01: run waits for a lock that another program holds, says who has it, and loses nothing;
// nft knows no lock, and waits for none.
func TestR01RunWaitsForTheLock(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		f, err := os.Create(os.Getenv("XTABLES_LOCKFILE"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		a := &app{open: func(ctx context.Context, f *flags) (kernel, error) {
			return dataplane.NewKernel(ctx, dataplane.Options{
				Backend: n.backend, NetNS: n.path, StateDir: f.stateDir, LockWait: 20 * time.Millisecond,
			})
		}}
		r := startRun(t, a, fmt.Sprintf("--ipv6=%t", v == rules.IPv6), write(t, "good.rules", goodRules))
		if n.backend == dataplane.Legacy {
			r.stderr.wait(t, fmt.Sprintf("not ready: table %d/filter is tried again: busy: the xtables lock is held by pid %d", v, os.Getpid()))
			if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
				t.Fatal(err)
			}
		}
		r.stderr.wait(t, "ready: 1 owner, 2 messages applied, 0 failing")
		wantChains(t, "in the end", n.chains(t, rules.TableID{IPVersion: v, Name: "filter"}), map[string][]string{
			"INPUT": {"-j good-a"}, "good-a": {"-j ACCEPT"},
		})
		r.stop(t)
		if out := r.stderr.String(); strings.Contains(out, "rejected") || strings.Contains(out, "unavailable") {
			t.Errorf("a message was reported failed:\n%s", out)
		}
	})
}

// recordingTools puts every tool that there is on PATH, each a script that writes down how
// it was called, and returns what was called since.
func recordingTools(t *testing.T, version string) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
tool=${0##*/}
echo "$tool $* lock=$XTABLES_LOCKFILE" >>` + dir + `/calls
[ "$1" = --version ] && { echo '` + version + `'; exit; }
case $tool in
*save) echo "*$2"; for c in INPUT FORWARD OUTPUT PREROUTING POSTROUTING; do echo ":$c ACCEPT [0:0]"; done; echo COMMIT;;
*restore) ( : >>"$XTABLES_LOCKFILE" ) 2>/dev/null || { echo "Fatal: can't open lock file $XTABLES_LOCKFILE: No such file or directory" >&2; exit 4; }
	while read -r l; do case $l in '#'*) echo "$l";; esac; done;;
esac
`
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, backend := range []string{"", "-nft", "-legacy"} {
			for _, kind := range []string{"", "-save", "-restore"} {
				writeFile(t, filepath.Join(dir, family+backend+kind), script)
			}
		}
	}
	for _, tool := range []string{"xtables-nft-multi", "xtables-legacy-multi", "nft", "ipset"} {
		writeFile(t, filepath.Join(dir, tool), script)
	}
	tools, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if err := os.Chmod(tool, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "xtables.lock"))
	return func() []string {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			return nil
		}
		_ = os.Remove(filepath.Join(dir, "calls"))
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// R08, R56: whatever command is given, what a tool may be asked is to restore, with the wait
// flag where it would take the lock that all share, and to save, which takes none. Nothing is
// listed (-L, -S), checked (-C) or changed by a tool of one rule, which would take the lock
// without a word, and whose text differs with each release.
// R34, R35: nobody asks a tool whether a rule exists (-C), which some answer wrongly.
func TestR08R34R35EveryCallOfATool(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b), func(t *testing.T) {
			n := newNamespace(t, b) // made by the real tools, and where a real tool would harm nobody
			calls := recordingTools(t, map[dataplane.Backend]string{
				dataplane.NFT: "iptables v1.8.9 (nf_tables)", dataplane.Legacy: "iptables v1.8.9 (legacy)",
			}[b])
			file := write(t, "tw.rules", "*filter\n:tw-a - [0:0]\n-A tw-a -p tcp -j ACCEPT\n-A INPUT -j tw-a\nCOMMIT\n# ip: 6\n*filter\n-X tw-old\n-I INPUT -j ACCEPT\nCOMMIT\n")
			log := replayLogs + "u01-stub-on-reference.log"
			commands := map[string][][]string{
				"apply": {append(n.flags(), "--prune", "--prefix", "tw-", file)}, "diff": {append(n.flags(), file)},
				"check": {append(n.flags(), file)}, "run": {append(n.flags(), file)},
				"cleanup": {append(n.flags(), "--prefix", "tw-")}, "doctor": {append(n.flags(), "--prefix", "tw-")},
				"replay": {{log}, {"--kernel", log}}, "demo": {{"../../testdata/demo/egress.log"}}, "version": {nil},
			}
			for _, c := range (&app{}).rootCommand().Commands() {
				lines, known := commands[c.Name()]
				if !known {
					t.Errorf("%s is run by no line of this test", c.Name())
				}
				for _, args := range lines {
					runAny(t, c.Name(), args)
					checkCalls(t, b, append([]string{c.Name()}, args...), calls())
				}
			}
		})
	}
}

// runAny runs a command to its end.
func runAny(t *testing.T, name string, args []string) {
	t.Helper()
	switch name {
	case "run":
		r := startRun(t, &app{open: openKernel}, args...)
		r.stderr.wait(t, "ready: ")
		r.stop(t)
		return
	case "demo": // makes a namespace for itself by running again
		cmd := exec.Command("/proc/self/exe", append([]string{name}, args...)...)
		cmd.Env = append(os.Environ(), runVariable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %q: %v\n%s", name, args, err, out)
		}
		return
	}
	if r := runApp(t, t.Context(), &app{open: openKernel}, "", append([]string{name}, args...)...); r.code != exitOK && name != "diff" {
		t.Errorf("%s %q: exit status %d\n%s", name, args, r.code, r.stderr)
	}
}

func checkCalls(t *testing.T, b dataplane.Backend, command, calls []string) {
	t.Helper()
	kernel := slices.Contains([]string{"apply", "diff", "check", "run"}, command[0])
	if kernel && len(calls) == 0 {
		t.Errorf("%q called nothing", command)
	}
	for _, call := range calls {
		words := strings.Fields(call)
		tool, args, lock := words[0], words[1:len(words)-1], words[len(words)-1]
		shared := lock == "lock=" || lock == "lock="+os.Getenv("XTABLES_LOCKFILE")
		switch line := strings.Join(args, " "); {
		case line == "--version":
		case strings.HasSuffix(tool, "-save") && len(args) == 2 && args[0] == "-t":
		case strings.HasSuffix(tool, "-nft-save") && len(args) == 0: // to choose the backend
		case b == dataplane.NFT && strings.HasSuffix(tool, "-restore") && line == "--noflush --verbose":
		case strings.HasSuffix(tool, "-restore") && strings.HasPrefix(line, "--noflush") && (!shared || slices.Contains(args, "-w")):
		default:
			t.Errorf("%q called %s", command, call)
		}
	}
}

// R10: ten minutes of a lock that is held are one line, which names the holder; then another
// says that all is well.
func TestR10OneLineForALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const held = 10 * time.Minute
		start, sim, tries := time.Now(), dataplane.NewSim(dataplane.Legacy), 0
		sim.Hook = func(c dataplane.Call) error {
			if c.Op != dataplane.OpRestore || time.Since(start) >= held {
				return nil
			}
			tries++
			time.Sleep(time.Second)
			return &dataplane.RestoreError{Class: dataplane.Busy, Reason: "the xtables lock is held by pid 7 (other)"}
		}
		r := startRun(t, simApp(sim), "--grace", "0s", write(t, "good.rules", goodRules))
		r.stderr.wait(t, "not ready: table 4/filter is tried again: busy: the xtables lock is held by pid 7 (other)")
		time.Sleep(held - 10*time.Second)
		r.stderr.wait(t, "ready: 1 owner, 2 messages applied, 0 failing")
		if d := time.Since(start); d < held || d > held+10*time.Second {
			t.Errorf("ready after %v", d)
		}
		if lines := strings.Count(r.stderr.String(), "\n"); lines != 2 || tries < 90 {
			t.Errorf("%d lines for %d tries:\n%s", lines, tries, r.stderr)
		}
		r.stop(t)
		time.Sleep(2 * time.Second) // of the bubble's time, for the actor library's log throttle
	})
}

// R55: a rule whose comment or prefix has blanks, quotes and backslashes is found again: it
// is there once, however often it is applied, and goes when it is removed.
func TestR55QuotedTextIsFoundAgain(t *testing.T) {
	texts := []string{
		`-m comment --comment "say \"hi\" don't" -j ours-in`, `-m comment --comment "C:\\temp \\" -j ours-in`,
		`-m comment --comment "'single' \"double\"" -j ours-in`, `-m comment --comment "" -j ours-in`,
	}
	eachWorld(t, func(t *testing.T, v rules.IPVersion, w world) {
		lines := func(command string) string {
			var b strings.Builder
			b.WriteString("*filter\n:ours-in - [0:0]\n-A ours-in -j RETURN\n")
			for _, text := range texts {
				fmt.Fprintf(&b, "%s INPUT %s\n", command, text)
			}
			return b.String() + "COMMIT\n"
		}
		ipv6, id := fmt.Sprintf("--ipv6=%t", v == rules.IPv6), rules.TableID{IPVersion: v, Name: "filter"}
		insert, remove := write(t, "ours.rules", lines("-A")), write(t, "ours.rules", lines("-D"))
		for run := range 2 {
			r := w.tableward(t, "apply", ipv6, "-o", "json", insert)
			if got := w.chains(t, id)["INPUT"]; r.code != exitOK || len(got) != len(texts) {
				t.Fatalf("insert: exit status %d, INPUT holds %q\n%s", r.code, got, r.stderr)
			}
			if run > 0 {
				checkNoRestore(t, r)
			}
		}
		r := w.tableward(t, "apply", ipv6, remove)
		if got := w.chains(t, id)["INPUT"]; r.code != exitOK || len(got) != 0 {
			t.Errorf("remove: exit status %d, INPUT holds %q\n%s", r.code, got, r.stderr)
		}
	})
}

// R58: a stranger's rule whose comment holds newlines, and in them what looks like our chains,
// makes no ghosts: our rules go beside it, nothing is deleted for it, and it stays.
func TestR58StrangersNewlines(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		tool := map[rules.IPVersion]string{rules.IPv4: "iptables-", rules.IPv6: "ip6tables-"}[v] + string(n.backend)
		n.run(t, "", tool, "-A", "INPUT", "-m", "comment", "--comment", "line1\n:tw-ghost - [0:0]\n*nat\nCOMMIT\n-A INPUT -j tw-ghost", "-j", "DROP")
		id := rules.TableID{IPVersion: v, Name: "filter"}
		before := n.chains(t, id)["INPUT"]
		if len(before) != 1 {
			t.Fatalf("INPUT holds %q", before)
		}
		args := []string{fmt.Sprintf("--ipv6=%t", v == rules.IPv6), "--prefix", "tw-", "--prune", "-o", "json",
			write(t, "tw.rules", "*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\n-I INPUT -j tw-a\n-A INPUT -p tcp -j tw-a\nCOMMIT\n")}
		for run := range 2 {
			r := n.tableward(t, "apply", args...)
			if r.code != exitOK || strings.Contains(r.stdout, "ghost") {
				t.Fatalf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			if run > 0 {
				checkNoRestore(t, r)
			}
			want := map[string][]string{"INPUT": {"-j tw-a", before[0], "-p tcp -j tw-a"}, "tw-a": {"-j ACCEPT"}}
			if diff := cmp.Diff(want, n.chains(t, id)); diff != "" {
				t.Errorf("run %d (-want +got):\n%s", run, diff)
			}
		}
		checkNoDiff(t, n.tableward(t, "diff", args...))
	})
}

// R62: single quotes do not quote, and whoever wrote them is told so, with the place.
func TestR62SingleQuotes(t *testing.T) {
	file := write(t, "q.rules", "*filter\n:ours-q - [0:0]\n-A ours-q -m comment --comment 'a b' -j DROP\nCOMMIT\n")
	r := runOn(t, newSim(), "apply", file)
	want := "refused: " + file + ":3:32: single quotes do not quote in iptables-restore: use double quotes\n"
	if r.code != exitUsage || !strings.Contains(r.stderr, want) {
		t.Errorf("exit status %d, stderr\n%swant\n%s", r.code, r.stderr, want)
	}
}

// fakeKernel is an app on tools that are shell scripts.
func fakeKernel(t *testing.T, b dataplane.Backend, scripts map[string]string) *app {
	t.Helper()
	dir := fakeTools(t, scripts)
	return &app{open: func(ctx context.Context, f *flags) (kernel, error) {
		k, err := dataplane.NewKernel(ctx, dataplane.Options{Backend: b, ToolDir: dir, StateDir: filepath.Join(dir, "state")})
		if err != nil {
			return nil, err
		}
		return k, nil
	}}
}

// refusing is a restore tool that fails where a line of its input matches a pattern of the
// shell, with the number of that line in $n.
func refusing(pattern string, exit int, words string) string {
	return sayVersion + fmt.Sprintf("n=0\nwhile read -r l; do n=$((n+1)); case $l in %s) echo \"%s\" >&2; exit %d;; '#'*) echo \"$l\";; esac; done\n", pattern, words, exit)
}

// R97, R98, R100: what a machine lacks is said in its own words, and costs what needs it.
func TestR97R98R100WhatAMachineLacks(t *testing.T) {
	const (
		noComment = "iptables-restore v1.8.9 (nf_tables): Couldn't load match \\`comment':No such file or directory\n\nError occurred at line: $n"
		noRaw     = "iptables-restore v1.8.9 (nf_tables): iptables-restore: line $n table name 'raw' invalid\n\nError occurred at line: $n"
		noIPv6    = sayVersion + "echo 'ip6tables-restore/1.8.9 (nf_tables) Failed to initialize nft: Address family not supported by protocol' >&2\nexit 1\n"
	)
	good := write(t, "good.rules", goodRules)
	commented := write(t, "comment.rules", "*filter\n:c-a - [0:0]\n-A c-a -m comment --comment x -j ACCEPT\nCOMMIT\n")
	raw := write(t, "raw.rules", "*raw\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n")
	six := write(t, "six.v6.rules", goodRules)
	for _, c := range []struct {
		name    string
		scripts map[string]string
		file    string
		says    string
	}{
		{"R97 no comment match", fakes(refusing("*'-m comment'*", 2, noComment), saveAll), commented,
			"rejected: " + commented + ":3:11: Couldn't load match `comment':No such file or directory\n"},
		{"R98 no table raw", fakes(refusing("'*raw'", 2, noRaw), saveAll), raw, "unavailable: table 4/raw: table raw is not available\n"},
		{"R100 no IPv6", withIPv6(fakes(mark, saveAll), noIPv6), six,
			"unavailable: table 6/filter: Failed to initialize nft: Address family not supported by protocol\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := fakeKernel(t, dataplane.NFT, c.scripts)
			r := runApp(t, t.Context(), a, "", "apply", "-o", "json", good, c.file)
			if r.code != exitPartly || strings.Count(r.stderr, c.says) != 1 {
				t.Errorf("exit status %d, stderr\n%swant\n%s", r.code, r.stderr, c.says)
			}
			for _, answer := range decode(t, r).Answers {
				if inGood := strings.HasPrefix(answer.ID, "good"); inGood != (answer.Result == "applied") {
					t.Errorf("%s: %s", answer.ID, answer.Result)
				}
			}
		})
	}
}

func withIPv6(scripts map[string]string, script string) map[string]string {
	scripts["ip6tables-nft-restore"], scripts["ip6tables-nft-save"] = script, script
	return scripts
}

// R98, R100: run keeps the tables that there are, says once what is missing, and goes on when
// it has come.
func TestR98R100RunSaysOnceWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		id     rules.TableID
		reason string
	}{
		"R98 no table raw": {"raw.rules", rules.TableID{IPVersion: rules.IPv4, Name: "raw"}, "table raw is not available"},
		"R100 no IPv6":     {"raw.v6.rules", rules.TableID{IPVersion: rules.IPv6, Name: "raw"}, "Failed to initialize nft: Address family not supported by protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const absent = 10 * time.Minute
				start, sim := time.Now(), newSim()
				sim.Hook = func(call dataplane.Call) error {
					if call.Table == c.id && call.Op != dataplane.OpCanon && time.Since(start) < absent {
						return &dataplane.RestoreError{Class: dataplane.Unavailable, Reason: c.reason}
					}
					return nil
				}
				missing := write(t, c.file, "*raw\n-A OUTPUT -p tcp -j ACCEPT\nCOMMIT\n")
				r := startRun(t, simApp(sim), "--grace", "0s", write(t, "good.rules", goodRules), missing)
				line := fmt.Sprintf("not ready: table %s: %s", c.id, c.reason)
				if got := r.stderr.wait(t, "not ready: "); got != line {
					t.Errorf("got %s, want %s", got, line)
				}
				synctest.Wait()
				wantChains(t, "the table that is there", chainsIn(t, sim), map[string][]string{"INPUT": {"-j good-a"}, "good-a": {"-j ACCEPT"}})
				time.Sleep(absent + 80*time.Second)
				r.stderr.wait(t, "ready: 2 owners, 3 messages applied, 0 failing")
				// The two lines above, and one of the log.
				if lines := strings.Count(r.stderr.String(), "\n"); lines > 3 {
					t.Errorf("%d lines:\n%s", lines, r.stderr)
				}
				r.stop(t)
				time.Sleep(2 * time.Second) // of the bubble's time, for the actor library's log throttle
			})
		})
	}
}

// R101: who may not write is told so at once, by the name of the capability, by every command
// that writes: once, and without a second try.
func TestR101NoPermission(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "good.rules")
	writeFile(t, file, goodRules)
	for _, backend := range []string{"nft", "legacy"} {
		for _, command := range []string{"apply", "run"} {
			r := nobody(t, "", nil, command, "--backend", backend, file)
			if r.code != exitPermission || strings.Count(r.stderr, "run as root, or with CAP_NET_ADMIN") != 1 {
				t.Errorf("%s on %s: exit status %d\n%s", command, backend, r.code, r.stderr)
			}
		}
	}
}

// R101: legacy needs CAP_NET_RAW too, and says so when that alone is missing.
func TestR101NoRawSocket(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil || os.Geteuid() != 0 {
		t.Skip("not root, or no setpriv")
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("setpriv", "--bounding-set=-net_raw", "/proc/self/fd/3", "apply", "--backend", "legacy", write(t, "good.rules", goodRules))
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(os.Environ(), runVariable+"=1", "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Skipf("no network namespace: %v", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitPermission || !strings.Contains(string(out), "no permission: CAP_NET_RAW is missing") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}

// R101: a lock file that cannot be opened ends a legacy apply at once, and is named; nft does
// not care.
func TestR101NoLockFile(t *testing.T) {
	eachNamespace(t, func(t *testing.T, v rules.IPVersion, n namespace) {
		lock := filepath.Join(t.TempDir(), "nosuch", "lock")
		t.Setenv("XTABLES_LOCKFILE", lock)
		r := n.tableward(t, "apply", fmt.Sprintf("--ipv6=%t", v == rules.IPv6), write(t, "good.rules", goodRules))
		want := fmt.Sprintf("unavailable: table %d/filter: can't open lock file %s: no such file or directory\n", v, lock)
		switch {
		case n.backend == dataplane.NFT && r.code != exitOK:
			t.Errorf("nft: exit status %d\n%s", r.code, r.stderr)
		case n.backend == dataplane.Legacy && (r.code != exitEnvironment || strings.Count(r.stderr, want) != 1):
			t.Errorf("legacy: exit status %d, stderr\n%swant\n%s", r.code, r.stderr, want)
		}
	})
}
