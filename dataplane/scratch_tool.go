// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxToolLines is how many lines a tool is given before another one is started. It counts
	// them in an int, over all of its input.
	maxToolLines = 10_000_000
	// echoWait is how long the first tool has to echo a comment. One that keeps what it
	// prints to itself until it ends is not kept open.
	echoWait = time.Second
)

// openTool is a restore tool that is kept open in a scratch namespace: a start costs more
// than most blocks. It ends at the first error. It is not safe for concurrent use.
type openTool struct {
	cmd    *exec.Cmd
	path   string
	file   os.FileInfo // the program, as it was when it was started
	stdin  *os.File
	echoes echoes
	stderr spoken
	keep   bool          // it stays open between blocks, see send
	lines  int           // that it was given
	ended  chan struct{} // closed when it has ended and both pipes are drained
	err    error         // of Wait, once it has ended
}

// openRestore starts a restore tool in a scratch namespace.
func (k *Kernel) openRestore(t toolset, s *scratch) (*openTool, error) {
	p, err := k.openTool(t, s.start, s.lockFile)
	if err == nil {
		p.keep = k.keeps(t)
	}
	return p, err
}

// openTool starts a restore tool that is kept open.
func (k *Kernel) openTool(t toolset, start starter, lockFile string) (*openTool, error) {
	args := []string{"--noflush", "--verbose"}
	if k.backend == Legacy {
		args = append(args, k.waitArgs(t)...)
	}
	p := &openTool{cmd: exec.Command(t.restore, args...), path: t.restore, ended: make(chan struct{})}
	p.file, _ = os.Stat(t.restore) // nil if it is not there, which the start will say
	p.cmd.Env = environ(lockFile)
	p.cmd.Stdout, p.cmd.Stderr = &p.echoes, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as in run
	p.cmd.WaitDelay = time.Second
	in, out, err := os.Pipe()
	if err != nil {
		return nil, runError(outcome{exit: -1, err: &spawnError{err}})
	}
	defer in.Close()
	p.cmd.Stdin, p.stdin = in, out
	if err := start(p.cmd); err != nil {
		out.Close()
		return nil, runError(outcome{exit: -1, err: &spawnError{err}})
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// keeps tells whether a tool may be kept open. Without a lock of its own a legacy tool is
// told how long to wait, and the alarm that it sets for that ends it later.
func (k *Kernel) keeps(t toolset) bool {
	return (k.backend == NFT || t.ownLock) && !k.rooms.silent.Load()
}

// send gives the tool input and waits until it has echoed all markers, or has ended. It
// tells how many markers came; if they are not all, o says how the tool ended. The first
// marker stands before anything else.
func (p *openTool) send(ctx context.Context, k *Kernel, input []byte, markers []string) (seen int, o outcome) {
	done := p.echoes.expect(markers)
	first := p.echoes.begun()
	p.stderr.reset()
	p.lines += bytes.Count(input, []byte("\n"))
	stop := context.AfterFunc(ctx, func() { _ = p.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	// A tool that has ended leaves the rest unread, and ended says so.
	_, _ = p.stdin.Write(input)
	if !stop() {
		p.keep = false // it can be written to no more
	}
	var unsure <-chan time.Time
	switch {
	case !p.keep:
		p.stdin.Close()
	case !k.rooms.echoes.Load():
		unsure = time.After(cmp.Or(k.rooms.echoWait, echoWait))
	}
	for {
		select {
		case <-first:
			if unsure != nil {
				k.rooms.echoes.Store(true)
			}
			first, unsure = nil, nil
		case <-unsure:
			k.rooms.silent.Store(true)
			unsure, p.keep = nil, false
			p.stdin.Close()
		case <-done:
			if unsure != nil {
				k.rooms.echoes.Store(true)
			}
			return len(markers), outcome{marked: true}
		case <-p.ended:
			return p.echoes.count(), p.outcome()
		case <-ctx.Done():
			_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) // fails if it has just ended
			<-p.ended
			o := p.outcome()
			o.err = context.Cause(ctx)
			return p.echoes.count(), o
		}
	}
}

// outcome says how a tool ended.
func (p *openTool) outcome() outcome {
	return end(&output{seen: make(chan struct{})}, &p.stderr.bounded, p.err)
}

// hasEnded tells whether it has ended, for whatever reason.
func (p *openTool) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// fresh tells whether it can be given more input, and the program is still the one that was
// started. Extensions are loaded when they are first named, and another release's do not fit.
func (p *openTool) fresh() bool {
	return !p.hasEnded() && p.lines < maxToolLines && !p.replaced()
}

// replaced tells whether the program is not the one any more that was started.
func (p *openTool) replaced() bool {
	now, err := os.Stat(p.path)
	return err == nil && p.file != nil && !(os.SameFile(now, p.file) && now.ModTime().Equal(p.file.ModTime()))
}

// close ends the tool and waits for it.
func (p *openTool) close() {
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(lastResort):
		_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL) // fails if it has just ended
		<-p.ended
	}
}

// echoes counts the markers that a tool echoes, in their order. What else it prints is read
// and dropped, because a tool that cannot write hangs.
type echoes struct {
	mu      sync.Mutex // guards the rest
	line    []byte     // so far, cut
	markers []string
	seen    int
	first   chan struct{} // closed when one was seen
	done    chan struct{} // closed when all were seen
}

func (e *echoes) expect(markers []string) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.markers, e.seen, e.first, e.done = markers, 0, make(chan struct{}), make(chan struct{})
	return e.done
}

// begun is closed when the first of the markers was seen.
func (e *echoes) begun() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.first
}

func (e *echoes) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

func (e *echoes) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if room := maxMarkerLine - len(e.line); room > 0 {
			e.line = append(e.line, line[:min(len(line), room)]...)
		}
		p = rest
		if !whole {
			break
		}
		if e.seen < len(e.markers) && string(e.line) == e.markers[e.seen] {
			if e.seen++; e.seen == 1 {
				close(e.first)
			}
			if e.seen == len(e.markers) {
				close(e.done)
			}
		}
		e.line = e.line[:0]
	}
	return n, nil
}

// spoken is what a tool has said on stderr since the last block.
type spoken struct {
	mu sync.Mutex // guards bounded while the tool runs
	bounded
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bounded.Write(p)
}

func (s *spoken) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Reset()
	s.limit = maxStderr
}
