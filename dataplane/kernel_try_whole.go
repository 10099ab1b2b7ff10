// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/rules"
)

// ErrTogether says that a batch is refused as a whole. Where each of its rules is taken by itself, some
// of them fail only together.
var ErrTogether = errors.New("refused together")

// tryWhole loads a batch as one block, as it would be loaded in the live namespace, in a
// scratch namespace of its own.
func (k *Kernel) tryWhole(ctx context.Context, id rules.TableID, b Batch) (Trial, error) {
	begin := time.Now()
	tools, err := k.toolset(id)
	if err != nil {
		return Trial{}, err
	}
	s, err := k.newScratch()
	if err != nil {
		return Trial{}, err
	}
	defer s.close()
	s.makeSets(ctx, k, id.IPVersion, ruleset(b))
	k.stats.probes.Add(1)
	re := k.restore(ctx, tools, s.start, s.lockFile, []byte(wholeBlock(id, b)))
	t := Trial{Probes: 1, Took: time.Since(begin)}
	switch {
	case re == nil:
		return t, nil
	case re.Class == Rejected || re.Class == RejectedSomewhere:
		return t, together(re)
	}
	return t, s.failure(re)
}

// together is the error of a batch that is refused as a whole.
func together(re *RestoreError) *RestoreError {
	return &RestoreError{
		Class: RejectedSomewhere, ExitCode: re.ExitCode, Stderr: re.Stderr, Reason: re.Reason,
		Err: fmt.Errorf("%w: %w", ErrTogether, re),
	}
}

func ruleset(b Batch) []rules.Rule {
	var out []rules.Rule
	for _, c := range slices.Concat(b.Chains, b.Kernel) {
		out = append(out, c.Rules...)
	}
	return out
}

// wholeBlock is a batch as restore input: declarations, then what nothing reaches yet, then
// what hooks it up.
func wholeBlock(id rules.TableID, b Batch) string {
	var names, lines, hooks []string
	for _, c := range slices.Concat(b.Chains, b.Kernel, b.Around) {
		names = append(names, c.Name)
		for _, r := range c.Rules {
			if !probeable(r) {
				continue
			}
			line := "-A " + c.Name + " " + r.String()
			if rules.IsBuiltin(id.Name, c.Name) {
				hooks = append(hooks, line)
			} else {
				lines = append(lines, line)
			}
			names = append(names, r.Jump())
		}
	}
	slices.Sort(names)
	var out strings.Builder
	fmt.Fprintf(&out, "*%s\n", id.Name)
	for _, name := range slices.Compact(names) {
		if name != "" && !rules.IsBuiltin(id.Name, name) {
			fmt.Fprintf(&out, ":%s - [0:0]\n", name)
		}
	}
	for _, line := range append(lines, hooks...) {
		out.WriteString(line + "\n")
	}
	out.WriteString("COMMIT\n")
	return out.String()
}
