// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

var update = flag.Bool("update", false, "rewrite golden files")

const replayDir = "../../../../testdata/replay"

// TestGolden replays every log and compares the whole transcript.
func TestGolden(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(replayDir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs in %s: %v", replayDir, err)
	}
	for _, path := range logs {
		name := strings.TrimSuffix(filepath.Base(path), ".log")
		t.Run(name, func(t *testing.T) {
			l := parseFile(t, path)
			if l.Header.About == "" {
				t.Error(`the first line says nothing under "about"`)
			}
			p := newPlayer(l, simWorld{dataplane.NewSim(l.Header.Backend)})
			if err := p.play(); err != nil {
				t.Fatal(err)
			}
			compare(t, strings.TrimSuffix(path, ".log")+".json", p.out.AppendJSON(nil))
			checkAnswers(t, p)
			checkRest(t, p)
		})
	}
}

func parseFile(t *testing.T, path string) *Log {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func compare(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff(filepath.Base(path), "replay", string(want), string(got)); d != "" {
		t.Errorf("the transcript differs; -update rewrites it, but understand the difference first:\n%s", d)
	}
}

// checkAnswers: every message has exactly one answer.
func checkAnswers(t *testing.T, p *player) {
	t.Helper()
	answers := map[string]int{}
	for _, r := range p.out.Records {
		if r.Kind == actors.EventAnswer {
			answers[r.ID]++
		}
	}
	for _, e := range p.log.Entries {
		if e.Message != nil && answers[e.Message.ID] != 1 {
			t.Errorf("message %s has %d answers", e.Message.ID, answers[e.Message.ID])
		}
	}
}

// checkRest holds the states to their invariants, and to the kernel: after the first
// Refresh has repaired what the end of the log broke, a second one finds nothing to do.
func checkRest(t *testing.T, p *player) {
	t.Helper()
	clear(p.faults)
	for _, id := range p.machine.Tables() {
		if err := p.machine.State(id).Check(); err != nil {
			t.Errorf("table %s: %v", id, err)
		}
		for range 2 {
			p.out.Records = nil
			if err := p.machine.Send(id, transaction.Message{ID: "check", Body: transaction.Refresh{}}); err != nil {
				t.Fatal(err)
			}
			p.machine.Settle()
		}
		for _, r := range p.out.Records {
			if r.Kind == actors.EventRestore && r.Err == nil && phaseOf([]byte(r.Restore)) == "modify" {
				t.Errorf("a second refresh still writes:\n%s", r.Restore)
			}
		}
		if err := p.machine.State(id).Check(); err != nil {
			t.Errorf("table %s, refreshed: %v", id, err)
		}
	}
}
