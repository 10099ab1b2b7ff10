// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
)

// speedTool runs the plain tools of a backend from a thread in a namespace.
type speedTool struct {
	plainTool
	saver   string
	netlink int // a socket to nf_tables; -1 until there is need of it
}

// cost is how long something took, and of that what the tool's process computed, in user mode
// and in the kernel.
type cost struct{ took, cpu time.Duration }

func newSpeedTool(ns string, backend dataplane.Backend, lock string) (*speedTool, error) {
	restore, err := lookTool("iptables-" + string(backend) + "-restore")
	saver, saveErr := lookTool("iptables-" + string(backend) + "-save")
	if err := errors.Join(err, saveErr); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "XTABLES_LOCKFILE="+lock)
	t := &speedTool{plainTool: plainTool{path: restore, env: env, jobs: make(chan func())}, saver: saver, netlink: -1}
	entered := make(chan error)
	go t.work(ns, entered)
	if err := <-entered; err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func lookTool(name string) (path string, err error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err = exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", err
}

func (t *speedTool) close() {
	if t.netlink >= 0 {
		unix.Close(t.netlink)
	}
	close(t.jobs)
}

// run runs a tool from its start to its exit.
func (t *speedTool) run(tb testing.TB, path string, input []byte, args ...string) (out []byte, c cost) {
	done := make(chan struct{})
	t.jobs <- func() {
		defer close(done)
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(path, args...)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.env, bytes.NewReader(input), &stdout, &stderr
		begin := time.Now()
		if err := cmd.Run(); err != nil {
			tb.Errorf("%s: %v\n%s", path, err, stderr.Bytes())
		}
		c.took, out = time.Since(begin), stdout.Bytes()
		if p := cmd.ProcessState; p != nil {
			c.cpu = p.UserTime() + p.SystemTime()
		}
	}
	<-done
	return out, c
}

// restore applies a block.
func (t *speedTool) restore(tb testing.TB, block []byte) cost {
	_, c := t.run(tb, t.path, block, "--noflush")
	return c
}

// save reads the filter table.
func (t *speedTool) save(tb testing.TB) []byte {
	out, _ := t.timeSave(tb)
	return out
}

func (t *speedTool) timeSave(tb testing.TB) ([]byte, cost) {
	return t.run(tb, t.saver, nil, "-t", "filter")
}

// generation asks nf_tables for its generation, by a socket that is open.
func (t *speedTool) generation(tb testing.TB) (c cost) {
	req := make([]byte, unix.SizeofNlMsghdr+4)
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	binary.NativeEndian.PutUint16(req[4:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN)
	binary.NativeEndian.PutUint16(req[6:], unix.NLM_F_REQUEST)
	done := make(chan struct{})
	t.jobs <- func() {
		defer close(done)
		var err error
		if t.netlink < 0 {
			if t.netlink, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
				tb.Error(err)
				return
			}
		}
		answer := make([]byte, 4096)
		begin := time.Now()
		_, err = unix.Write(t.netlink, req)
		n, readErr := unix.Read(t.netlink, answer)
		c.took = time.Since(begin)
		if err := errors.Join(err, readErr); err != nil || n <= len(req) {
			tb.Errorf("generation query: %d bytes, %v", n, err)
		}
	}
	<-done
	return c
}
