// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

// TestOnKernel replays every log on the kernel of its backend: the answers are those of the
// simulator, in the same order, and the tables end up with the same chains, policies, and
// jumps. How the kernel spells a rule is not compared.
func TestOnKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("replaying on the kernel takes a while")
	}
	logs, err := filepath.Glob(filepath.Join(replayDir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".log"), func(t *testing.T) {
			t.Parallel()
			onKernel(t, parseFile(t, path))
		})
	}
}

func onKernel(t *testing.T, l *Log) {
	w, err := NewKernelWorld(l.Header.Backend, "")
	if err != nil {
		t.Skipf("no kernel: %v", err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	want, err := Replay(l)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReplayOn(l, w)
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff("simulator", "kernel", outline(want), outline(got)); d != "" {
		t.Errorf("the kernel does otherwise:\n%s", d)
	}
}

// outline is what of a transcript does not depend on how the kernel spells a rule.
func outline(t *Transcript) string {
	var b strings.Builder
	for _, r := range t.Records {
		switch r.Kind {
		case actors.EventAnswer:
			fmt.Fprintf(&b, "%s %s\n", r.ID, r.Answer)
		case actors.EventRestore:
			fmt.Fprintf(&b, "%s restore, %d lines, ok %v\n", r.Table, strings.Count(r.Restore, "\n"), r.Err == nil)
		}
	}
	var tables []string
	for id, text := range t.Final {
		tables = append(tables, id+"\n"+shape(text))
	}
	slices.Sort(tables)
	return b.String() + strings.Join(tables, "")
}

// shape reduces save text to declarations, and the target of each rule.
func shape(text string) string {
	set, err := rules.ParseSave(strings.NewReader(text))
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, c := range set.Tables[0].Chains {
		fmt.Fprintf(&b, "%s %s:", c.Name, c.Policy)
		for _, r := range c.Rules {
			b.WriteString(" " + r.Rule.Target())
		}
		b.WriteByte('\n')
	}
	return b.String()
}
