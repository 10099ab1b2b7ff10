// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"sync"
)

// errClosed says that the Kernel was closed.
var errClosed = errors.New("the kernel was closed")

// Watch tells of changes that others make, until ctx ends; then it returns nil. It calls notify
// from one goroutine, which must not block: what is not taken in time is lost, and told as one
// change of which nothing is known. A change may be told although nothing has changed in any
// table that the caller knows; our own Restores are not told.
//
// Change.Command is the command line of Change.PID where it could still be read, else the name
// of the process, which the kernel cuts to 15 bytes; no longer than 200 bytes, and what cannot
// be printed escaped.
//
// On nft each commit in the namespace is told at once, with its generation and who made it,
// but not in which table.
//
// On legacy the kernel tells nothing. Soon after somebody has closed the xtables lock file a
// change is told, without a table, of each process that was seen to have the lock meanwhile, by
// its id as ours are; of "a holder of the xtables lock" if none was seen. It may have listed a
// table only, or be at work in another namespace. What is done without the lock is told within
// a second, without a process, for tables that have had a Pulse or a Restore, and only if
// number of entries, size, hooks or underflows differ: other edits have to be looked for.
//
// Close ends Watch with an error. Any other error is a *RestoreError: nothing can be watched.
func (k *Kernel) Watch(ctx context.Context, notify func(Change)) error {
	if err := k.ns.check(); err != nil {
		return err
	}
	w := &k.pulse.watches
	within, done, err := w.enter(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer done()
	if k.backend == NFT {
		err = k.watchNFT(within, notify)
	} else {
		k.watchLegacy(within, notify)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case within.Err() != nil:
		return unavailable(errClosed)
	}
	return unavailable(err)
}

// watches are the calls of Watch that are under way.
type watches struct {
	mu     sync.Mutex // guards the next two
	closed bool
	ends   map[*context.CancelFunc]struct{}
	wg     sync.WaitGroup
}

// enter returns a context that ends with ctx and with the Kernel, and what is called at the end.
func (w *watches) enter(ctx context.Context) (context.Context, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, errClosed
	}
	within, cancel := context.WithCancel(ctx)
	if w.ends == nil {
		w.ends = make(map[*context.CancelFunc]struct{})
	}
	w.ends[&cancel] = struct{}{}
	w.wg.Add(1)
	return within, func() {
		w.mu.Lock()
		delete(w.ends, &cancel)
		w.mu.Unlock()
		cancel()
		w.wg.Done()
	}, nil
}

func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	for cancel := range w.ends {
		(*cancel)()
	}
	w.mu.Unlock()
	w.wg.Wait()
}
