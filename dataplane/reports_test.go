// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// The tests of this file are named by the public bug reports about programs of this kind
// whose mistakes they keep out.

// legacyFakes makes a folder whose legacy tools are one shell script, which finds the folder
// in $DIR and may use flock.
func legacyFakes(t *testing.T, script string) string {
	t.Helper()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("no flock")
	}
	dir := t.TempDir()
	for _, name := range []string{"iptables-legacy-restore", "iptables-legacy-save"} {
		text := "#!/bin/sh\nDIR=" + dir + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// R04: an error has all that the tool said, beside what we make of it.
func TestR04ErrorHasTheToolsWords(t *testing.T) {
	input := "*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\nCOMMIT\n"
	for _, c := range []struct {
		exit   int
		stderr string
		class  dataplane.Class
		text   string
	}{
		{4, "iptables: Resource temporarily unavailable.\n", dataplane.Busy, ""},
		{1, "iptables-restore: line 3 failed\nsecond line\n", dataplane.Rejected, "-A tw-a -j ACCEPT"},
	} {
		script := fmt.Sprintf("cat >/dev/null; printf '%%s' '%s' >&2; exit %d", c.stderr, c.exit)
		k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, script)})
		re := restoreError(t, k.Restore(background, filter, []byte(input)))
		if re.Class != c.class || re.ExitCode != c.exit || re.Stderr != c.stderr || re.Text != c.text || re.Reason == "" {
			t.Errorf("%q: %+v", c.stderr, re)
		}
	}
}

// R05: a tool that takes the lock itself never waits for us, who hold it: whether it locks
// the file that it is told to, or another one.
func TestR05ToolThatLocksByItself(t *testing.T) {
	for name, file := range map[string]string{"the file that it is told": "$XTABLES_LOCKFILE", "a file of its own": "$DIR/lock"} {
		dir := legacyFakes(t, `[ "$1" = --version ] && { echo 'iptables-restore v1.8.9 (legacy)'; exit 0; }
( : >"`+file+`" ) 2>/dev/null || { echo "Fatal: can't open lock file `+file+`: No such file or directory" >&2; exit 4; }
exec 9>"`+file+`"
flock -n 9 || { echo "Another app is currently holding the xtables lock. Stopped waiting after 1s." >&2; exit 4; }
cat`)
		o := dataplane.Options{Backend: dataplane.Legacy, ToolDir: dir, StateDir: t.TempDir(), LockFile: filepath.Join(dir, "lock")}
		k := newKernel(t, o)
		for range 2 {
			if err := k.Restore(background, filter, aChain); err != nil {
				t.Errorf("a tool that locks %s: %v", name, err)
			}
		}
		// It is held around the run by one of the two, not by both.
		if ours := k.Stats().Locks == 2; ours != (file == "$XTABLES_LOCKFILE") {
			t.Errorf("a tool that locks %s: %+v", name, k.Stats())
		}
	}
}

// R07: -w and its number are two words; a tool that knows no -w is found out when the Kernel
// is made, and never given one. Such a restore takes no lock, so we hold it meanwhile.
func TestR07ToolWithoutWait(t *testing.T) {
	for _, refusal := range []string{
		`echo "$0: invalid option -- 'w'" >&2; exit 2`,
		`echo "$0: invalid option -- 'w'" >&2; echo "Can't open 1: No such file or directory" >&2; exit 1`, // 1.4.7 to 1.6.1
		`echo "iptables-restore: unrecognized option: w" >&2; exit 1`,                                      // with musl
		`echo 'iptables-restore v1.4.21: unknown option "-w"' >&2; exit 2`,
	} {
		dir := legacyFakes(t, `[ "$1" = --version ] && { echo 'iptables-restore v1.4.21'; exit 0; }
for a in "$@"; do case $a in -w*|--wait*) echo x >>$DIR/refused; `+refusal+`;; esac; done
flock -n $DIR/lock true && { echo 'nobody holds the lock' >&2; exit 1; }
echo "$*" >>$DIR/args
cat`)
		o := dataplane.Options{Backend: dataplane.Legacy, ToolDir: dir, StateDir: t.TempDir(), LockFile: filepath.Join(dir, "lock")}
		k := newKernel(t, o)
		for range 2 {
			if err := k.Restore(background, filter, aChain); err != nil {
				t.Errorf("%s: %v", refusal, err)
			}
		}
		args, _ := os.ReadFile(filepath.Join(dir, "args"))
		refused, _ := os.ReadFile(filepath.Join(dir, "refused"))
		if string(args) != strings.Repeat("--noflush --verbose\n", 2) || string(refused) != "x\n" {
			t.Errorf("%s: arguments %q, refused %q", refusal, args, refused)
		}
	}
	// One that knows it gets the number as a word: "-w5" is refused by 1.8.9.
	dir := legacyFakes(t, `[ "$1" = --version ] && { echo 'iptables-restore v1.8.9 (legacy)'; exit 0; }
for a in "$@"; do case $a in -w?*) echo "$0: invalid option -- '5'" >&2; exit 1;; esac; printf '<%s>' "$a" >>$DIR/args; done
cat`)
	k := newKernel(t, dataplane.Options{Backend: dataplane.Legacy, ToolDir: dir, StateDir: t.TempDir(), LockWait: 5 * time.Second})
	if err := k.Restore(background, filter, aChain); err != nil {
		t.Error(err)
	}
	if args, _ := os.ReadFile(filepath.Join(dir, "args")); !strings.HasSuffix(string(args), "<--noflush><--verbose><-w><5>") {
		t.Errorf("arguments %s", args)
	}
}

// R11: who stopped waiting for the lock names no line; it is nobody's fault, and the error
// points at none.
func TestR11LockTextHasNoLine(t *testing.T) {
	for _, text := range []string{
		"Another app is currently holding the xtables lock. Stopped waiting after 1s.",
		"Another app is currently holding the xtables lock; still 0s 100000us time ahead to have a chance to grab the lock...\nAnother app is currently holding the xtables lock. Stopped waiting after 1s.",
		"Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Perhaps you want to use the -w option?",
	} {
		k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: fakeTools(t, "cat >/dev/null; echo \""+text+"\" >&2; exit 4")})
		re := restoreError(t, k.Restore(background, filter, aChain))
		if re.Class != dataplane.Busy || re.Line != 0 || re.Text != "" || re.Reason != "the xtables lock is held by another program" {
			t.Errorf("%q: %+v", text, re)
		}
	}
}

// R61: whatever text is accepted for a rule, the kernel holds that rule, with that target and
// that comment: nothing in it swallows the rest of the line.
func TestR61AcceptedTextKeepsItsTarget(t *testing.T) {
	sent, comments := oddComments(400)
	if len(sent) < 100 {
		t.Fatalf("only %d texts are accepted", len(sent))
	}
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		block := rules.Block{Table: id.Name, Lines: []rules.Line{{Command: rules.Declare, Chain: "tw-a"}}}
		for _, r := range sent {
			block.Lines = append(block.Lines, rules.Line{Command: rules.Append, Chain: "tw-a", Rule: r})
		}
		if err := k.Restore(background, id, rules.AppendRestore(nil, block)); err != nil {
			t.Fatal(err)
		}
		snap, err := k.Read(background, id, "tw-a")
		if err != nil {
			t.Fatal(err)
		}
		got := snap.Chains["tw-a"].Rules
		if len(got) != len(sent) {
			t.Fatalf("%d rules, of %d that were sent", len(got), len(sent))
		}
		for i, r := range got {
			words, err := rules.SplitWords(r.Text)
			if r.Err != nil || err != nil || r.Rule.Target() != sent[i].Target() {
				t.Errorf("%s reads back as %s: %v, %v", sent[i], r.Text, r.Err, err)
			} else if len(words) < 4 || words[3].Text != comments[i] {
				t.Errorf("%s reads back as %s", sent[i], r.Text)
			}
		}
	})
}

// oddComments makes n texts of a rule with a comment, and returns those that are accepted and
// have the comment as one word.
func oddComments(n int) (accepted []rules.Rule, comments []string) {
	pieces := []string{
		`"`, `"`, `\`, `\"`, `\\`, "'", " ", "\t", "a", "two words", "-j", "-F", "!", "#", "COMMIT", "*nat", ":x -", "é東", "`", "$x", ";", "-A INPUT", "[1:2]",
	}
	random := rand.New(rand.NewPCG(61, 61))
	for i := range n {
		var raw strings.Builder
		quote := i%3 > 0
		if quote {
			raw.WriteByte('"')
		}
		for range 1 + random.IntN(6) {
			raw.WriteString(pieces[random.IntN(len(pieces))])
		}
		if quote {
			raw.WriteByte('"')
		}
		text := "-m comment --comment " + raw.String() + " -j " + []string{"ACCEPT", "DROP", "RETURN"}[i%3]
		rule, err := rules.ParseRule(text)
		if err != nil {
			continue
		}
		if words, err := rules.SplitWords(text); err == nil && len(words) == 6 {
			accepted, comments = append(accepted, rule), append(comments, words[3].Text)
		}
	}
	return accepted, comments
}

// R101: a lock file that cannot be had is told at once, by its name, as is the capability
// that is missing: nothing about it is a line's fault, and the kernel was not asked.
func TestR101LockFileCannotBeOpened(t *testing.T) {
	for _, id := range []rules.TableID{filter, filter6} {
		o := testns.Options(t, testns.New(t), dataplane.Legacy)
		o.LockFile = filepath.Join(t.TempDir(), "nosuch", "lock")
		k := newKernel(t, o)
		begin := time.Now()
		re := restoreError(t, k.Restore(background, id, aChain))
		want := "can't open lock file " + o.LockFile + ": no such file or directory"
		if re.Class != dataplane.Unavailable || re.Reason != want || re.Line != 0 || re.Text != "" {
			t.Errorf("%+v, want %s", re, want)
		}
		if s := k.Stats(); s.Runs != 0 || time.Since(begin) > o.LockWait {
			t.Errorf("after %v: %+v", time.Since(begin), s)
		}
	}
}

// R100: a family that the kernel lacks is no message's fault, in whatever words it is told;
// the same words about one rule are.
func TestR100NoAddressFamily(t *testing.T) {
	for _, stderr := range []string{
		"Address family not supported by protocol\n",
		"ip6tables-restore v1.8.9 (legacy): can't initialize ip6tables table `filter': Address family not supported by protocol\nPerhaps ip6tables or your kernel needs to be upgraded.\n",
		"ip6tables-restore/1.8.9 (nf_tables) Failed to initialize nft: Address family not supported by protocol\n",
	} {
		for _, exit := range []int{1, 3} {
			if e := dataplane.Classify(exit, stderr, aChain); e.Class != dataplane.Unavailable || !strings.HasSuffix(e.Reason, "Address family not supported by protocol") {
				t.Errorf("%q: %+v", stderr, e)
			}
		}
	}
	rule := "ip6tables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Address family not supported by protocol): rule in chain tw-a\n"
	if e := dataplane.Classify(4, rule, []byte("*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\nCOMMIT\n")); e.Class != dataplane.Rejected || e.Line != 3 {
		t.Errorf("%+v", e)
	}
}
