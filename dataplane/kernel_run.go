// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what is kept of a tool's output. A restore prints little on stdout, but echoes
// each comment; what is over is read and dropped, because a tool that cannot write hangs.
const (
	maxStderr     = 64 << 10
	maxMarkerLine = 512
)

// lastResort is how long a legacy tool that works past its deadline is waited for: a kill
// between its two system calls loses every counter of the table.
const lastResort = 30 * time.Second

var (
	errDeadline = errors.New("the tool did not answer in time")
	errNoMarker = errors.New("the tool ended without a word and without having come past COMMIT")
)

// starter starts a command, in some namespace.
type starter func(*exec.Cmd) error

// run is one run of a tool.
type run struct {
	path    string
	args    []string
	env     []string
	start   starter
	stdin   []byte
	stdout  io.Writer // besides the marker
	marker  string    // line that the tool echoes when everything before it is done; "" for none
	patient bool      // do not kill it while it works
	wg      *sync.WaitGroup
}

// outcome is how a run ended.
type outcome struct {
	marked bool // the marker was seen; the tool may still be ending
	exit   int  // negative: killed by a signal
	stderr string
	err    error // it could not be started, or was killed for this reason
}

// newMarker returns a comment line that no rule can print.
func newMarker() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return "# tableward " + hex.EncodeToString(b[:])
}

// restore runs a restore tool and classifies the outcome.
func (r *run) restore(ctx context.Context, input []byte) *RestoreError {
	o := r.run(ctx)
	switch {
	case o.marked:
		return nil
	case o.err != nil:
		return runError(o)
	case o.exit == 0:
		return &RestoreError{Class: Unknown, Stderr: o.stderr, Reason: errNoMarker.Error(), Err: errNoMarker}
	}
	return Classify(o.exit, o.stderr, input)
}

// runError is the error of a run that did not end by itself.
func runError(o outcome) *RestoreError {
	e := &RestoreError{Class: Unknown, ExitCode: -1, Stderr: o.stderr, Reason: o.err.Error(), Err: o.err}
	var spawn *spawnError
	if errors.As(o.err, &spawn) {
		if e.Class = Unavailable; passes(o.err) {
			e.Class = Busy
		}
	}
	return e
}

// passes tells whether an error is for want of something that comes back.
func passes(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

// spawnError says that a tool was never started.
type spawnError struct{ err error }

func (e *spawnError) Error() string { return "start: " + e.err.Error() }
func (e *spawnError) Unwrap() error { return e.err }

// run starts the tool and returns at its marker or at its end, whichever comes first. At
// the end of ctx the tool is killed.
func (r *run) run(ctx context.Context) outcome {
	if ctx.Err() != nil {
		return outcome{exit: -1, err: context.Cause(ctx)}
	}
	cmd := exec.Command(r.path, r.args...)
	cmd.Env = r.env
	cmd.Stdin = bytes.NewReader(r.stdin)
	out := &output{rest: r.stdout, marker: r.marker, seen: make(chan struct{})}
	stderr := &bounded{limit: maxStderr}
	cmd.Stdout, cmd.Stderr = out, stderr
	// Its own group, so that it can be killed with what it started, and signals of a terminal
	// do not reach it.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = time.Second
	if err := r.start(cmd); err != nil {
		return outcome{exit: -1, err: &spawnError{err}}
	}
	ended := make(chan error, 1)
	r.wg.Go(func() { ended <- cmd.Wait() })
	select {
	case <-out.seen:
		r.wg.Go(func() { reap(cmd.Process.Pid, ended) })
		return outcome{marked: true}
	case err := <-ended:
		return end(out, stderr, err)
	case <-ctx.Done():
	}
	if r.patient && errors.Is(context.Cause(ctx), errDeadline) && works(cmd.Process.Pid) {
		select {
		case <-out.seen:
			return outcome{marked: true}
		case err := <-ended:
			return end(out, stderr, err)
		case <-time.After(lastResort):
		}
	}
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // fails if it has just ended
	o := end(out, stderr, <-ended)
	if !o.marked && (o.exit < 0 || o.exit == 0) {
		o.err = context.Cause(ctx)
	}
	return o
}

// reap sees to it that a tool that has done its work ends.
func reap(pid int, ended <-chan error) {
	select {
	case <-ended:
	case <-time.After(lastResort):
		_ = unix.Kill(-pid, unix.SIGKILL) // fails if it has just ended
	}
}

// end describes a tool that has ended.
func end(out *output, stderr *bounded, err error) outcome {
	o := outcome{stderr: stderr.String()}
	select {
	case <-out.seen:
		o.marked = true
	default:
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		if o.exit = exit.ExitCode(); o.exit < 0 {
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && o.stderr == "" {
				o.stderr = "killed by " + ws.Signal().String()
			}
		}
	case errors.Is(err, exec.ErrWaitDelay), errors.Is(err, unix.EPIPE):
		// What it started holds its pipes, or it did not read all of its input: it has
		// ended by itself.
	default:
		o.exit, o.err = -1, err
	}
	return o
}

// works tells whether a tool is neither waiting for input nor for a lock.
func works(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
	if err != nil {
		return false
	}
	call, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	return call != itoa(unix.SYS_READ) && call != itoa(unix.SYS_FLOCK)
}

// output watches a tool's stdout for the marker and passes the rest on. Only the copying
// goroutine of exec writes to it.
type output struct {
	rest   io.Writer
	marker string
	line   []byte // the line so far, cut
	seen   chan struct{}
	done   bool
}

func (o *output) Write(p []byte) (int, error) {
	if o.rest != nil {
		return o.rest.Write(p)
	}
	n := len(p)
	for o.marker != "" && len(p) > 0 && !o.done {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if room := maxMarkerLine - len(o.line); room > 0 {
			o.line = append(o.line, line[:min(len(line), room)]...)
		}
		p = rest
		if !whole {
			break
		}
		if string(o.line) == o.marker {
			o.done = true
			close(o.seen)
		}
		o.line = o.line[:0]
	}
	return n, nil
}

// bounded keeps the beginning of what is written to it. The buffer is not embedded: its
// ReadFrom would go past the limit.
type bounded struct {
	kept  bytes.Buffer
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.limit - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.kept.String() }
