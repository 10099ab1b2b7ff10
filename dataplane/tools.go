// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// MissingError names a tool that was not found.
type MissingError struct {
	Tool string // "ip6tables-nft-restore"
	Dir  string // where it was looked for, "" along PATH
}

// Error names the tool and where it was looked for.
func (e *MissingError) Error() string {
	where := "along PATH, in /usr/sbin or in /sbin"
	if e.Dir != "" {
		where = "in " + e.Dir
	}
	return fmt.Sprintf("%s was not found %s", e.Tool, where)
}

// toolset is the tools of one backend and IP version.
type toolset struct {
	restore, save string
	version       string
	ownLock       bool // legacy: it locks the file that XTABLES_LOCKFILE names, or none
	noWait        bool // legacy: it knows no -w
}

// find returns the path of a tool, "" if there is none.
func (o Options) find(name string) string {
	if o.ToolDir != "" {
		path := filepath.Join(o.ToolDir, name)
		if st, err := os.Stat(path); err == nil && !st.IsDir() {
			return path
		}
		return ""
	}
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

// findTools returns the tools of one backend and IP version. Where the backend's own names
// are absent the plain ones serve, if they say that they are of this backend.
func (o Options) findTools(ctx context.Context, b Backend, v rules.IPVersion) (toolset, error) {
	family := toolFamily(v)
	own := family + "-" + string(b)
	t := toolset{restore: o.find(own + "-restore"), save: o.find(own + "-save")}
	if t.restore == "" || t.save == "" {
		t = toolset{restore: o.find(family + "-restore"), save: o.find(family + "-save")}
		if t.restore == "" || t.save == "" || backendOf(toolVersion(ctx, t.restore)) != b {
			return toolset{}, &MissingError{Tool: own + "-restore", Dir: o.ToolDir}
		}
	}
	t.version = toolVersion(ctx, t.restore)
	return t, nil
}

// toolVersion returns what a tool says of itself, "" if it says nothing.
func toolVersion(ctx context.Context, path string) string {
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = environ("")
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// backendOf reads the backend from a tool's version. Releases before 1.8 name none and are
// legacy.
func backendOf(version string) Backend {
	switch {
	case version == "":
		return ""
	case strings.Contains(version, "(nf_tables)"):
		return NFT
	}
	return Legacy
}

// choose finds the tools and settles the backend: the one asked for; else the one that
// iptables names, unless only the other holds rules; else the one whose tools are there.
func (k *Kernel) choose(ctx context.Context) error {
	sets := map[Backend]toolset{}
	var errs []error
	for _, b := range []Backend{NFT, Legacy} {
		t, err := k.opts.findTools(ctx, b, rules.IPv4)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sets[b] = t
	}
	switch k.backend = k.opts.Backend; {
	case k.backend != "":
	case len(sets) == 0:
		return errs[0]
	default:
		k.backend = k.prefer(ctx, sets)
	}
	k.tools, k.missing = map[rules.IPVersion]toolset{}, map[rules.IPVersion]error{}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		t, err := k.opts.findTools(ctx, k.backend, v)
		if err != nil {
			k.missing[v] = err
			continue
		}
		k.tools[v] = t
	}
	if err := k.missing[rules.IPv4]; err != nil && k.missing[rules.IPv6] != nil {
		return err
	}
	version := k.tools[rules.IPv4].version
	if version == "" {
		version = k.tools[rules.IPv6].version
	}
	k.info = Info{
		Backend: string(k.backend), MaxDepth: maxDepth(k.backend),
		Version: version, Extensions: moduleTargets(),
	}
	return nil
}

// prefer is the choice between the backends that have tools.
func (k *Kernel) prefer(ctx context.Context, sets map[Backend]toolset) Backend {
	first := backendOf(toolVersion(ctx, k.opts.find("iptables")))
	if _, ok := sets[first]; !ok {
		first = NFT
		if _, ok := sets[NFT]; !ok {
			first = Legacy
		}
	}
	second := Legacy
	if first == Legacy {
		second = NFT
	}
	if _, ok := sets[second]; ok && !k.holdsRules(ctx, first, sets[first]) && k.holdsRules(ctx, second, sets[second]) {
		return second
	}
	return first
}

// holdsRules tells whether a backend's IPv4 tables hold anything that somebody put there.
// A legacy tool is run only for tables that the kernel has loaded, because to run it for
// another would load that.
func (k *Kernel) holdsRules(ctx context.Context, b Backend, t toolset) bool {
	var runs [][]string
	switch b {
	case NFT:
		runs = [][]string{nil}
	case Legacy:
		for _, name := range k.loadedTables() {
			runs = append(runs, []string{"-t", name})
		}
	}
	for _, args := range runs {
		cmd := exec.CommandContext(ctx, t.save, args...)
		cmd.Env = environ(k.opts.LockFile)
		var out bytes.Buffer
		cmd.Stdout = &out
		if k.ns.enter(cmd) != nil || cmd.Wait() != nil {
			continue
		}
		set, err := rules.ParseSave(&out)
		if err != nil {
			continue
		}
		for _, table := range set.Tables {
			if slices.ContainsFunc(table.Chains, func(c rules.SavedChain) bool {
				return len(c.Rules) > 0 || !rules.IsBuiltin(table.Name, c.Name) || c.Policy != "ACCEPT"
			}) {
				return true
			}
		}
	}
	return false
}

// loadedTables returns the IPv4 legacy tables that the kernel has in this namespace.
func (k *Kernel) loadedTables() []string {
	var names []byte
	_ = k.ns.within(func() error {
		var err error
		names, err = os.ReadFile("/proc/thread-self/net/ip_tables_names")
		return err
	})
	return strings.Fields(string(names))
}

// moduleTargets lists the targets that the tools' module folder has.
func moduleTargets() []string {
	dirs := []string{os.Getenv("XTABLES_LIBDIR")}
	if dirs[0] == "" {
		dirs = nil
		for _, pattern := range []string{"/usr/lib/*/xtables", "/usr/lib64/xtables", "/usr/lib/xtables", "/usr/local/lib/xtables"} {
			found, _ := filepath.Glob(pattern)
			dirs = append(dirs, found...)
		}
	}
	var names []string
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, f := range files {
			name, isModule := strings.CutSuffix(f.Name(), ".so")
			_, name, found := strings.Cut(name, "_")
			if isModule && found && name != "" && name == strings.ToUpper(name) && strings.ContainsAny(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
