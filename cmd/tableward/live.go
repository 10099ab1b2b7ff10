// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// live answers what must be known of the kernel before anything is sent. A table is read
// when its first question comes, once.
type live struct {
	ctx    context.Context
	kernel kernel
	info   dataplane.Info
	netns  string
	prefix []string                          // names that begin so are ours
	doomed bool                              // what has a prefix and is declared by no file is about to go
	take   []string                          // declared whoever has them
	snaps  map[rules.TableID]*rules.Snapshot // nil: it cannot be read
	// gone tells of chains that exist and are about to go; nil: there are none.
	gone func(id rules.TableID, chain string) bool
	// shy keeps from reading legacy tables that are not there, which would make them.
	shy bool
}

func newLive(ctx context.Context, k kernel, f *flags) *live {
	return &live{
		ctx: ctx, kernel: k, info: k.Info(), netns: f.netns, prefix: f.prefixes, doomed: f.prune, take: f.take,
		snaps: map[rules.TableID]*rules.Snapshot{},
	}
}

// snapshot returns a table as it was read first, nil when it cannot be read.
func (l *live) snapshot(id rules.TableID) *rules.Snapshot {
	snap, asked := l.snaps[id]
	if !asked && l.shy && l.info.Backend == "legacy" && !legacyTableInUse(l.netns, id) {
		empty := emptyTable(id)
		snap, asked = &empty, true
		l.snaps[id] = snap
	}
	if !asked {
		if s, err := l.kernel.Read(l.ctx, id); err == nil {
			snap = &s
		}
		l.snaps[id] = snap
	}
	return snap
}

// has tells whether the kernel has a chain. A table that cannot be read is taken to have
// every chain: its messages get their answer from the runtime, which fails on it as well.
func (l *live) has(id rules.TableID, chain string) bool {
	snap := l.snapshot(id)
	if snap == nil {
		return true
	}
	_, found := snap.Chains[chain]
	return found
}

// reads returns how often a table was read.
func (l *live) reads(id rules.TableID) int {
	if _, asked := l.snaps[id]; asked {
		return 1
	}
	return 0
}

// refuseHooks refuses files with a rule of a kernel chain that jumps to a chain which no
// file declares and the kernel lacks: a stub behind it would drop traffic for a slip of the
// pen. A file that is refused declares nothing, so it may take others with it.
func (l *live) refuseHooks(set *fileSet) {
	for {
		why := l.unmetHooks(set)
		if len(why) == 0 {
			return
		}
		set.refuse(why)
	}
}

// unmetHooks finds the files that refuseHooks refuses.
func (l *live) unmetHooks(set *fileSet) map[*rulefile.File]*rulefile.Error {
	declared := set.declared()
	why := map[*rulefile.File]*rulefile.Error{}
	for _, f := range set.files {
		for _, h := range f.Hooks {
			if why[f] == nil && l.unmet(h, declared) {
				why[f] = &rulefile.Error{File: f.Name, Err: &rules.SyntaxError{
					Line: h.Line.Number, Column: h.Column, Text: h.Line.Text, Reason: l.unmetReason(h),
				}}
			}
		}
	}
	return why
}

// unmet tells whether a hook's chain is nowhere. Targets that cannot be chains are left to
// the message, whose answer says it better.
func (l *live) unmet(h rulefile.Hook, declared map[rules.TableID]map[string]bool) bool {
	if !isChainTarget(h, l.info.Extensions) || declared[h.Table][h.Target] {
		return false
	}
	return l.doomed && hasPrefix(l.prefix, h.Target) || l.goes(h) || !l.has(h.Table, h.Target)
}

func (l *live) goes(h rulefile.Hook) bool { return l.gone != nil && l.gone(h.Table, h.Target) }

func (l *live) unmetReason(h rulefile.Hook) string {
	switch {
	case l.goes(h):
		return fmt.Sprintf("chain %s is declared by no file any more: declare it, or allow a stub with --stub-missing", h.Target)
	case l.doomed && hasPrefix(l.prefix, h.Target):
		return fmt.Sprintf("chain %s is declared by no file, so that --prune deletes it: declare it, or allow a stub with --stub-missing", h.Target)
	}
	return fmt.Sprintf("chain %s is declared by no file and does not exist in %s: declare it, or allow a stub with --stub-missing", h.Target, h.Table)
}

func isChainTarget(h rulefile.Hook, extensions []string) bool {
	name := h.Target
	return !rules.IsVerdict(name) && !rules.IsExtension(name) && !slices.Contains(extensions, name) &&
		!rules.IsBuiltin(h.Table.Name, name) && rules.SimilarTarget(name) == ""
}

// wellKnown are the names by which other programs call their chains.
var wellKnown = []string{
	"DOCKER", "KUBE-", "CNI-", "f2b-", "ufw-", "LIBVIRT_", "cali-", "CILIUM_", "ts-", "ISTIO_",
}

func isWellKnown(chain string) bool {
	return slices.ContainsFunc(wellKnown, func(p string) bool { return strings.HasPrefix(chain, p) })
}

// warnOfOwners warns of the chains that contested finds.
func (l *live) warnOfOwners(w io.Writer, set *fileSet) {
	for _, f := range set.files {
		for _, finding := range l.contested(f) {
			fmt.Fprintf(w, "warning: %s\n", locateFinding(f, finding))
		}
	}
}

// contested finds declared chains that exist, have none of our prefixes, and bear the name
// of another program's chains: that program will write them too.
func (l *live) contested(f *rulefile.File) []rulefile.Finding {
	var out []rulefile.Finding
	for _, d := range f.Declared {
		name := d.Line.Chain
		if hasPrefix(l.prefix, name) || slices.Contains(l.take, name) || !isWellKnown(name) || !l.exists(d.Table, name) {
			continue
		}
		out = append(out, rulefile.Finding{Line: d.Line, Column: d.Line.Column, Reason: fmt.Sprintf(
			"chain %s exists in %s and has the name of another program's chain, which may write it again; --take %s if it is to be so", name, d.Table, name)})
	}
	return out
}

// exists is has, but false for a table that cannot be read.
func (l *live) exists(id rules.TableID, chain string) bool {
	return l.has(id, chain) && l.snaps[id] != nil
}

// absent tells whether a message has to wait for its kernel chain.
func (l *live) absent(m *filed) bool {
	b, ok := m.Body.(transaction.EditRules)
	return ok && b.Kind() == "insert" && !rules.IsBuiltin(m.Table.Name, b.Chain) && !l.has(m.Table, b.Chain)
}

// warnOfWaits says which chains are waited for.
func (l *live) warnOfWaits(w io.Writer, msgs []*filed, timeout time.Duration) {
	for _, m := range msgs {
		if l.absent(m) {
			fmt.Fprintf(w, "warning: %s:%d:%d: chain %s does not exist in %s: waiting up to %s for it\n",
				m.file.Name, m.Head.Number, max(m.Head.Column, 1), m.Head.Chain, m.Table, timeout)
		}
	}
}
