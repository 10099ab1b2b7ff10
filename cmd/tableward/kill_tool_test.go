// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
)

// killPatience is for what never takes long: a line that a process is about to write.
const killPatience = time.Minute

// toolScript becomes the real tool, so that who kills it kills that. When it is armed its
// input comes from a helper: so many bytes, a line that says so, and after a line whatever
// else is in the pipe. Descriptor 9 is open as long as one of the two lives.
const toolScript = `#!/bin/sh
[ -e %[1]s/arm ] || exec %[2]s "$@"
read n <%[1]s/arm
rm %[1]s/arm
exec 8<&0 9>%[1]s/report
{ head -c "$n" <&8; echo $$ >&9; read go <%[1]s/go; cat <&8; } >%[1]s/in 2>/dev/null &
exec 8<&-
exec %[2]s "$@" <%[1]s/in
`

// killTools is a folder of tools that can be stopped in the middle of their input.
type killTools struct {
	dir    string
	report *os.File // what the armed tool says; ends with it
	lines  *bufio.Reader
	open   *os.File // keeps report from ending before it has begun
	goOn   *os.File
}

func newKillTools(t *testing.T, b dataplane.Backend) *killTools {
	t.Helper()
	k := &killTools{dir: t.TempDir()}
	for _, family := range []string{"iptables-", "ip6tables-"} {
		name := family + string(b)
		if err := os.Symlink(realTool(t, name+"-save"), filepath.Join(k.dir, name+"-save")); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(toolScript, k.dir, realTool(t, name+"-restore"))
		if err := os.WriteFile(filepath.Join(k.dir, name+"-restore"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"report", "go", "in"} {
		if err := unix.Mkfifo(filepath.Join(k.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k.report = k.openFifo(t, "report", os.O_RDONLY)
	k.open = k.openFifo(t, "report", os.O_WRONLY)
	k.goOn = k.openFifo(t, "go", os.O_RDWR)
	k.lines = bufio.NewReader(k.report)
	return k
}

func realTool(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Fatalf("%s was not found", name)
	return ""
}

// openFifo opens one end without waiting for the other.
func (k *killTools) openFifo(t *testing.T, name string, mode int) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(k.dir, name), mode|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// arm makes the next restore stop after so many bytes.
func (k *killTools) arm(t *testing.T, bytes int) {
	t.Helper()
	writeFile(t, filepath.Join(k.dir, "arm"), strconv.Itoa(bytes)+"\n")
}

// stopped waits until the tool has got its bytes, and returns the tool's process.
func (k *killTools) stopped(t *testing.T) int {
	t.Helper()
	if err := k.report.SetReadDeadline(time.Now().Add(killPatience)); err != nil {
		t.Fatal(err)
	}
	line, err := k.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the tool did not stop: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// finish lets what was stopped go on and waits for its end.
func (k *killTools) finish(t *testing.T) {
	t.Helper()
	k.open.Close()
	if _, err := k.goOn.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, k.lines); err != nil {
		t.Fatalf("the tool did not end: %v", err)
	}
}
