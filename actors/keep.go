// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

const (
	// keepAfter is how long after a change the state file is written at the earliest.
	keepAfter = time.Second
	// keepShare bounds what keeping costs: between two writes lies so many times what the last
	// one took.
	keepShare = 20
)

// holder is a Dataplane of which one process writes a table. Who is not that one must not write
// its state file either.
type holder interface {
	Hold(id rules.TableID) error
}

// keeper keeps a table's state file. Its fields are the actor's, except where said.
type keeper struct {
	file    stateFile
	hold    holder // nil: nobody else can write the table
	begun   bool   // the file has been read, or is known not to be there
	changed bool   // since the last write
	writing bool
	number  uint64 // of the last write
	cost    time.Duration
	told    string // why it could not be written last

	mu    sync.Mutex // guards what follows; taken beside the actor
	wrote uint64     // the newest write
	sum   string     // what the file began with then
}

// kept comes back when a write is over.
type kept struct {
	cost time.Duration
	err  error
}

// keeperOf returns what keeps a table's state file, nil where there is to be none.
func (r *Runtime) keeperOf(id rules.TableID) *keeper {
	if r.opts.StateDir == "" {
		return nil
	}
	identity := ""
	if dp, ok := r.dp.(Identifier); ok {
		if identity = dp.Identity(); identity == "" {
			r.opts.Logger.Warn().Stringer("table", id).Msg("there is no state file, since the kernel's state cannot be told from another one")
			return nil
		}
	}
	k := &keeper{file: newStateFile(r.opts.StateDir, id, identity)}
	k.hold, _ = r.dp.(holder)
	return k
}

// load takes over what an earlier process has left, once.
func (s *shell) load() {
	k := s.keep
	if k == nil || k.begun {
		return
	}
	k.begun = true
	v, err := k.file.read()
	if err == nil {
		err = s.core.load(v)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.rt.opts.Logger.Warn().Err(err).Stringer("table", s.core.id).Str("file", k.file.path).
			Msg("the state file is ignored, and the table is read")
	}
}

// load has the first look be a scan, which shows what is still as it was.
func (c *core) load(v transaction.Saved) error {
	if err := c.state.Load(v); err != nil {
		return err
	}
	c.eyes.open = c.eyes.able
	return nil
}

// noteResult notes whether an operation may have changed what is to be kept.
func (s *shell) noteResult(result event) {
	switch e := result.(type) {
	case lookDone:
		if e.same || e.err != nil {
			return
		}
	case readDone:
		if e.err != nil {
			return
		}
	case restoreDone:
		if e.err != nil {
			return
		}
	case closeDone, verifyDone:
	default:
		return
	}
	s.noteKeep()
}

// noteKeep has the state file written soon.
func (s *shell) noteKeep() {
	k := s.keep
	if k == nil {
		return
	}
	k.changed = true
	if !k.writing && !s.ending() && s.timers[keepTimer] == nil {
		s.setTimer(keepTimer, max(keepAfter, keepShare*k.cost))
	}
}

// keepNow writes the state file, beside the mailbox.
func (s *shell) keepNow() {
	k := s.keep
	if k == nil {
		return
	}
	v, seen := s.core.state.Save()
	if !seen {
		return
	}
	k.changed, k.writing = false, true
	k.number++
	number, root, self := k.number, s.root, s.self
	s.work.Go(func() {
		begin := time.Now()
		err := k.write(number, v)
		root.Send(self, kept{time.Since(begin), err})
	})
}

// write writes what a file is to hold, unless something newer has been written or it is there.
func (k *keeper) write(number uint64, v transaction.Saved) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number < k.wrote {
		return nil
	}
	if k.hold != nil {
		if err := k.hold.Hold(v.Table); err != nil {
			return err
		}
	}
	text := k.file.render(v)
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if _, err := os.Lstat(k.file.path); err == nil && k.sum == string(first) {
		return nil
	}
	if err := k.file.write(text); err != nil {
		return err
	}
	k.wrote, k.sum = number, string(first)
	return nil
}

// kept goes on after a write. What cannot be written is told once for each reason: the next start
// will have to read the table.
func (s *shell) kept(m kept) {
	k := s.keep
	k.writing, k.cost = false, m.cost
	reason := ""
	if m.err != nil {
		reason = m.err.Error()
	}
	if m.err != nil && reason != k.told {
		s.rt.opts.Logger.Warn().Err(m.err).Stringer("table", s.core.id).Msg("the state file cannot be written")
	}
	k.told = reason
	if k.changed {
		s.noteKeep()
	}
}
