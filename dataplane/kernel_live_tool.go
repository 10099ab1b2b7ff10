// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxResident is how much memory a legacy tool may have between two blocks. It has had the
// whole table in it, and does not give all of it back: 17 MB at 1,000 chains of 10 rules, 79 MB
// at 5,000.
const maxResident = 64 << 20

// hand writes input and a marker to the tool and waits for the marker's echo, or for the
// tool's end, which is brought about at the end of ctx. A patient caller has it wait longer
// at the deadline for a tool that works. It returns how much the tool could be given.
func (p *openTool) hand(ctx context.Context, input []byte, patient bool) (wrote int, o outcome) {
	marker := newMarker()
	done := p.echoes.expect([]string{marker})
	p.stderr.reset()
	text := make([]byte, 0, len(input)+len(marker)+2)
	text = append(text, input...)
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n') // a marker glued to COMMIT would spoil the block
	}
	text = append(append(text, marker...), '\n')
	p.lines += bytes.Count(text, []byte("\n"))
	stop := context.AfterFunc(ctx, func() { _ = p.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	wrote, _ = p.stdin.Write(text)
	stop()
	select {
	case <-done:
		return wrote, outcome{marked: true}
	case <-p.ended:
	case <-ctx.Done():
		// Without its last line a block is never applied.
		if patient && len(input) > 0 && wrote >= len(input) && errors.Is(context.Cause(ctx), errDeadline) && p.finishes(done) {
			return wrote, outcome{marked: true}
		}
		_ = unix.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails if it has just ended
		<-p.ended
	}
	o = p.outcome()
	o.marked = p.echoes.count() > 0
	if !o.marked && o.exit <= 0 && ctx.Err() != nil {
		o.err = context.Cause(ctx)
	}
	return wrote, o
}

// finishes waits for a tool that works past its deadline, and tells whether the marker came.
// It is given nothing more: one that has read everything ends.
func (p *openTool) finishes(done <-chan struct{}) bool {
	if !works(p.cmd.Process.Pid) {
		return false
	}
	p.stdin.Close()
	select {
	case <-done:
		return true
	case <-p.ended:
	case <-time.After(lastResort):
	}
	return false
}

// resident is how many bytes of memory the tool has; 0 if that cannot be found out.
func (p *openTool) resident() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text)) // all pages, those in memory, and more
	if len(f) < 2 {
		return 0
	}
	return int64(atoi(f[1])) * int64(os.Getpagesize())
}

// keepable tells whether a program is the tool itself. A script in its place may read all of
// its input before it does anything.
func keepable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // the start will say what is wrong
	}
	defer f.Close()
	var magic [2]byte
	_, err = io.ReadFull(f, magic[:])
	return err != nil || string(magic[:]) != "#!"
}
