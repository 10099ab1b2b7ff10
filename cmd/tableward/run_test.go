// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// watched is an output whose reader can wait for words.
type watched struct {
	mu   sync.Mutex // guards what follows
	cond *sync.Cond
	buf  bytes.Buffer
	seen int // what was waited for ends here
	over bool
}

func newWatched() *watched {
	w := &watched{}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.cond.Broadcast()
	return w.buf.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

func (w *watched) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.cond.Broadcast()
}

// wait waits for words behind those waited for last, and returns the line from there on.
func (w *watched) wait(t *testing.T, words string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, w.cond.Broadcast)()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		text := w.buf.String()
		if i := strings.Index(text[w.seen:], words); i >= 0 {
			if line, _, whole := strings.Cut(text[w.seen+i:], "\n"); whole {
				w.seen += i + len(line)
				return line
			}
		}
		if w.over || ctx.Err() != nil {
			t.Fatalf("%q did not come:\n%s", words, text)
		}
		w.cond.Wait()
	}
}

// running is a daemon in this process, and the channel that its signals come by.
type running struct {
	signals        chan os.Signal
	stdout, stderr *watched
	code           chan int
}

func startRun(t *testing.T, a *app, args ...string) *running {
	t.Helper()
	r := &running{signals: make(chan os.Signal, 8), stdout: newWatched(), stderr: newWatched(), code: make(chan int, 1)}
	a = &app{open: a.open, signals: r.signals}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.code <- a.run(context.Background(), append([]string{"run"}, args...), strings.NewReader(""), r.stdout, r.stderr)
		r.stderr.end()
	}()
	t.Cleanup(func() {
		select {
		case <-done:
		default:
			r.signals <- syscall.SIGTERM
			r.signals <- syscall.SIGTERM
			<-done
		}
	})
	return r
}

// reload sends SIGHUP and waits for words.
func (r *running) reload(t *testing.T, words string) string {
	t.Helper()
	r.signals <- syscall.SIGHUP
	return r.stderr.wait(t, words)
}

// ends holds that the daemon ends with a status.
func (r *running) ends(t *testing.T, code int) {
	t.Helper()
	select {
	case got := <-r.code:
		if got != code {
			t.Errorf("exit status %d, want %d\n%s", got, code, r.stderr)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end\n%s", r.stderr)
	}
}

// stop sends SIGTERM and holds that the daemon ends well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.signals <- syscall.SIGTERM
	r.ends(t, exitOK)
}
