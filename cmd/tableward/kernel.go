// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// kernel is what apply needs of a dataplane.
type kernel interface {
	actors.Dataplane
	Info() dataplane.Info
	// Check tries rules without touching the live tables.
	Check(ctx context.Context, id rules.TableID, b dataplane.Batch) ([]dataplane.Verdict, error)
	Close() error
}

// openKernel opens the kernel that the flags name.
func openKernel(ctx context.Context, f *flags) (kernel, error) {
	opts := dataplane.Options{NetNS: f.netns, StateDir: f.stateDir}
	switch f.backend {
	case "sim":
		return simulator{dataplane.NewSim(dataplane.NFT)}, nil
	case "nft", "legacy":
		opts.Backend = dataplane.Backend(f.backend)
	}
	k, err := dataplane.NewKernel(ctx, opts)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// simulator is a Sim as a kernel: it has nothing to give back.
type simulator struct{ *dataplane.Sim }

func (simulator) Close() error { return nil }

// dryKernel plans against a kernel and writes nothing: it keeps what would be sent. Without
// a kernel, and for tables that cannot be read, it plans against empty tables.
type dryKernel struct {
	kernel // nil when there is none
	// blind is told once for each table that cannot be read, with the reason.
	blind func(id rules.TableID, err error)

	mu     sync.Mutex // guards what follows
	blocks []dryBlock
	blinds map[rules.TableID]bool
}

// dryBlock is a block that would be sent.
type dryBlock struct {
	IP    rules.IPVersion `json:"ip"`
	Table string          `json:"table"`
	Input string          `json:"input"`
}

// inOrder returns the blocks, those of each table in the order in which they came: the deletes
// of one table may come beside what the next one is sent.
func (d *dryKernel) inOrder() []dryBlock {
	d.mu.Lock()
	defer d.mu.Unlock()
	blocks := slices.Clone(d.blocks)
	slices.SortStableFunc(blocks, func(a, b dryBlock) int {
		return rules.TableID{IPVersion: a.IP, Name: a.Table}.Compare(rules.TableID{IPVersion: b.IP, Name: b.Table})
	})
	return blocks
}

func (d *dryKernel) Restore(_ context.Context, id rules.TableID, input []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks = append(d.blocks, dryBlock{id.IPVersion, id.Name, string(input)})
	return nil
}

func (d *dryKernel) Read(ctx context.Context, id rules.TableID, chains ...string) (rules.Snapshot, error) {
	err := errNoKernel
	if d.kernel != nil {
		var snap rules.Snapshot
		if snap, err = d.kernel.Read(ctx, id, chains...); err == nil || ctx.Err() != nil {
			return snap, err
		}
	}
	d.mu.Lock()
	told := d.blinds[id]
	if d.blinds == nil {
		d.blinds = map[rules.TableID]bool{}
	}
	d.blinds[id] = true
	d.mu.Unlock()
	if !told {
		d.blind(id, err)
	}
	return emptyTable(id), nil
}

func (d *dryKernel) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	if d.kernel == nil {
		return nil, errNoKernel
	}
	return d.kernel.Canon(ctx, id, rs)
}

func (d *dryKernel) Check(ctx context.Context, id rules.TableID, b dataplane.Batch) ([]dataplane.Verdict, error) {
	if d.kernel == nil {
		return nil, dataplane.ErrNoScratch
	}
	return d.kernel.Check(ctx, id, b)
}

func (d *dryKernel) Info() dataplane.Info {
	if d.kernel == nil {
		return dataplane.Info{}
	}
	return d.kernel.Info()
}

func (d *dryKernel) Close() error {
	if d.kernel == nil {
		return nil
	}
	return d.kernel.Close()
}

var errNoKernel = errors.New("no kernel to read")

// emptyTable is a table as the kernel has it before anybody wrote to it.
func emptyTable(id rules.TableID) rules.Snapshot {
	snap := rules.Snapshot{Table: id, Chains: map[string]rules.SavedChain{}}
	for _, name := range rules.BuiltinChains(id.Name) {
		snap.Chains[name] = rules.SavedChain{Name: name, Policy: "ACCEPT", Full: true}
	}
	return snap
}

// isPermission tells whether an error is for want of permission.
func isPermission(err error) bool {
	var re *dataplane.RestoreError
	return errors.Is(err, fs.ErrPermission) || errors.As(err, &re) && strings.Contains(re.Reason, "CAP_")
}

// permissionAdvice names the capability that is missing.
func permissionAdvice(f *flags, backend string, err error) string {
	needed := []string{"CAP_NET_ADMIN"}
	if f.netns != "" {
		needed = append(needed, "CAP_SYS_ADMIN (for --netns)")
	}
	if backend == "legacy" || strings.Contains(err.Error(), "CAP_NET_RAW") {
		needed = append(needed, "CAP_NET_RAW (for the legacy backend)")
	}
	return "run as root, or with " + strings.Join(needed, ", ")
}
