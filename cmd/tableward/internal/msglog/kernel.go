// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// KernelWorld is the real kernel, in a network namespace that is not the host's.
type KernelWorld struct {
	*dataplane.Kernel
	ns  *os.File
	tmp string
}

// NewKernelWorld opens a network namespace, a name or a path as dataplane.Options takes it;
// "" makes one that lives as long as the KernelWorld.
func NewKernelWorld(backend dataplane.Backend, netns string) (*KernelWorld, error) {
	ns, err := openNamespace(netns)
	if err != nil {
		return nil, fmt.Errorf("no network namespace: %w", err)
	}
	tmp, err := os.MkdirTemp("", "tableward-replay-")
	if err != nil {
		ns.Close()
		return nil, err
	}
	k, err := dataplane.NewKernel(context.Background(), dataplane.Options{
		Backend: backend, NetNS: pathOf(ns), LockFile: filepath.Join(tmp, "xtables.lock"), StateDir: tmp,
	})
	if err != nil {
		ns.Close()
		os.RemoveAll(tmp)
		return nil, err
	}
	return &KernelWorld{Kernel: k, ns: ns, tmp: tmp}, nil
}

// Close gives the namespace back.
func (w *KernelWorld) Close() error {
	err := w.Kernel.Close()
	w.ns.Close()
	os.RemoveAll(w.tmp)
	return err
}

func pathOf(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }

func openNamespace(netns string) (*os.File, error) {
	if netns != "" {
		return openNamed(netns)
	}
	return onThread(func() (*os.File, error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return nil, os.NewSyscallError("unshare", err)
		}
		return os.Open("/proc/thread-self/ns/net")
	})
}

// openNamed opens a namespace, unless it is the one that the process or the host lives in:
// a log takes whole tables away.
func openNamed(netns string) (*os.File, error) {
	if !strings.Contains(netns, "/") {
		netns = "/run/netns/" + netns
	}
	f, err := os.Open(netns)
	if err != nil {
		return nil, err
	}
	here, err := f.Stat()
	for _, other := range []string{"/proc/self/ns/net", "/proc/1/ns/net"} {
		if there, e := os.Stat(other); err == nil && e == nil && os.SameFile(here, there) {
			err = fmt.Errorf("%s is the host's own", netns)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// onThread runs f on a thread that ends with it, so that f may change its namespace.
func onThread[T any](f func() (T, error)) (T, error) {
	var out T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		out, err = f()
	}()
	<-done
	return out, err
}

// Load implements World.
func (w *KernelWorld) Load(v rules.IPVersion, input []byte) error {
	text := string(input)
	for text != "" {
		block := text
		if i := strings.Index(text, "COMMIT\n"); i >= 0 {
			block = text[:i+len("COMMIT\n")]
		}
		text = text[len(block):]
		id := rules.TableID{IPVersion: v, Name: firstTable(block)}
		if err := w.Restore(context.Background(), id, []byte(block)); err != nil {
			return err
		}
	}
	return nil
}

// Replace implements World: one block that empties the table and then fills it.
func (w *KernelWorld) Replace(id rules.TableID, saveText string) error {
	snap, err := w.Read(context.Background(), id)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("*" + id.Name + "\n")
	for _, c := range chainsOf(snap) {
		b.WriteString("-F " + c.Name + "\n")
	}
	for _, c := range chainsOf(snap) {
		if c.Policy == "" {
			b.WriteString("-X " + c.Name + "\n")
		}
	}
	b.WriteString(strings.TrimPrefix(saveText, "*"+id.Name+"\n"))
	return w.Restore(context.Background(), id, []byte(b.String()))
}

// AddSet implements World.
func (w *KernelWorld) AddSet(s Set) error {
	family := "inet"
	if s.IPVersion == rules.IPv6 {
		family = "inet6"
	}
	return w.ipset("create", s.Name, "hash:net", "family", family)
}

// DropSet implements World. A kernel keeps a set that a rule names, and nf_tables lets go of
// it some time after the rule has gone.
func (w *KernelWorld) DropSet(s Set) error {
	var err error
	for range 100 {
		if err = w.ipset("destroy", s.Name); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

func (w *KernelWorld) ipset(args ...string) error {
	_, err := onThread(func() (struct{}, error) {
		if err := unix.Setns(int(w.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return struct{}{}, os.NewSyscallError("setns", err)
		}
		if out, err := exec.Command("ipset", args...).CombinedOutput(); err != nil {
			return struct{}{}, fmt.Errorf("ipset: %w: %s", err, strings.TrimSpace(string(out)))
		}
		return struct{}{}, nil
	})
	return err
}

// Save implements World.
func (w *KernelWorld) Save(id rules.TableID) (string, error) {
	snap, err := w.Read(context.Background(), id)
	if err != nil {
		return "", err
	}
	var head, body strings.Builder
	for _, c := range chainsOf(snap) {
		policy := c.Policy
		if policy == "" {
			policy = "-"
		}
		head.WriteString(":" + c.Name + " " + policy + " [0:0]\n")
		for _, r := range c.Rules {
			body.WriteString(strings.TrimRight("-A "+c.Name+" "+r.Text, " ") + "\n")
		}
	}
	return "*" + id.Name + "\n" + head.String() + body.String() + "COMMIT\n", nil
}

// chainsOf returns the built-in chains in the tools' order, then the others by name.
func chainsOf(snap rules.Snapshot) []rules.SavedChain {
	var out []rules.SavedChain
	for _, name := range rules.BuiltinChains(snap.Table.Name) {
		if c, ok := snap.Chains[name]; ok {
			out = append(out, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(snap.Chains)) {
		if !rules.IsBuiltin(snap.Table.Name, name) {
			out = append(out, snap.Chains[name])
		}
	}
	return out
}
