// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// What is absent is named in one line, and what is there goes on.
func TestKernelAbsent(t *testing.T) {
	nat := rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
	nft6 := "ip6tables-nft-restore/1.8.9 (nf_tables) Failed to initialize nft: Address family not supported by protocol"
	for name, c := range map[string]struct {
		script string
		ids    map[rules.TableID]string // "" is success
	}{
		"a table": {
			"in=$(cat); case $in in '*nat'*) echo \"iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\" >&2; exit 2;; esac; echo \"$in\"",
			map[rules.TableID]string{filter: "", nat: "table nat is not available", filter6: ""},
		},
		"a table of nft": {
			"in=$(cat); case $in in '*nat'*) printf \"iptables-nft-restore v1.8.9 (nf_tables): iptables-restore: line 1 table name 'nat' invalid\\n\\nError occurred at line: 1\\n\" >&2; exit 2;; esac; echo \"$in\"",
			map[rules.TableID]string{filter: "", nat: "table nat is not available", filter6: ""},
		},
		"IPv6": {
			"case $0 in *ip6*) echo '" + nft6 + "' >&2; exit 1;; esac; cat",
			map[rules.TableID]string{filter: "", nat: "", filter6: "Failed to initialize nft: Address family not supported by protocol"},
		},
		"IPv6 of legacy": {
			"case $0 in *ip6*) echo \"ip6tables-restore v1.8.9 (legacy): ip6tables-restore: unable to initialize table 'filter'\" >&2; exit 2;; esac; cat",
			map[rules.TableID]string{filter: "", nat: "", filter6: "table filter is not available"},
		},
	} {
		dir := fakeTools(t, c.script)
		for _, tool := range []string{"restore", "save"} {
			if err := os.Link(filepath.Join(dir, "iptables-nft-"+tool), filepath.Join(dir, "ip6tables-nft-"+tool)); err != nil {
				t.Fatal(err)
			}
		}
		k := newKernel(t, dataplane.Options{StateDir: t.TempDir(), ToolDir: dir})
		for id, reason := range c.ids {
			err := k.Restore(background, id, []byte("*"+id.Name+"\nCOMMIT\n"))
			if reason == "" {
				if err != nil {
					t.Errorf("without %s, %s: %v", name, id, err)
				}
				continue
			}
			if re := restoreError(t, err); re.Class != dataplane.Unavailable || re.Reason != reason || re.Line != 0 {
				t.Errorf("without %s, %s: %v, want %s", name, id, re, reason)
			}
		}
	}
}

// helper runs this test binary again, as TestHelper, in another place.
func helper(t *testing.T, mode string, attr *syscall.SysProcAttr) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "test")
	copyFile(t, "/proc/self/exe", binary)
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^TestHelper$", "-test.v")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	if c := attr.Credential; c != nil {
		if err := os.Chown(tmp, int(c.Uid), int(c.Gid)); err != nil {
			t.Skipf("no second user: %v", err)
		}
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "XDG_RUNTIME_DIR=") && !strings.HasPrefix(v, "TMPDIR=") && !strings.HasPrefix(v, "XTABLES_LOCKFILE=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, helperVariable+"="+mode, "TMPDIR="+tmp)
	out, err := cmd.CombinedOutput()
	if err != nil {
		if strings.Contains(err.Error(), "fork/exec") {
			t.Skipf("no other place: %v", err)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if line, found := strings.CutPrefix(line, "> "); found {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, ""), tmp, "TMP")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

const helperVariable = "TABLEWARD_TEST_HELPER"

// TestHelper is no test: it is what other tests run as another user, or elsewhere.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperVariable) {
	case "":
		return // not run by another test
	case "no tools":
		if err := unix.Mount(os.TempDir(), "/usr/sbin", "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", "/usr/bin:/bin")
		_, err := dataplane.NewKernel(background, dataplane.Options{})
		fmt.Println(">", err)
	case "ordinary user":
		for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
			k, err := dataplane.NewKernel(background, dataplane.Options{Backend: b})
			if err != nil {
				t.Fatal(err)
			}
			err = k.Restore(background, filter, aChain)
			fmt.Printf("> %s: %v, %v\n", b, err, errors.Is(err, os.ErrPermission))
			_, err = k.Read(background, filter)
			fmt.Printf("> %s read: %v\n", b, err)
			for _, line := range verdicts(t, k, filter, largeBatch()) {
				fmt.Printf("> %s check: %s\n", b, line)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
		o := dataplane.Options{Backend: dataplane.Legacy, LockFile: os.TempDir() + "/lock"}
		k, err := dataplane.NewKernel(background, o)
		if err != nil {
			t.Fatal(err)
		}
		err = k.Restore(background, filter, aChain)
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		fmt.Printf("> with a lock file: %v, %v\n", err, errors.Is(err, os.ErrPermission))
		files, err := filepath.Glob(os.TempDir() + "/*/*")
		fmt.Println("> left:", files, err)
	case "no namespaces":
		for _, kind := range []string{"net", "user"} {
			if err := os.WriteFile("/proc/sys/user/max_"+kind+"_namespaces", []byte("0"), 0); err != nil {
				fmt.Println("> skip", err)
				return
			}
		}
		k, err := dataplane.NewKernel(background, dataplane.Options{Backend: dataplane.NFT})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := k.Check(background, filter, dataplane.Batch{})
			fmt.Println(">", err)
			_, err = k.Canon(background, filter, []rules.Rule{rules.MustParseRule("-p tcp")})
			fmt.Println(">", err)
		}
	}
}

// largeBatch is more than nft takes in one block of a user namespace.
func largeBatch() dataplane.Batch {
	var b dataplane.Batch
	for i := range 100 {
		c := rules.Chain{Name: fmt.Sprintf("tw-%d", i)}
		for j := range 10 {
			c.Rules = append(c.Rules, rules.MustParseRule(fmt.Sprintf("-s 10.0.%d.%d -p tcp --dport 80 -m comment --comment \"rule %d\" -j ACCEPT", i, j, j)))
		}
		b.Chains = append(b.Chains, c)
	}
	b.Chains[70].Rules[3] = rules.MustParseRule("-p tcp --bogus")
	b.Chains[80].Rules[4] = rules.MustParseRule("-m owner --socket-exists -j DROP")
	b.Chains[90].Rules[5] = rules.MustParseRule("-m set --match-set tw-none src -j DROP")
	b.Chains[95].Rules[6] = rules.MustParseRule("-m owner --uid-owner 1 -j DROP")
	b.Kernel = []rules.Chain{chain("INPUT", "-j tw-80")}
	return b
}

func TestKernelOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the other tests run as an ordinary user")
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Cloneflags: unix.CLONE_NEWNET}
	want := `nft: unavailable: no permission: CAP_NET_ADMIN is missing, true
nft read: unavailable: no permission: CAP_NET_ADMIN is missing
nft check: tw-70 3: unknown option "--bogus"
nft check: tw-80 4 from INPUT: RULE_APPEND failed (Invalid argument)
nft check: tw-95 6 skipped: users are not known in this user namespace
legacy: unavailable: can't open lock file /run/xtables.lock: permission denied, true
legacy read: unavailable: no permission: CAP_NET_ADMIN is missing
legacy check: tw-70 3: unknown option "--bogus"
legacy check: tw-80 4 from INPUT: the kernel refuses it and the tool does not say why
legacy check: tw-95 6 skipped: users are not known in this user namespace
with a lock file: unavailable: no permission: CAP_NET_ADMIN is missing, true
left: [] <nil>
`
	if got := helper(t, "ordinary user", attr); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestKernelWithoutTools(t *testing.T) {
	got := helper(t, "no tools", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
	if want := "iptables-nft-restore was not found along PATH, in /usr/sbin or in /sbin\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Where no namespace can be made that is said, each time in the same words.
func TestKernelNoScratch(t *testing.T) {
	got := helper(t, "no namespaces", &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	})
	if strings.HasPrefix(got, "skip") {
		t.Skip(got)
	}
	line := "no scratch network namespace can be had: new network namespace: no space left on device\n"
	if want := strings.Repeat(line, 4); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
