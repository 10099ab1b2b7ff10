// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// speedPair is one operation on both sides. What can be done before, such as the texts of rules,
// has been done when it exists.
type speedPair struct {
	ours    func()
	plain   func() cost
	touched []string  // chains that ours writes
	bed     *speedBed // of ours, where it is the pair's own
	end     func()    // after both; nil: nothing
}

// turn counts the pairs of a bed, so that each has another chain and another content.
func (s *speedBed) turn() int {
	s.turns++
	return s.turns
}

// sendAll is a pair of messages in one batch and a block.
func (s *speedBed) sendAll(msgs []transaction.Message, block []byte, touched ...string) speedPair {
	return speedPair{
		ours:    func() { s.send(msgs...) },
		plain:   func() cost { return s.plain.restore(s.tb, block) },
		touched: touched,
	}
}

func changeOne(s *speedBed) speedPair {
	c := s.changed(s.turn() * 37 % len(s.versions))
	return s.sendAll([]transaction.Message{rewriteOf(c)}, blockOf([]rules.Chain{c}), c.Name)
}

// addChain: who adds a policy writes its chain and the whole of the dispatch chain.
func addChain(s *speedBed) speedPair {
	s.versions = append(s.versions, speedVersion{})
	n := len(s.versions) - 1
	c := s.chain(n)
	s.jumps = slices.Insert(slices.Clone(s.jumps), s.size.chains/2, rule("-j "+c.Name))
	dispatch := rules.Chain{Name: speedDispatch, Rules: s.jumps}
	msgs := []transaction.Message{rewriteOf(dispatch), rewriteOf(c)}
	return s.sendAll(msgs, blockOf([]rules.Chain{dispatch, c}), dispatch.Name, c.Name)
}

func changeRules(s *speedBed) speedPair {
	for n := range s.versions {
		s.versions[n].one++
	}
	return s.rewriteAll()
}

func changeAll(s *speedBed) speedPair {
	for n := range s.versions {
		s.versions[n].whole++
	}
	return s.rewriteAll()
}

// rewriteAll: a message for each chain, as of that many features.
func (s *speedBed) rewriteAll() speedPair {
	var msgs []transaction.Message
	var chains []rules.Chain
	var names []string
	for n := range s.versions {
		c := s.chain(n)
		msgs, chains, names = append(msgs, rewriteOf(c)), append(chains, c), append(names, c.Name)
	}
	return s.sendAll(msgs, blockOf(chains), names...)
}

// firstLoad is of a namespace that nobody has used, by a runtime that has done nothing yet.
func firstLoad(chains int) func(*speedBed) speedPair {
	return func(s *speedBed) speedPair {
		bed := newSpeedBed(s.tb, s.backend, speedSize{chains: chains})
		p := bed.sendAll(bed.firstMessages(), bed.firstBlock())
		p.bed = bed
		p.end = func() {
			bed.compare()
			bed.close()
		}
		return p
	}
}

const (
	speedMessages = 5000
	speedSenders  = 8
	speedSample   = 100 // plain restores, for all of them would take minutes
)

// manySenders: none waits for an answer before it sends the next message. A chain is one
// sender's.
func manySenders(s *speedBed) speedPair {
	var all []rules.Chain
	for i := range speedMessages {
		all = append(all, s.changed(i%s.size.chains))
	}
	blocks := make([][]byte, speedSample)
	for i := range blocks {
		blocks[i] = blockOf(all[i : i+1])
	}
	return speedPair{
		ours: func() {
			s.answers.Add(len(all))
			var senders sync.WaitGroup
			for sender := range speedSenders {
				senders.Go(func() {
					for i := sender; i < len(all); i += speedSenders {
						if err := s.rt.Tell(filter4, rewriteOf(all[i])); err != nil {
							s.tb.Error(err)
							s.answers.Done()
						}
					}
				})
			}
			senders.Wait()
			s.answers.Wait()
		},
		plain: func() (sum cost) {
			for _, block := range blocks {
				c := s.plain.restore(s.tb, block)
				sum.took += c.took * speedMessages / speedSample
				sum.cpu += c.cpu * speedMessages / speedSample
			}
			return sum
		},
		end: func() { s.plain.restore(s.tb, blockOf(all[speedMessages-min(speedMessages, s.size.chains):])) },
	}
}

func (s *speedBed) refresh() {
	a, err := s.rt.Ask(context.Background(), filter4, transaction.Refresh{})
	s.check([]actors.Answer{a}, err)
}

func refreshNothing(s *speedBed) speedPair {
	p := speedPair{ours: s.refresh, plain: s.timeSave}
	if s.backend == dataplane.NFT {
		p.plain = func() cost { return s.plain.generation(s.tb) }
	}
	return p
}

func (s *speedBed) timeSave() cost {
	_, c := s.plain.timeSave(s.tb)
	return c
}

// refreshOther: a stranger has written to another table of the namespace.
func refreshOther(s *speedBed) speedPair {
	block := fmt.Appendf(nil, "*nat\n:other - [0:0]\n-A other -s 10.0.0.%d/32 -j RETURN\nCOMMIT\n", s.turn()%250)
	s.stranger.restore(s.tb, block)
	s.plain.restore(s.tb, block)
	return speedPair{ours: s.refresh, plain: s.timeSave}
}

// refreshStranger: a stranger has taken a rule out of a chain of ours.
func refreshStranger(s *speedBed) speedPair {
	c := s.chain(s.turn() * 37 % len(s.versions))
	before := s.digest(c.Name)
	spoil := blockOf(nil, "-D "+c.Name+" 5")
	s.stranger.restore(s.tb, spoil)
	s.plain.restore(s.tb, spoil)
	if s.digest(c.Name) == before {
		s.tb.Errorf("chain %s is as it was, though a rule was taken out", c.Name)
	}
	block := blockOf([]rules.Chain{c})
	return speedPair{
		ours: s.refresh,
		plain: func() cost {
			save := s.timeSave()
			restore := s.plain.restore(s.tb, block)
			return cost{save.took + restore.took, save.cpu + restore.cpu}
		},
		touched: []string{c.Name},
		end: func() {
			if s.digest(c.Name) != before {
				s.tb.Errorf("the refresh did not repair chain %s", c.Name)
			}
		},
	}
}

func (s *speedBed) digest(chain string) uint64 {
	snap, err := s.kernel.Scan(context.Background(), filter4, chain)
	if err != nil {
		s.tb.Error(err)
	}
	return snap.Chains[chain].Digest
}

// restart is from a runtime that has done nothing yet to the answers of all messages that asked
// for the table before. Its kernel finds out about the tools first: that is told beside it.
func restart(tb testing.TB, backend dataplane.Backend) *speedResult {
	s := newSpeedBed(tb, backend, speed5000)
	defer s.close()
	s.load()
	s.stop()
	s.stateDir = tb.TempDir()
	s.start(s.options)
	s.send(s.firstMessages()...) // adopts all of it, and keeps it
	r := &speedResult{}
	var kernels []time.Duration
	for range speedPairs {
		s.stop()
		msgs := s.firstMessages()
		begin := time.Now()
		s.startKernel(s.options)
		kernels = append(kernels, time.Since(begin))
		s.takeSteps()
		pause()
		begin = time.Now()
		s.startRuntime()
		s.send(msgs...)
		ours := time.Since(begin)
		pause()
		plain := s.timeSave()
		if n := s.kernel.Stats().Runs; n > 0 {
			tb.Errorf("%d runs of tools", n)
		}
		r.pairs++
		r.ratios.add(ours, plain.took)
		r.ours, r.plain, r.cpu = append(r.ours, ours), append(r.plain, plain.took), append(r.cpu, plain.cpu)
	}
	slices.Sort(kernels)
	r.where = fmt.Sprintf("finding out about the tools, before: %.1f", ms(kernels[len(kernels)/2]))
	s.compare()
	return r
}

// heapAtRest is what a runtime and its kernel keep of a table that was loaded and refreshed, in
// bytes for each byte of the rules' text.
func heapAtRest(tb testing.TB, backend dataplane.Backend) *speedResult {
	s := &speedBed{tb: tb, backend: backend, size: speed5000, versions: make([]speedVersion, speed5000.chains)}
	defer s.close()
	options := testns.Options(tb, s.namespace(), backend)
	for n := range s.versions {
		s.jumps = append(s.jumps, rule("-j "+chainName(n)))
	}
	text := 0
	for n := range s.versions {
		for _, r := range s.chain(n).Rules {
			text += len(r.String())
		}
	}
	before := heapInUse()
	s.start(options)
	s.send(s.firstMessages()...)
	s.refresh()
	s.jumps, s.steps = nil, nil
	after := heapInUse()
	r := &speedResult{ratios: ratios{(float64(after) - float64(before)) / float64(text)}}
	r.where = fmt.Sprintf("%.1f MB for %.1f MB", (float64(after)-float64(before))/1e6, float64(text)/1e6)
	runtime.KeepAlive(s.rt)
	return r
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
