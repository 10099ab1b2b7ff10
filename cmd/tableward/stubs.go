// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// stubs returns the chains of a table that the messages need, that nobody sent, and that
// hold the stub's rule now.
func (s *session) stubs(ctx context.Context, id rules.TableID) []string {
	candidates := s.stubCandidates(id)
	var out, unknown []string
	for _, name := range candidates {
		if s.wroteStub(id, name) {
			out = append(out, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		out = append(out, s.readStubs(ctx, id, unknown)...)
	}
	slices.Sort(out)
	return out
}

// stubCandidates returns the targets of the messages' rules, and the chains deleted, that no
// message rewrites.
func (s *session) stubCandidates(id rules.TableID) []string {
	var names []string
	rewritten := map[string]bool{}
	for _, m := range s.msgs {
		if m.Table != id {
			continue
		}
		for _, l := range m.Rules {
			names = append(names, l.Rule.Jump())
		}
		switch b := m.Body.(type) {
		case transaction.DeleteChains:
			names = append(names, b.Chains...)
		case transaction.RewriteChains:
			rewritten[b.Chains[0].Name] = true
		}
	}
	extensions := s.kernel.Info().Extensions
	names = slices.DeleteFunc(names, func(n string) bool {
		return n == "" || rewritten[n] || slices.Contains(extensions, n) || rules.IsBuiltin(id.Name, n)
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *session) wroteStub(id rules.TableID, name string) bool {
	stub := transaction.MissingStub(id.Name)[0]
	line := rules.Line{Command: rules.Append, Chain: name, Rule: stub}.AppendTo([]byte("\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.counts[id].written, func(input []byte) bool {
		return bytes.Contains(input, append(line, '\n'))
	})
}

// readStubs asks the kernel which of the chains are stubs of an earlier run.
func (s *session) readStubs(ctx context.Context, id rules.TableID, names []string) []string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the command's own may be over
	defer cancel()
	snap, err := s.kernel.Read(ctx, id, names...)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	s.counts[id].reads++
	s.mu.Unlock()
	stub := transaction.MissingStub(id.Name)[0].String()
	var out []string
	for _, name := range names {
		c := snap.Chains[name]
		if len(c.Rules) == 1 && c.Rules[0].Text == stub {
			out = append(out, name)
		}
	}
	return out
}
