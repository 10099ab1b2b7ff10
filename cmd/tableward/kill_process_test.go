// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// killProcess is a runtime in a process of its own.
type killProcess struct {
	cmd    *exec.Cmd
	stdin  *os.File
	lines  *bufio.Reader
	stderr bytes.Buffer // read only when the process has ended
	waited bool
}

func startKillProcess(t *testing.T, spec killSpec) *killProcess {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p := &killProcess{cmd: exec.Command(os.Args[0])}
	// It does not live to remove what it makes in its temporary folder. The race detector
	// would have it wait for a second before it ends.
	p.cmd.Env = append(os.Environ(), killVariable+"="+string(text), "TMPDIR="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.stderr
	// Tools that outlive it have its stderr too.
	p.cmd.WaitDelay = time.Second
	stdin, stdout := p.pipes(t)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	t.Cleanup(func() {
		if !p.waited {
			_ = p.cmd.Process.Kill() // fails if it has just ended
			_ = p.cmd.Wait()         // it was killed
			t.Logf("stderr of the runtime: %s", p.stderr.String())
		}
	})
	return p
}

// pipes connects the process and returns the ends that are its own.
func (p *killProcess) pipes(t *testing.T) (stdin, stdout *os.File) {
	t.Helper()
	stdin, p.stdin = newPipe(t)
	out, stdout := newPipe(t)
	if err := out.SetReadDeadline(time.Now().Add(killPatience)); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	p.cmd.Stdin, p.cmd.Stdout = stdin, stdout
	return stdin, stdout
}

func newPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

func (p *killProcess) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the runtime says nothing: %v", err)
	}
	return strings.TrimSpace(line)
}

func (p *killProcess) expect(t *testing.T, want string) {
	t.Helper()
	if got := p.line(t); got != want {
		t.Fatalf("the runtime says %q, want %q", got, want)
	}
}

// expectBlock waits until the runtime is about to write the block in question, and returns
// the block's length.
func (p *killProcess) expectBlock(t *testing.T) int {
	t.Helper()
	var n int
	line := p.line(t)
	if _, err := fmt.Sscanf(line, "block %d", &n); err != nil {
		t.Fatalf("the runtime says %q, want a block", line)
	}
	return n
}

func (p *killProcess) goOn(t *testing.T) {
	t.Helper()
	if _, err := p.stdin.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
}

// kill kills the process and waits for its end.
func (p *killProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait() // it was killed
	p.waited = true
}

// end waits for an orderly end.
func (p *killProcess) end(t *testing.T) {
	t.Helper()
	err := p.cmd.Wait()
	p.waited = true
	if err != nil {
		t.Fatalf("the runtime: %v\n%s", err, p.stderr.String())
	}
}
