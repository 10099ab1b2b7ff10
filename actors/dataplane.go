// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// Dataplane is what a table actor needs of the kernel. dataplane.Kernel and dataplane.Sim
// satisfy it. It is called by one goroutine for each table at a time, and by several for
// different tables at once.
type Dataplane interface {
	// Restore applies one block, *table to COMMIT, as a whole or not at all. An error is a
	// *dataplane.RestoreError.
	Restore(ctx context.Context, id rules.TableID, input []byte) error
	// Read returns chains of the table in full: without names all, with names at least those,
	// but for one that does not exist.
	Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error)
	// Canon returns what the tool reads back for each rule; nil where it refuses the rule.
	// An error means that it cannot be had here, and texts are compared instead.
	Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error)
}

// Trier is a Dataplane that can try rules away from the live table. With one a batch that
// the kernel refuses is taken apart there, and rules of a kind that has not been seen before
// are tried before they are sent. dataplane.Kernel and dataplane.Sim satisfy it.
type Trier interface {
	// Try loads a batch where it harms nobody and says what is refused of it. An error means
	// that it cannot be had now; one that is dataplane.ErrNoScratch, never.
	Try(ctx context.Context, id rules.TableID, b dataplane.Batch) (dataplane.Trial, error)
}

// canTry tells whether a Dataplane is a Trier.
func canTry(dp Dataplane) bool {
	_, ok := dp.(Trier)
	return ok
}
