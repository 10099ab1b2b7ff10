// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tableward/tableward/rules"
)

const (
	// expectPrefix names the chains that are loaded to learn their digests.
	expectPrefix = "tableward-expect-"
	// A block of many chains costs an nft tool the square of their number; a legacy tool reads
	// and writes all of the table for each block.
	expectBatchNFT    = 100
	expectBatchLegacy = 1000
	maxIdleExpecters  = 2
)

// Expect returns what Scan would give of these chains if the kernel held them, by their names:
// Digest, Digests, which has more than one for a rule that stands for several, and Jumps. They
// are loaded in a scratch network namespace, where nothing reaches them, the chains that they
// jump to are empty and the sets that they name are made; what Rule.Jump does not take for a
// chain is none.
//
// A chain is left out if a rule of it is refused there, or cannot be tried there: one with
// IDLETIMER, or with an object that only the live namespace has. The error is ErrNoScratch
// where no scratch namespace can be had and read, else a *RestoreError.
func (k *Kernel) Expect(ctx context.Context, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error) {
	t, err := k.toolset(id)
	if err != nil {
		return nil, err
	}
	pool := &k.scanner().expect
	for {
		e, err := pool.take(k)
		if err != nil {
			return nil, err
		}
		used := e.chains > 0
		out, err := e.expect(ctx, k, t, id, chains)
		pool.give(k, e, err == nil)
		// The namespace of one that was in use, or its tool, may have been taken away from us.
		if err == nil || !used || ctx.Err() != nil || errors.Is(err, errDeadline) {
			return out, err
		}
	}
}

// expecters are the scratch namespaces that wait for the next Expect.
type expecters struct {
	mu   sync.Mutex // guards idle
	idle []*expecter
}

func (p *expecters) take(k *Kernel) (*expecter, error) {
	if e := p.pop(); e != nil {
		return e, nil
	}
	r, err := k.freshRoom()
	if err != nil {
		return nil, err
	}
	if r.s.ns == nil {
		return nil, errors.Join(fmt.Errorf("%w: that of another user namespace cannot be read", ErrNoScratch), r.s.close())
	}
	return &expecter{
		room:   r,
		reader: &reader{ns: r.s.ns, settled: new(atomic.Uint64), wg: &k.scanner().wg, inet: -1, inet6: -1},
	}, nil
}

func (p *expecters) pop() *expecter {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	e := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return e
}

// give keeps an expecter for the next one, if it is fit for it, or closes it.
func (p *expecters) give(k *Kernel, e *expecter, fit bool) {
	p.mu.Lock()
	keep := fit && !e.spoilt && e.chains < maxRoomChains && len(p.idle) < maxIdleExpecters
	if keep {
		p.idle = append(p.idle, e)
	}
	p.mu.Unlock()
	if !keep {
		k.wg.Go(e.close)
	}
}

func (p *expecters) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.idle {
		e.close()
	}
	p.idle = nil
}

// expecter loads chains in a scratch namespace and reads them. It is used by one at a time.
type expecter struct {
	room   *room
	reader *reader
	chains int  // that were loaded
	spoilt bool // not to be used again
}

func (e *expecter) close() {
	e.reader.close()
	e.room.close()
}

func (e *expecter) expect(ctx context.Context, k *Kernel, t toolset, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error) {
	x := expectation{expecter: e, ctx: ctx, k: k, tools: t, id: id, out: make(map[string]rules.SavedChain, len(chains))}
	var named []rules.Rule
	for _, c := range chains {
		for _, r := range c.Rules {
			if len(r.Sets()) > 0 {
				named = append(named, r)
			}
		}
	}
	e.room.s.makeSets(ctx, k, id.IPVersion, named)
	var load []rules.Chain
	for _, c := range chains {
		switch {
		case len(c.Rules) == 0:
			x.out[c.Name] = rules.SavedChain{Name: c.Name, Digest: emptyContent, Digests: []uint64{}}
		case !slices.ContainsFunc(c.Rules, x.cannotTry):
			load = append(load, c)
		}
	}
	size := expectBatchNFT
	if k.backend == Legacy {
		size = expectBatchLegacy
	}
	for part := range slices.Chunk(load, size) {
		if err := x.load(part); err != nil {
			return nil, err
		}
	}
	return x.out, nil
}

// expectation is one Expect.
type expectation struct {
	*expecter
	ctx   context.Context
	k     *Kernel
	tools toolset
	id    rules.TableID
	out   map[string]rules.SavedChain
}

func (x *expectation) cannotTry(r rules.Rule) bool {
	return !probeable(r) || !x.room.s.judges(r) || !x.room.s.hasSets(x.id.IPVersion, r)
}

// load loads chains in one block and notes their digests. A chain that is refused is found by
// its line, or by halves where no line is named.
func (x *expectation) load(chains []rules.Chain) error {
	for len(chains) > 0 {
		names := make([]string, len(chains))
		for i := range names {
			names[i] = expectPrefix + itoa(x.chains+i)
		}
		x.chains += len(chains)
		x.k.stats.probes.Add(1)
		a, err := x.room.send(x.ctx, x.k, x.tools, x.id, [][]probeLine{x.block(chains, names)}, true)
		if err != nil {
			return err
		}
		if a.reason == nil {
			return x.read(chains, names)
		}
		bad := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(a.reason.Text, "-A "+name+" ") })
		switch half := len(chains) / 2; {
		case bad >= 0:
			chains = slices.Delete(slices.Clone(chains), bad, bad+1)
		case half == 0:
			return nil
		default:
			if err := x.load(chains[:half]); err != nil {
				return err
			}
			chains = chains[half:]
		}
	}
	return nil
}

// block is a block that holds chains under other names, which are new each time: on nft, where
// nothing is deleted, to fill a chain anew would wait for the grace period.
func (x *expectation) block(chains []rules.Chain, names []string) []probeLine {
	heads := slices.Clone(names)
	var lines []probeLine
	for i, c := range chains {
		for _, r := range c.Rules {
			lines = append(lines, probeLine{text: "-A " + names[i] + " " + r.String()})
			to := r.Jump()
			if to == "" || rules.IsBuiltin(x.id.Name, to) {
				continue
			}
			heads = append(heads, to)
			// Where there is a chain LOG, "-j LOG" jumps to it: nobody else must find it.
			x.spoilt = x.spoilt || rules.IsVerdict(to) || rules.IsExtension(to)
		}
	}
	slices.Sort(heads)
	heads = slices.Compact(heads)
	declarations := make([]probeLine, len(heads))
	for i, name := range heads {
		declarations[i].text = ":" + name + " - [0:0]"
	}
	return append(declarations, lines...)
}

// read reads the chains that were loaded.
func (x *expectation) read(chains []rules.Chain, names []string) error {
	snap, err := x.reader.scan(x.ctx, x.k.backend, x.id, names)
	if err != nil {
		return scanError(x.ctx, x.id, err)
	}
	for i, c := range chains {
		saved, found := snap.Chains[names[i]]
		if !found {
			return scanError(x.ctx, x.id, errNotUnderstood)
		}
		saved.Name = c.Name
		x.out[c.Name] = saved
	}
	return nil
}
