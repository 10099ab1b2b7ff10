// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// lockedVariable makes the test program one that writes under the lock, to be killed at it.
// Its value is a lockedWrite.
const lockedVariable = "TABLEWARD_TEST_LOCKED"

type lockedWrite struct {
	Kernel dataplane.Options
	Table  rules.TableID
}

// The process to be killed must do none of what a test run does at its start and its end.
func init() {
	text := os.Getenv(lockedVariable)
	if text == "" {
		return
	}
	var w lockedWrite
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		var k *dataplane.Kernel
		if k, err = dataplane.NewKernel(background, w.Kernel); err == nil {
			err = k.Restore(background, w.Table, []byte("*filter\n-A INPUT -p udp -j DROP\nCOMMIT\n"))
		}
	}
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
}

// stoppingTool gives the real tool the first line of its input, by which that reads the
// table. The rest comes when somebody says so.
const stoppingTool = `#!/bin/sh
case "$1 $XTABLES_LOCKFILE" in --version*|*/missing/*) exec %[2]s "$@";; esac
exec 8<&0 9>%[1]s/report
{ read -r table; echo "$table"; echo >&9; read -r go <%[1]s/go; cat; } <&8 >%[1]s/in &
exec %[2]s "$@" <%[1]s/in 8<&- 9<&-
`

func newStoppingTools(t *testing.T) (dir string, report, goOn *os.File) {
	t.Helper()
	dir = t.TempDir()
	for _, family := range []string{"iptables-legacy-", "ip6tables-legacy-"} {
		for name, text := range map[string]string{
			"restore": fmt.Sprintf(stoppingTool, dir, family+"restore"), "save": "#!/bin/sh\nexec " + family + "save \"$@\"\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, family+name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func(name string) *os.File {
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0) // waits for nobody, then or later
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if err := unix.Mkfifo(filepath.Join(dir, "in"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, open("report"), open("go")
}

// killLocked starts a process that writes under the lock, kills it while its tool is at work,
// and returns the pid that it had.
func killLocked(t *testing.T, w lockedWrite, report *os.File) int {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockedVariable+"="+string(text), "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := bufio.NewReader(report)
	err = report.SetReadDeadline(time.Now().Add(time.Minute))
	if err == nil {
		_, err = stopped.ReadString('\n')
	}
	_ = cmd.Process.Kill() // fails if it has just ended
	_ = cmd.Wait()         // it was killed
	if err != nil {
		t.Fatalf("the tool did not stop: %v", err)
	}
	return cmd.Process.Pid
}

// A process that is killed while its tool is at work leaves the lock to the tool. Who writes
// then has to wait, and nobody's rule is lost.
func TestKernelLockOutlivesTheKilled(t *testing.T) {
	for _, id := range []rules.TableID{filter, filter6} {
		t.Run(id.String(), func(t *testing.T) {
			o := testns.Options(t, testns.New(t), dataplane.Legacy)
			o.LockWait = time.Minute
			k := newKernel(t, o)
			dir, report, goOn := newStoppingTools(t)
			w := lockedWrite{Kernel: o, Table: id}
			w.Kernel.ToolDir = dir
			pid := killLocked(t, w, report)

			ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
			defer cancel()
			block := []byte("*filter\n-A INPUT -p tcp -j DROP\nCOMMIT\n")
			re := restoreError(t, k.Restore(ctx, id, block))
			if want := fmt.Sprintf("the xtables lock is held by what pid %d left running when it ended", pid); re.Class != dataplane.Busy || re.Reason != want {
				t.Errorf("%v, want %s", re, want)
			}
			done := make(chan error, 1)
			go func() { done <- k.Restore(background, id, block) }()
			eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
			if _, err := goOn.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			snap, err := k.Read(background, id, "INPUT")
			if got := snap.Chains["INPUT"].Rules; err != nil || len(got) != 2 || got[0].Text != "-p udp -j DROP" || got[1].Text != "-p tcp -j DROP" {
				t.Errorf("%+v, %v", got, err)
			}
			if n := holders(t, o.LockFile, false); n != 0 {
				t.Errorf("%d hold the lock in the end", n)
			}
		})
	}
}
