// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tableward/tableward/rules"
)

const (
	// A probe that nf_tables refuses sleeps for some 15 ms, so that many of them at once go
	// far beyond the cores. A legacy tool computes.
	maxRoomsNFT = 16
	// maxIdleRooms is how many rooms wait for the next trial.
	maxIdleRooms = 4
	// On nft nothing is deleted in a room: the next block would wait for that. So it grows,
	// and with the rules that hooks reach grows what each block costs. At this size it is
	// left for a new one.
	maxReached    = 3000
	maxRoomChains = 4000
)

// room is a scratch namespace in which rules are tried, with a tool kept open for each IP
// version. It is used by one worker at a time.
type room struct {
	s     *scratch
	tools map[rules.IPVersion]*openTool

	sends    int                    // that were answered
	chains   int                    // that were made
	reached  int                    // nft: rules that hooks reach
	declared map[chainKey]bool      // nft: chains under names of the rules that were tried
	dirty    map[rules.TableID]bool // legacy: what is to be emptied before the next block
	slice    int                    // nft: lines of a block, once it was found that there can be fewer; 0 if not
	spoilt   bool                   // not to be used again
}

type chainKey struct {
	id   rules.TableID
	name string
}

// rooms are the scratch namespaces that wait for the next trial.
type rooms struct {
	mu   sync.Mutex // guards idle
	idle []*room

	once  sync.Once
	slots chan struct{} // room for workers beyond the first of each trial, over all trials

	echoes, silent atomic.Bool // a tool has echoed a comment while it was open; or did not in time
	echoWait       time.Duration
}

// newRoom makes a room, or takes one that waits.
func (k *Kernel) newRoom() (*room, error) {
	if r := k.rooms.pop(); r != nil {
		return r, nil
	}
	return k.freshRoom()
}

// freshRoom makes a room that nobody has used.
func (k *Kernel) freshRoom() (*room, error) {
	s, err := k.newScratch()
	if err != nil {
		return nil, err
	}
	return &room{
		s: s, tools: map[rules.IPVersion]*openTool{},
		declared: map[chainKey]bool{}, dirty: map[rules.TableID]bool{},
	}, nil
}

func (p *rooms) pop() *room {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	r := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return r
}

// leaveRoom keeps a room for the next trial, if it is fit for one, or closes it.
func (k *Kernel) leaveRoom(r *room) {
	if r == nil {
		return
	}
	p := &k.rooms
	p.mu.Lock()
	keep := !r.spoilt && len(p.idle) < maxIdleRooms
	if keep {
		p.idle = append(p.idle, r)
	}
	p.mu.Unlock()
	if !keep {
		// What a tool is still busy with is not waited for.
		k.wg.Go(r.close)
	}
}

// hire tells whether there may be one more worker, which calls dismiss when it is done.
func (k *Kernel) hire() bool {
	k.rooms.once.Do(func() { k.rooms.slots = make(chan struct{}, k.maxWorkers()-1) })
	select {
	case k.rooms.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (k *Kernel) dismiss() { <-k.rooms.slots }

// maxWorkers is how many rooms may be in use at once.
func (k *Kernel) maxWorkers() int {
	if k.backend == NFT {
		return maxRoomsNFT
	}
	return runtime.GOMAXPROCS(0)
}

func (p *rooms) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range p.idle {
		wg.Go(r.close)
	}
	wg.Wait()
	p.idle = nil
}

func (r *room) close() {
	for _, p := range r.tools {
		p.close()
	}
	_ = r.s.close() // a folder that stays is no reason to throw an answer away
}

// probeLine is a line of a block, and of whom it says something.
type probeLine struct {
	text  string
	items []*item // whose rule it is, or whose rules it hooks up
	at    places  // where that tries them
	pack  *pack   // of a line that hooks something up
	jump  bool    // it hooks up a chain
}

// answer is what the tool says to blocks that it was given in one go.
type answer struct {
	taken  int           // so many blocks are applied
	named  []namedLine   // lines of the next one that are at fault
	reason *RestoreError // why it is not applied, nil if all are
}

// send gives the tool blocks of one table, which on legacy is emptied before if they begin
// anew. An error says nothing about a rule, and leaves the room unfit.
func (r *room) send(ctx context.Context, k *Kernel, t toolset, id rules.TableID, blocks [][]probeLine, anew bool) (answer, error) {
	if sweep := []probeLine{{text: "-F"}, {text: "-X"}}; anew && r.dirty[id] {
		blocks = slices.Clone(blocks)
		blocks[0] = slices.Concat(sweep, blocks[0])
	}
	seen, re, err := r.give(ctx, k, t, id, blocks)
	if err != nil {
		r.spoilt = true
		return answer{}, err
	}
	r.sends++
	a := answer{taken: seen, reason: re}
	if re != nil {
		a.named = re.within(blocks[:seen+1])
	}
	if k.backend == Legacy && seen > 0 {
		r.dirty[id] = true
	}
	return a, nil
}

// give writes blocks to the tool and returns how many were applied, and what was said of the
// next.
func (r *room) give(ctx context.Context, k *Kernel, t toolset, id rules.TableID, blocks [][]probeLine) (int, *RestoreError, error) {
	p, err := r.tool(k, t, id.IPVersion)
	if err != nil {
		return 0, nil, err
	}
	input, markers := render(id.Name, blocks)
	limit := k.opts.BaseDeadline + time.Duration(bytes.Count(input, []byte("\n")))*k.opts.LineDeadline
	if k.backend == Legacy && !t.ownLock {
		limit += k.opts.LockWait
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errDeadline)
	defer cancel()
	before := p.lines
	seen, o := p.send(ctx, k, input, markers)
	if !o.marked || !p.keep {
		delete(r.tools, id.IPVersion)
		k.wg.Go(p.close) // an nft tool takes a while to end
	}
	if seen == len(markers) {
		return len(blocks), nil, nil
	}
	re, err := r.judge(o, input, before)
	return max(seen-1, 0), re, err
}

// tool returns the room's tool for an IP version, started when there is none.
func (r *room) tool(k *Kernel, t toolset, v rules.IPVersion) (*openTool, error) {
	if p := r.tools[v]; p != nil {
		if p.fresh() {
			return p, nil
		}
		delete(r.tools, v)
		k.wg.Go(p.close)
	}
	p, err := k.openRestore(t, r.s)
	if err != nil {
		return nil, err
	}
	r.tools[v] = p
	return p, nil
}

// render writes a marker, then blocks, each with a marker behind it.
func render(table string, blocks [][]probeLine) (input []byte, markers []string) {
	nonce := newMarker()
	var b bytes.Buffer
	mark := func() {
		markers = append(markers, nonce+" "+itoa(len(markers)))
		b.WriteString(markers[len(markers)-1] + "\n")
	}
	mark()
	for _, block := range blocks {
		b.WriteString("*" + table + "\n")
		for _, l := range block {
			b.WriteString(l.text)
			b.WriteByte('\n')
		}
		b.WriteString("COMMIT\n")
		mark()
	}
	return b.Bytes(), markers
}

// namedLine is a line that the tool named, and its words.
type namedLine struct {
	probeLine
	reason string
}

// within returns the lines named in the last of these blocks.
func (e *RestoreError) within(blocks [][]probeLine) []namedLine {
	first := 1 // lines before the block's own: each has three others, and there is the first marker
	for _, block := range blocks {
		first += len(block) + 3
	}
	last := blocks[len(blocks)-1]
	first -= len(last) + 1
	var out []namedLine
	for _, l := range e.Lines {
		if i := l.Line - first; i >= 0 && i < len(last) {
			out = append(out, namedLine{last[i], l.Reason})
		}
	}
	return out
}

// judge tells a refusal from an error that says nothing about a rule.
func (r *room) judge(o outcome, input []byte, before int) (*RestoreError, error) {
	var re *RestoreError
	switch {
	case o.err != nil:
		re = runError(o)
	case o.exit == 0:
		re = &RestoreError{Class: Unknown, Stderr: o.stderr, Reason: errNoMarker.Error(), Err: errNoMarker}
	default:
		re = classify(o.exit, o.stderr, input, before)
	}
	switch re.Class {
	case Rejected, RejectedSomewhere, TooLarge:
		if r.s.alive() {
			return re, nil
		}
	}
	return nil, r.s.failure(re)
}
