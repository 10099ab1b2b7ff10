// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// openTool is a restore tool whose stdin stays open.
type openTool struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func openRestore(t *testing.T, ns, lockFile, tool string, args ...string) *openTool {
	t.Helper()
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("no nsenter")
	}
	o := &openTool{t: t, cmd: exec.Command("nsenter", append([]string{"--net=" + ns, tool, "--noflush", "--verbose"}, args...)...)}
	o.cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lockFile)
	stdin, err := o.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := o.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	o.stdin, o.out = stdin, bufio.NewReader(stdout)
	return o
}

// block sends a block and a marker, and waits for the marker.
func (o *openTool) block(text, marker string) {
	o.t.Helper()
	if _, err := io.WriteString(o.stdin, text+marker+"\n"); err != nil {
		o.t.Fatal(err)
	}
	if line, err := o.out.ReadString('\n'); err != nil || line != marker+"\n" {
		o.t.Fatalf("got %q, %v; want %s", line, err, marker)
	}
}

// Two blocks with a rest between them go through one tool of either backend, if a legacy one
// is given a bare -w. One with "-w 1" ends within the rest, with exit code 0 and nothing said.
// In the long form the rest is 12 s.
func TestToolRests(t *testing.T) {
	ns := testns.New(t)
	path := func() string { return filepath.Join(t.TempDir(), "lock") }
	tools := map[dataplane.Backend]*openTool{
		dataplane.NFT:    openRestore(t, ns, path(), "iptables-nft-restore", "-w"),
		dataplane.Legacy: openRestore(t, ns, path(), "iptables-legacy-restore", "-w"),
	}
	alarmed := openRestore(t, ns, path(), "iptables-legacy-restore", "-w", "1")
	for _, o := range tools {
		o.block("*filter\n:tw-a - [0:0]\n-A INPUT -j tw-a\nCOMMIT\n", "# first")
	}
	alarmed.block("*mangle\n:tw-a - [0:0]\nCOMMIT\n", "# first")
	begin := time.Now()
	rest, err := io.ReadAll(alarmed.out)
	if err != nil || len(rest) != 0 {
		t.Errorf("-w 1: %q, %v", rest, err)
	}
	if err := alarmed.cmd.Wait(); err != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("-w 1: %v after %v", err, time.Since(begin))
	}
	if os.Getenv("TABLEWARD_SOAK") != "" {
		time.Sleep(12*time.Second - time.Since(begin))
	}
	for b, o := range tools {
		o.block("*filter\n:tw-b - [0:0]\n-A tw-a -j tw-b\nCOMMIT\n", "# second")
		o.stdin.Close()
		if err := o.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", b, err)
		}
		snap, err := newKernel(t, testns.Options(t, ns, b)).Read(background, filter)
		if err != nil {
			t.Fatal(err)
		}
		if _, found := snap.Chains["tw-b"]; !found || len(snap.Chains["tw-a"].Rules) != 1 {
			t.Errorf("%s: %+v", b, snap.Chains)
		}
	}
}

// The real tool ends with exit code 0 before it has read its block: that is not success.
func TestKernelExitWithoutMarker(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"in", "go"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The tool gets an empty block at once; the rest comes when we say so, and by then the
	// alarm that the first block has set has gone off.
	script := `#!/bin/sh
[ "$1" = --version ] && exec iptables-legacy-restore --version
case $XTABLES_LOCKFILE in */missing/*) exec iptables-legacy-restore "$@";; esac
cd ` + dir + `
exec 3<&0
{ head -n 2 <&3; cat go; } >in 2>/dev/null &
exec iptables-legacy-restore --noflush --verbose -w 1 <in 3<&-
`
	for name, text := range map[string]string{"restore": script, "save": "#!/bin/sh\nexec iptables-legacy-save \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, "iptables-legacy-"+name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := testns.Options(t, testns.New(t), dataplane.Legacy)
	o.ToolDir = dir
	k := newKernel(t, o)
	re := restoreError(t, k.Restore(background, filter, append([]byte("*filter\nCOMMIT\n"), aChain...)))
	if re.Class != dataplane.Unknown || re.ExitCode != 0 || re.Stderr != "" || !strings.Contains(re.Reason, "without a word") {
		t.Errorf("%+v", re)
	}
	f, err := os.OpenFile(filepath.Join(dir, "go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if got := render(t, k, rules.TableID{IPVersion: rules.IPv4, Name: "filter"}); len(got) != 0 {
		t.Errorf("it was applied: %q", got)
	}
}
