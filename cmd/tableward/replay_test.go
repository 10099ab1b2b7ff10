// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const replayLogs = "../../testdata/replay/"

func runReplay(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(append([]string{"replay"}, args...), strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func readTestFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReplayPrints(t *testing.T) {
	log := replayLogs + "u01-stub-on-reference.log"
	want := readTestFile(t, replayLogs+"u01-stub-on-reference.json")
	if code, out, errs := runReplay(t, "", "-o", "json", log); code != exitOK || out != want || errs != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", code, errs, out)
	}
	if code, out, _ := runReplay(t, readTestFile(t, log), "-o", "json", "-"); code != exitOK || out != want {
		t.Errorf("from stdin: status %d, stdout\n%s", code, out)
	}
	code, out, _ := runReplay(t, "", log, log)
	if code != exitOK || strings.Count(out, "# "+log+"\n0s 4/filter read\n0s 4/filter restore ok\n    *filter\n") != 2 {
		t.Errorf("two logs as text: status %d, stdout\n%s", code, out)
	}
}

// TestReplayAnswersDoNotMatter: a rejected message is no failure of the replay.
func TestReplayAnswersDoNotMatter(t *testing.T) {
	if code, out, errs := runReplay(t, "", replayLogs+"43-injection.log"); code != exitOK || !strings.Contains(out, "message 1 rejected") {
		t.Errorf("status %d, stderr %q, stdout\n%s", code, errs, out)
	}
}

func TestReplayGolden(t *testing.T) {
	log, golden := replayLogs+"u02-override.log", replayLogs+"u02-override.json"
	if code, out, errs := runReplay(t, "", "--golden", golden, log); code != exitOK || out != "" || errs != "" {
		t.Errorf("equal: status %d, stderr %q, stdout\n%s", code, errs, out)
	}
	_, text, _ := runReplay(t, "", log)
	path := filepath.Join(t.TempDir(), "golden.txt")
	changed := strings.Replace(text, "    -A bar -j RETURN\n", "", 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	want := "--- " + path + "\n+++ " + log + `
@@ -3,6 +3,7 @@
     *filter
     :bar - [0:0]
     :foo - [0:0]
+    -A bar -j RETURN
     -A foo -j bar
     COMMIT
 0s message 1 applied
`
	if code, out, errs := runReplay(t, "", "--golden", path, log); code != exitFindings || out != want || !strings.Contains(errs, "differs") {
		t.Errorf("different: status %d, stderr %q, stdout\n%s\nwant\n%s", code, errs, out, want)
	}
}

func TestReplayUsage(t *testing.T) {
	log := replayLogs + "u01-stub-on-reference.log"
	for _, c := range []struct {
		name, stdin string
		args        []string
		stderr      string
	}{
		{"no log", "", nil, "replay needs a LOG"},
		{"absent log", "", []string{"absent.log"}, "absent.log"},
		{"bad log", "{}\n", []string{"-"}, `-: line 1, column 1: the first line must say "tableward":"log/v1"`},
		{"bad kernel line", `{"tableward":"log/v1","seed":[{"restore":"*filter\nnonsense\n"}]}`, []string{"-"}, "-: line 1, column 31: the kernel refuses the seed"},
		{"output", "", []string{"-o", "yaml", log}, `output "yaml": text or json`},
		{"unknown flag", "", []string{"--kernel-of-nuts", log}, "unknown flag"},
		{"golden of two", "", []string{"--golden", "x", log, log}, "--golden compares one LOG"},
		{"absent golden", "", []string{"--golden", "absent.json", log}, "absent.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out, errs := runReplay(t, c.stdin, c.args...)
			if code != exitUsage || out != "" || !strings.Contains(errs, c.stderr) {
				t.Errorf("status %d, stdout %q, stderr %q; want %d and %q", code, out, errs, exitUsage, c.stderr)
			}
		})
	}
}

// TestReplayOnKernel needs a network namespace; without one the status says so.
func TestReplayOnKernel(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		log := replayLogs + "dangling-jump-" + backend + ".log"
		code, out, errs := runReplay(t, "", "--kernel", log)
		if code == exitEnvironment {
			t.Skip(errs)
		}
		if code != exitOK || !strings.Contains(out, "2s message 2 applied\nfinal 4/filter\n") {
			t.Errorf("%s: status %d, stderr %q, stdout\n%s", backend, code, errs, out)
		}
	}
	code, out, errs := runReplay(t, "", "--netns", "/proc/self/ns/net", replayLogs+"u01-stub-on-reference.log")
	if code != exitEnvironment || out != "" || !strings.Contains(errs, "is the host's own") {
		t.Errorf("on the host: status %d, stderr %q, stdout %q", code, errs, out)
	}
}
