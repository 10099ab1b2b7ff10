// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody runs the program as an ordinary user in a network namespace of its own.
func nobody(t *testing.T, stdin string, wrapper []string, args ...string) result {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	// By its descriptor, since the folder that it lies in is not open to others.
	argv := append(append(wrapper, "/proc/self/fd/3"), args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{self}
	cmd.Env = []string{runVariable + "=1", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Cloneflags: syscall.CLONE_NEWNET,
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("cannot become another user: %v", err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestOrdinaryUserCheck loads files for real, without any privilege, where user namespaces
// are allowed: what only the kernel refuses is found, and a large file is taken in slices.
func TestOrdinaryUserCheck(t *testing.T) {
	var large strings.Builder
	large.WriteString("*filter\n")
	for i := range 200 {
		fmt.Fprintf(&large, ":big-%d - [0:0]\n", i)
	}
	for i := range 200 {
		for j := range 10 {
			fmt.Fprintf(&large, "-A big-%d -s 10.0.%d.%d/32 -p tcp -m tcp --dport 80 -m comment --comment \"rule %d\" -j ACCEPT\n", i, i, j, j)
		}
		fmt.Fprintf(&large, "-A INPUT -j big-%d\n", i)
	}
	large.WriteString("COMMIT\n")
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			r := nobody(t, goodRules, nil, "check", "--backend", backend, "-o", "json", "-")
			if out := decodeCheck(t, r); !out.Scratch {
				t.Skipf("no scratch namespace: %+v", out.Untried)
			}
			if r.code != exitOK {
				t.Errorf("good: exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			r = nobody(t, "*filter\n:b-a - [0:0]\n-A b-a -j MASQUERADE\n-A INPUT -j b-a\nCOMMIT\n", nil, "check", "--backend", backend, "-o", "json", "-")
			if out := decodeCheck(t, r); r.code != exitFindings || len(out.Findings) != 1 || out.Findings[0].Line != 3 {
				t.Errorf("bad: exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			r = nobody(t, large.String(), nil, "check", "--backend", backend, "-o", "json", "-")
			if out := decodeCheck(t, r); r.code != exitOK || !out.Scratch {
				t.Errorf("large: exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// TestOrdinaryUserNoNamespaces holds that check says so where no namespace may be made.
func TestOrdinaryUserNoNamespaces(t *testing.T) {
	// Root of a user namespace that allows no further ones, without its capabilities.
	wrapper := []string{"unshare", "--user", "--map-root-user", "sh", "-c",
		`echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"`, "sh"}
	r := nobody(t, goodRules, wrapper, "check", "-o", "json", "-")
	if r.stdout == "" {
		t.Skipf("the stage cannot be set: %s", r.stderr)
	}
	out := decodeCheck(t, r)
	if r.code != exitOK || out.Scratch || strings.Count(r.stderr, "text only: ") != 1 {
		t.Errorf("exit status %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestOrdinaryUserApply holds that nothing is applied for want of permission, and that the
// capability is named.
func TestOrdinaryUserApply(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			for _, command := range []string{"apply", "diff"} {
				want := map[string]int{"apply": exitPermission, "diff": exitUsage}[command]
				r := nobody(t, goodRules, nil, command, "--backend", backend, "--timeout", "5s", "-")
				if r.code != want || !strings.Contains(r.stderr, "CAP_NET_ADMIN") {
					t.Errorf("%s: exit status %d, want %d\n%s%s", command, r.code, want, r.stdout, r.stderr)
				}
			}
			r := nobody(t, goodRules, nil, "apply", "--dry-run", "--backend", backend, "-")
			if r.code != exitOK || !strings.Contains(r.stderr, "planned against an empty table") || !strings.Contains(r.stdout, "-A INPUT -j good-a\n") {
				t.Errorf("dry run: exit status %d\n%s%s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// fakeTools is a folder of tools, each a shell script, for a kernel that is none.
func fakeTools(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
