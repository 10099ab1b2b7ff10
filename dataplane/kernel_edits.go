// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tableward/tableward/rules"
)

// CanEdit tells whether the tool applies blocks rightly that change chains by index, such as
// "-D chain 3" and "-I chain 2 rule", several of them for several chains at once, beside chains
// that are written as a whole. It tries that once for each IP version, in a scratch namespace,
// which takes some tens of milliseconds. Where none can be had, or anything else goes wrong,
// it returns false; what passes, such as a want of memory, or the end of ctx, is tried again at
// the next call.
func (k *Kernel) CanEdit(ctx context.Context, id rules.TableID) bool {
	t, err := k.toolset(id)
	if err != nil {
		return false
	}
	e := &k.scanner().edits
	e.mu.Lock()
	defer e.mu.Unlock()
	can, known := e.can[id.IPVersion]
	if known {
		return can
	}
	can, err = k.tryEdits(ctx, t, id.IPVersion)
	var re *RestoreError
	if ctx.Err() != nil || errors.Is(err, ErrNoScratch) || errors.As(err, &re) && re.Class == Busy {
		return false
	}
	if e.can == nil {
		e.can = make(map[rules.IPVersion]bool)
	}
	e.can[id.IPVersion] = can
	return can
}

// editors is what CanEdit has found out.
type editors struct {
	mu  sync.Mutex // guards can, and is held while it is tried
	can map[rules.IPVersion]bool
}

// editStep is a block, and what three chains hold after it.
type editStep struct {
	lines   []string
	a, b, c []string
}

// The chains of the trial. FORWARD leads to C, which leads to A, and later to B.
const (
	editA = "tableward-edit-a"
	editB = "tableward-edit-b"
	editC = "tableward-edit-c"
)

// editSteps are the blocks of the trial. All deletions come first, from the bottom up, then
// what is inserted or appended, from the bottom up too. The second and the third block are
// edits, because what a tool that is kept open remembers of the first must not mislead it.
func editSteps() []editStep {
	rule := func(port int) string { return fmt.Sprintf("-p tcp -m tcp --dport %d -j ACCEPT", port) }
	list := func(ports ...int) []string {
		out := make([]string, len(ports))
		for i, port := range ports {
			out[i] = rule(port)
		}
		return out
	}
	toA, toB := "-j "+editA, "-j "+editB
	fill := []string{
		":" + editA + " - [0:0]", ":" + editB + " - [0:0]", ":" + editC + " - [0:0]",
		"-A FORWARD -j " + editC, "-A " + editC + " " + toA, "-A " + editC + " " + rule(31), "-A " + editC + " " + rule(32),
	}
	for port := 1; port <= 5; port++ {
		fill = append(fill, "-A "+editA+" "+rule(port))
	}
	for port := 21; port <= 23; port++ {
		fill = append(fill, "-A "+editB+" "+rule(port))
	}
	edit := []string{
		":" + editB + " - [0:0]", "-D " + editA + " 5", "-D " + editA + " 3", "-D " + editA + " 1", "-D " + editC + " 2",
		"-A " + editB + " " + rule(24), "-A " + editB + " " + rule(25),
		"-A " + editA + " " + rule(6), "-I " + editA + " 2 " + rule(8), "-I " + editA + " 2 " + rule(7), "-I " + editA + " 1 " + rule(9),
		"-A " + editC + " " + rule(33), "-I " + editC + " 2 " + toB,
	}
	again := []string{
		"-D " + editA + " 6", "-D " + editA + " 2", "-D " + editC + " 4", "-D " + editC + " 2", "-D " + editB + " 1",
		"-I " + editA + " 3 " + rule(10), "-A " + editB + " " + rule(26), "-I " + editC + " 1 " + toB,
	}
	return []editStep{
		{fill, list(1, 2, 3, 4, 5), list(21, 22, 23), append([]string{toA}, list(31, 32)...)},
		{edit, list(9, 2, 7, 8, 4, 6), list(24, 25), append([]string{toA, toB}, list(32, 33)...)},
		{again, list(9, 7, 10, 8, 4), list(25, 26), append([]string{toB, toA}, list(32)...)},
	}
}

// tryEdits tries edits. An error says nothing good of the tool either.
func (k *Kernel) tryEdits(ctx context.Context, t toolset, v rules.IPVersion) (bool, error) {
	r, err := k.freshRoom()
	if err != nil {
		return false, err
	}
	defer k.wg.Go(r.close) // an nft tool takes a while to end
	id := rules.TableID{IPVersion: v, Name: "filter"}
	for _, step := range editSteps() {
		block := make([]probeLine, len(step.lines))
		for i, line := range step.lines {
			block[i].text = line
		}
		k.stats.probes.Add(1)
		a, err := r.send(ctx, k, t, id, [][]probeLine{block}, false)
		if err != nil || a.reason != nil {
			return false, err
		}
		saved, re := k.save(ctx, t, r.s.start, r.s.lockFile, id.Name)
		if re != nil {
			return false, re
		}
		if !step.holds(saved.Snapshot(id)) {
			return false, nil
		}
	}
	return true, nil
}

// holds tells whether the chains hold what they must after the step.
func (s editStep) holds(snap rules.Snapshot) bool {
	for name, want := range map[string][]string{editA: s.a, editB: s.b, editC: s.c, "FORWARD": {"-j " + editC}} {
		if !slices.EqualFunc(snap.Chains[name].Rules, want, func(r rules.SavedRule, text string) bool { return r.Text == text }) {
			return false
		}
	}
	return true
}
