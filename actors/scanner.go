// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Scanner is a Dataplane that can look at a table without a tool. With one the table is read
// once, and afterwards only looked at: a refresh costs next to nothing while nobody else
// writes, what was written is verified, and a chain is changed rule by rule, so that the
// rules that stay keep their counters. dataplane.Kernel and dataplane.Sim satisfy it.
type Scanner interface {
	// Pulse returns a number, never 0, that stays the same as long as nobody else has changed
	// the table, as far as the kernel tells at next to no cost. Our own Restores do not change
	// it.
	Pulse(ctx context.Context, id rules.TableID) (uint64, error)
	// Scan returns digests, jumps and policies of the table, or of the chains that are named,
	// of these with the digest of each rule.
	Scan(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error)
	// Expect returns the digests that chains would have; what cannot be found out is left out.
	Expect(ctx context.Context, id rules.TableID, chains []rules.Chain) (map[string]rules.SavedChain, error)
	// CanEdit tells whether the tool changes chains rightly by index.
	CanEdit(ctx context.Context, id rules.TableID) bool
}

// The effects and events of looking at a table.
type (
	// doLook looks at the table, or at some chains of it, unless its pulse is still the same.
	doLook struct {
		known  uint64 // 0: look in any case
		first  bool   // whether the tool can edit is not known yet
		chains []string
	}
	lookDone struct {
		op   doLook
		same bool
		scan rules.Snapshot
		took time.Duration
		err  error
		// edits tells, of a first look, whether the tool can edit by index.
		edits bool
	}
	// doClose settles what a scan leaves open. Without a scan, one of the chains comes first.
	doClose struct {
		doubts transaction.Doubts
		scan   *rules.Snapshot
		asked  []string
		known  map[string]rules.SavedChain // of doubts.Expect, what has been found out already
	}
	closeDone struct {
		look   transaction.Look
		expect []rules.Chain // what look.Expected is of
		moved  bool          // somebody has written meanwhile
		err    error
	}
	// doVerify looks at chains that were written.
	doVerify struct {
		chains []string
		pulse  uint64 // before the first of them was written
		// whole says that the pulse tells of every change. On legacy somebody without the lock,
		// who read the table before our block and wrote after it, has put back what was there,
		// and nothing that the pulse is made of is different.
		whole  bool
		doubts transaction.Doubts
		known  map[string]rules.SavedChain // see doClose
		kernel []string                    // those that are not ours
	}
	verifyDone struct {
		op      doVerify
		trusted bool
		kernel  *rules.Snapshot // shows the kernel chains, when these are trusted
		closed  closeDone
	}
	// doDrift tells what others have changed; doRepaired, that it is as it should be again.
	doDrift    struct{ drift Drift }
	doRepaired struct{ drift Drift }
)

func (doLook) isEffect()     {}
func (doClose) isEffect()    {}
func (doVerify) isEffect()   {}
func (doDrift) isEffect()    {}
func (doRepaired) isEffect() {}
func (lookDone) isEvent()    {}
func (closeDone) isEvent()   {}
func (verifyDone) isEvent()  {}

// looker carries out what the effects above ask for.
type looker struct {
	ctx context.Context
	dp  Dataplane
	sc  Scanner
	id  rules.TableID
}

func (l looker) look(op doLook) lookDone {
	if op.first {
		edits := l.canEdit()
		op.first = false
		done := l.look(op)
		done.edits = edits()
		return done
	}
	begin := time.Now()
	if op.known != 0 {
		if p, err := l.sc.Pulse(l.ctx, l.id); err == nil && p == op.known {
			return lookDone{op: op, same: true, took: time.Since(begin)}
		}
	}
	scan, err := l.sc.Scan(l.ctx, l.id, op.chains...)
	return lookDone{op: op, scan: scan, took: time.Since(begin), err: err}
}

func (l looker) close(op doClose) closeDone {
	done := closeDone{expect: op.doubts.Expect, look: transaction.Look{Asked: op.asked, Text: map[string]rules.SavedChain{}}}
	if op.scan != nil {
		done.look.Scan = *op.scan
	} else if done.look.Scan, done.err = l.sc.Scan(l.ctx, l.id, op.asked...); done.err != nil {
		return done
	}
	pulse := done.look.Scan.Pulse
	text := slices.Clone(op.doubts.Text)
	if len(op.doubts.Expect) > 0 {
		expected, err := l.expect(op)
		done.look.Expected = expected
		if err != nil {
			done.err = err
			return done
		}
		var differ []string
		for _, c := range op.doubts.Expect {
			seen, there := done.look.Scan.Chains[c.Name]
			switch want, known := expected[c.Name]; {
			case !there:
			case !known:
				text = append(text, c.Name)
			case want.Digest != seen.Digest:
				differ = append(differ, c.Name)
			}
		}
		done.look.Actual = done.look.Scan.Chains
		if slices.ContainsFunc(differ, func(name string) bool { return done.look.Scan.Chains[name].Digests == nil }) {
			actual, err := l.sc.Scan(l.ctx, l.id, differ...)
			if err != nil {
				done.err = err
				return done
			}
			done.look.Actual = actual.Chains
			done.moved = pulse == 0 || actual.Pulse != pulse
		}
	}
	if len(text) > 0 {
		read, err := l.dp.Read(l.ctx, l.id, text...)
		if err != nil {
			done.err = err
			return done
		}
		for _, name := range text {
			if c, there := read.Chains[name]; there {
				done.look.Text[name] = c
			}
		}
		done.moved = done.moved || pulse == 0 || read.Pulse != pulse
	}
	return done
}

// expect finds out what is not known yet of what chains should look like.
func (l looker) expect(op doClose) (map[string]rules.SavedChain, error) {
	expected := map[string]rules.SavedChain{}
	maps.Copy(expected, op.known)
	rest := slices.DeleteFunc(slices.Clone(op.doubts.Expect), func(c rules.Chain) bool {
		_, known := op.known[c.Name]
		return known
	})
	if len(rest) == 0 {
		return expected, nil
	}
	more, err := l.sc.Expect(l.ctx, l.id, rest)
	maps.Copy(expected, more)
	if errors.Is(err, dataplane.ErrNoScratch) {
		err = nil
	}
	return expected, err
}

func (l looker) verify(op doVerify) verifyDone {
	done := verifyDone{op: op}
	scan, err := l.sc.Scan(l.ctx, l.id, op.chains...)
	switch {
	case err != nil:
		done.closed.err = err
	case op.whole && scan.Pulse != 0 && scan.Pulse == op.pulse:
		done.trusted, done.closed.look.Scan = true, scan
	default:
		asked, own := op.chains, scan
		if !op.whole && scan.Pulse != 0 && scan.Pulse == op.pulse {
			// To read the kernel chains would cost a run of the tool: these are trusted.
			done.kernel, op.doubts.Text = &scan, nil
			own.Chains = maps.Clone(scan.Chains)
			for _, name := range op.kernel {
				delete(own.Chains, name)
			}
			asked = slices.DeleteFunc(slices.Clone(asked), func(name string) bool { return slices.Contains(op.kernel, name) })
		}
		done.closed = l.close(doClose{op.doubts, &own, asked, op.known})
	}
	return done
}

// read is the first look at a table: its rules, and their digests if nobody writes meanwhile.
func (l looker) read() readDone {
	edits := l.canEdit()
	done := l.readOnce()
	done.edits = edits()
	return done
}

// canEdit finds out beside something else whether the tool can edit, and returns what waits
// for that.
func (l looker) canEdit() func() bool {
	if l.sc == nil {
		return func() bool { return false }
	}
	found := make(chan bool, 1)
	go func() {
		defer func() {
			if recover() != nil {
				found <- false
			}
		}()
		found <- l.sc.CanEdit(l.ctx, l.id)
	}()
	return func() bool { return <-found }
}

func (l looker) readOnce() readDone {
	const attempts = 3
	for i := 0; ; i++ {
		snap, err := l.dp.Read(l.ctx, l.id)
		done := readDone{snap: snap, err: err}
		if l.sc == nil || err != nil || snap.Pulse == 0 && i == 0 && !l.pulses() {
			return done
		}
		scan, err := l.sc.Scan(l.ctx, l.id)
		if err != nil {
			return done
		}
		if scan.Pulse != 0 && scan.Pulse == snap.Pulse {
			done.scan = &scan
			return done
		}
		if i+1 == attempts {
			return done
		}
	}
}

func (l looker) pulses() bool {
	_, err := l.sc.Pulse(l.ctx, l.id)
	return err == nil
}

// restore writes a block. One that is right only while nobody else has written is not sent
// when somebody has.
func (l looker) restore(op doRestore) restoreDone {
	var done restoreDone
	if l.sc != nil {
		done.pulse, _ = l.sc.Pulse(l.ctx, l.id)
		if op.pulse != 0 && done.pulse != op.pulse {
			done.moved = true
			return done
		}
	}
	done.err = l.dp.Restore(l.ctx, l.id, op.input)
	if done.err != nil && done.pulse != 0 {
		after, err := l.sc.Pulse(l.ctx, l.id)
		done.shaken = err == nil && after != done.pulse
	}
	return done
}
