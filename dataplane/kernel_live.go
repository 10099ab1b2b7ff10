// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/tableward/tableward/rules"
)

// idleLimit is how long a tool that is kept open for a table waits for the next block.
const idleLimit = 5 * time.Second

// liveTools are the restore tools that are kept open in the live namespace, one for each
// table. A start costs more than most blocks; and an nft tool that ends holds up the commits
// of its namespace until the kernel has got rid of what it replaced.
//
// The legacy tools have the lock file open, all as the same open file: while we hold its lock
// for one of them they hold it with us, and nobody else gets in before the last has ended,
// should we be killed. Without us they end when they have read all that they were given.
type liveTools struct {
	mu      sync.Mutex // guards the next three
	byTable map[rules.TableID]*liveTool
	silent  bool // a tool did not echo a marker while it was open
	closed  bool

	maxResident int64 // in bytes; 0 is maxResident
}

// liveTool is the tool of one table. One block is under way at a time.
type liveTool struct {
	mu   sync.Mutex // held while a block is under way
	tool *openTool
	lock *os.File // legacy: the lock file that the tool has open
	idle *time.Timer
}

// restoreLive gives a block to the table's tool, which is started if there is none. Line
// numbers that the tool names count all of its input.
func (k *Kernel) restoreLive(ctx context.Context, t toolset, id rules.TableID, input []byte) *RestoreError {
	l := k.liveTool(t, id)
	if l == nil || !closed(input) || bytes.Count(input, []byte("\nCOMMIT")) > 1 {
		return k.restore(ctx, t, k.enterLocked(t), k.toolLockFile(t), input)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, k.limitOf(input), errDeadline)
	defer cancel()
	re, again := l.give(ctx, k, t, input)
	if again {
		re, _ = l.give(ctx, k, t, input)
	}
	return re
}

// limitOf is how long a tool may take for a block.
func (k *Kernel) limitOf(input []byte) time.Duration {
	return k.opts.BaseDeadline + time.Duration(bytes.Count(input, []byte("\n")))*k.opts.LineDeadline
}

// liveTool returns the place for a table's tool; nil where tools are not kept open.
func (k *Kernel) liveTool(t toolset, id rules.TableID) *liveTool {
	p := &k.live
	p.mu.Lock()
	defer p.mu.Unlock()
	if !k.mayStayOpen(t) || p.silent || p.closed {
		return nil
	}
	l := p.byTable[id]
	if l == nil {
		if p.byTable == nil {
			p.byTable = map[rules.TableID]*liveTool{}
		}
		l = &liveTool{}
		p.byTable[id] = l
	}
	return l
}

// mayStayOpen tells whether a tool may be kept open. A legacy tool that takes the real lock
// by itself is told how long to wait for it, and the alarm that it sets for that would end it
// later. Of one from before the lock nothing is known.
func (k *Kernel) mayStayOpen(t toolset) bool {
	return k.backend == NFT || t.ownLock && !t.noWait
}

// give hands a block to the tool. It tells whether the block may be given to another one,
// because this one has not seen any of it, or has refused it and is of another release than
// what it may have loaded for it. The caller holds mu.
func (l *liveTool) give(ctx context.Context, k *Kernel, t toolset, input []byte) (re *RestoreError, again bool) {
	if ctx.Err() != nil {
		return runError(outcome{exit: -1, err: context.Cause(ctx)}), false
	}
	if l.idle != nil {
		l.idle.Stop()
	}
	if l.tool != nil && (!l.tool.fresh() || l.lock != k.lock.held) {
		l.leave(k)
	}
	if l.tool == nil {
		if re := l.open(ctx, k, t); re != nil || l.tool == nil {
			if re == nil { // it does not echo: one tool for each block
				re = k.restore(ctx, t, k.enterLocked(t), k.toolLockFile(t), input)
			}
			return re, false
		}
	}
	p := l.tool
	before := p.lines
	wrote, o := p.hand(ctx, input, k.backend == Legacy)
	if o.marked {
		l.keep(ctx, k)
		return nil, false
	}
	l.leave(k)
	switch {
	case wrote == 0 && o.err == nil:
		return &RestoreError{Class: Busy, ExitCode: o.exit, Stderr: o.stderr, Reason: errIdleEnd.Error(), Err: errIdleEnd}, true
	case o.err != nil:
		return runError(o), false
	case o.exit == 0:
		return &RestoreError{Class: Unknown, Stderr: o.stderr, Reason: errNoMarker.Error(), Err: errNoMarker}, false
	case k.backend == NFT && o.exit == 1 && lineFailed.MatchString(o.stderr):
		// For these refusals nft takes its words from what it did last, which may have been in
		// an earlier block. Nothing was applied; a tool that has done nothing else says why.
		return k.restore(ctx, t, k.enterLocked(t), k.toolLockFile(t), input), false
	}
	return Classify(o.exit, renumbered(o.stderr, before), input), p.replaced() && k.leftAlone(o.exit)
}

// leftAlone tells whether a tool that ended with this exit code has surely changed nothing. A
// legacy tool with exit code 1 may have replaced the table, and failed then.
func (k *Kernel) leftAlone(exit int) bool {
	return exit == 2 || exit == 4 && k.backend == NFT
}

// keep has the tool wait for the next block, if it is fit for one. The caller holds mu.
func (l *liveTool) keep(ctx context.Context, k *Kernel) {
	p := l.tool
	// Past the deadline its input was closed, or cannot be written to any more.
	if ctx.Err() != nil || k.backend == Legacy && p.resident() > cmp.Or(k.live.maxResident, maxResident) {
		l.leave(k)
		return
	}
	l.idle = time.AfterFunc(idleLimit, func() { l.rest(k, p) })
}

// numbered are the forms in which the tools name a line: what is before the number, the
// number, and what is behind it. See classify.go.
var numbered = regexp.MustCompile(`(?m)^(line |Error occurred at line: |` +
	`(?:\S+ v[0-9.]+ \([a-z_]+\): )?(?:\S*ip6?tables\S*: (?:COMMIT expected at )?|Bad )line |` +
	`\S*ip6?tables\S* v[^:]*: Can't set policy .* line )` +
	`(\d+)(: \S+ failed| failed| policy invalid| table name| chain name|: Bad |: need |$)`)

// renumbered is what a tool said, with the numbers of lines counted from the block's first:
// the tool counts all that it was ever given.
func renumbered(stderr string, before int) string {
	return numbered.ReplaceAllStringFunc(stderr, func(text string) string {
		m := numbered.FindStringSubmatch(text)
		return m[1] + itoa(atoi(m[2])-before) + m[3]
	})
}

var errIdleEnd = errors.New("the tool ended while it waited for a block")

// open starts a tool and has it echo a marker, so that one which keeps what it prints to itself
// is found before it has a block. Then there is no tool, and none is kept open any more.
func (l *liveTool) open(ctx context.Context, k *Kernel, t toolset) *RestoreError {
	if !keepable(t.restore) {
		k.live.never()
		return nil
	}
	p, err := k.openTool(t, k.enterLocked(t), k.toolLockFile(t))
	if err != nil {
		return asRestore(err)
	}
	wait, cancel := context.WithTimeoutCause(ctx, echoWait, errSilent)
	defer cancel()
	_, o := p.hand(wait, nil, false)
	switch {
	case o.marked:
		l.tool, l.lock = p, k.lock.held
		return nil
	case errors.Is(o.err, errSilent):
		k.live.never()
		return nil
	case o.err != nil:
		return runError(o)
	case o.exit == 0:
		k.live.never()
		return nil
	}
	return Classify(o.exit, o.stderr, nil)
}

var errSilent = errors.New("the tool does not echo a comment while its input is open")

// never has no tool kept open from now on.
func (p *liveTools) never() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// rest closes a tool that has been idle, if it is still the same.
func (l *liveTool) rest(k *Kernel, p *openTool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tool == p {
		l.leave(k)
	}
}

// leave ends the tool, beside what comes next. The caller holds mu.
func (l *liveTool) leave(k *Kernel) {
	p := l.tool
	l.tool = nil
	k.wg.Go(p.close)
}

// close ends all tools. No operation may be running.
func (p *liveTools) close(k *Kernel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.byTable {
		l.mu.Lock()
		if l.idle != nil {
			l.idle.Stop()
		}
		if l.tool != nil {
			l.leave(k)
		}
		l.mu.Unlock()
	}
}

// asRestore is an error of this package in the form that operations return.
func asRestore(err error) *RestoreError {
	var re *RestoreError
	errors.As(asRestoreError(err), &re)
	return re
}
