// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// twins is a block that makes two chains, and the rule that stands in both.
func twins(n int) (block []byte, rule string) {
	rule = fmt.Sprintf("-s 10.0.%d.%d/32 -j ACCEPT", n/250, n%250)
	return fmt.Appendf(nil, "*filter\n:tw-x - [0:0]\n:tw-y - [0:0]\n-A tw-x %[1]s\n-A tw-y %[1]s\nCOMMIT\n", rule), rule
}

// A tool that is killed in a block has applied all of it or nothing, and what is said of it is
// that it is unknown, unless it is known.
func TestLegacyOpenToolKilledInBlock(t *testing.T) {
	k := newKernel(t, testns.Options(t, testns.New(t), dataplane.Legacy))
	mustRestore(t, k, filter, plainLoad(messages(200, never, "")))
	rnd := rand.New(rand.NewPCG(1, 0))
	unknown, applied := 0, 0
	for n := range 60 {
		block, before := twins(2 * n)
		mustRestore(t, k, filter, block)
		pid := livePID(t, k, filter)
		block, rule := twins(2*n + 1)
		timer := time.AfterFunc(time.Duration(rnd.IntN(8000))*time.Microsecond, func() { _ = unix.Kill(pid, unix.SIGKILL) })
		err := k.Restore(background, filter, block)
		timer.Stop()
		snap, readErr := k.Read(background, filter, "tw-x", "tw-y")
		if readErr != nil {
			t.Fatal(readErr)
		}
		var got []string
		for _, name := range []string{"tw-x", "tw-y"} {
			for _, r := range snap.Chains[name].Rules {
				got = append(got, r.Text)
			}
		}
		done := slices.Equal(got, []string{rule, rule})
		if !done && !slices.Equal(got, []string{before, before}) {
			t.Fatalf("block %d is torn: %q", n, got)
		}
		if err == nil {
			if !done {
				t.Errorf("block %d is said to be applied: %q", n, got)
			}
			continue
		}
		unknown++
		if done {
			applied++
		}
		if re := restoreError(t, err); re.Class != dataplane.Unknown || !re.CountersLost {
			t.Errorf("block %d: %+v", n, re)
		}
	}
	t.Logf("%d unknown, of which %d applied", unknown, applied)
	if unknown == 0 {
		t.Error("no tool was killed in its block")
	}
}

// openedVariable makes the test program one that has tools open, to be killed. Its value is a
// dataplane.Options.
const openedVariable = "TABLEWARD_TEST_OPENED"

// The process to be killed must do none of what a test run does at its start and its end.
func init() {
	text := os.Getenv(openedVariable)
	if text == "" {
		return
	}
	err := writeOpened(text)
	fmt.Fprintln(os.Stderr, "not killed:", err)
	os.Exit(1)
}

// writeOpened has tools open for three tables, says which file they lock, and gives one of
// them a block when it is told to.
func writeOpened(text string) error {
	var o dataplane.Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	k, err := dataplane.NewKernel(background, o)
	if err != nil {
		return err
	}
	for _, id := range []rules.TableID{{IPVersion: rules.IPv4, Name: "nat"}, filter6, filter} {
		if err := k.Restore(background, id, []byte("*"+id.Name+"\nCOMMIT\n")); err != nil {
			return err
		}
	}
	fmt.Println(k.ToolLockFile(filter))
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	return k.Restore(background, filter, []byte("*filter\n-A INPUT -p udp -j DROP\nCOMMIT\n"))
}

// A process that is killed in a block leaves the lock to the tool that it has kept open, and
// to the others only until they find that their input has ended.
func TestLegacyOpenToolOutlivesTheKilled(t *testing.T) {
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	o.LockWait = time.Minute
	k := newKernel(t, o)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), openedVariable+"="+string(text), "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var private string
	_, err = fmt.Fscan(stdout, &private)
	if err != nil {
		_ = cmd.Process.Kill() // fails if it has just ended
		_ = cmd.Wait()
		t.Fatalf("the process to be killed: %v", err)
	}
	_, goOn := stranger(t, private) // what the tool waits for in its block
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the block", func() bool { return holders(t, private, true) == 1 })
	_ = cmd.Process.Kill() // fails if it has just ended
	_ = cmd.Wait()         // it was killed

	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	block := []byte("*filter\n-A INPUT -p tcp -j DROP\nCOMMIT\n")
	re := restoreError(t, k.Restore(ctx, filter, block))
	if want := fmt.Sprintf("the xtables lock is held by what pid %d left running when it ended", cmd.Process.Pid); re.Class != dataplane.Busy || re.Reason != want {
		t.Errorf("%v, want %s", re, want)
	}
	done := make(chan error, 1)
	go func() { done <- k.Restore(background, filter, block) }()
	eventually(t, "our wait", func() bool { return holders(t, o.LockFile, true) == 1 })
	goOn()
	if err := <-done; err != nil {
		t.Error(err)
	}
	snap, err := k.Read(background, filter, "INPUT")
	var got []string
	for _, r := range snap.Chains["INPUT"].Rules {
		got = append(got, r.Text)
	}
	if want := "-p udp -j DROP; -p tcp -j DROP"; err != nil || strings.Join(got, "; ") != want {
		t.Errorf("%q, %v, want %s", got, err, want)
	}
}
