// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestEscaped(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"iptables -A INPUT", "iptables -A INPUT"},
		{"a\nb\x1b[31m\x00", `a\nb\x1b[31m\x00`},
		{"ü\xff\u202e", `ü\xff\u202e`},
		{`a"b\`, `a"b\`},
		{strings.Repeat("x", 201), strings.Repeat("x", 200)},
		{strings.Repeat("x", 199) + "ü", strings.Repeat("x", 199)},
		{strings.Repeat("x", 198) + "\n.", strings.Repeat("x", 198) + `\n`},
		{strings.Repeat("x", 199) + "\n.", strings.Repeat("x", 199)},
	} {
		if got := escaped(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// The command line is told of a process that has the name, and of no other one that may have
// its id by now.
func TestCommandLine(t *testing.T) {
	cmd := exec.Command("sh", "-c", "read x", "two words\n") // ends with its input
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	pid, whole := cmd.Process.Pid, `sh -c read x two words\n`
	for { // a process has its name a moment before its command line
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil {
			t.Fatal(err)
		} else if len(line) > 0 {
			break
		}
	}
	if name, line, found := process(pid, ""); !found || name != "sh" || line != whole {
		t.Errorf("%q %q %v", name, line, found)
	}
	if _, _, found := process(pid, "s"); found {
		t.Error("another name is found")
	}
	if _, _, found := process(1<<30, ""); found {
		t.Error("a process that does not exist is found")
	}
	want := "sh"
	if link, _ := os.Readlink("/proc/self/ns/pid"); link == "pid:[4026531836]" {
		want = whole
	}
	for _, c := range []struct {
		pid        int
		comm, want string
	}{{pid, "sh", want}, {pid, "iptables", "iptables"}, {0, "a\tb", `a\tb`}, {1 << 30, "", ""}} {
		if got := commandLine(c.pid, c.comm); got != c.want {
			t.Errorf("%d %q: %q, want %q", c.pid, c.comm, got, c.want)
		}
	}
}
