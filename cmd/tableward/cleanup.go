// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

func (a *app) cleanupCommand() *cobra.Command {
	f := flags{output: "text"}
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Take away what a daemon has left",
		Long: `Cleanup takes away what a run has left in the kernel: the chains and rules that its state
files list, and with --prefix each chain whose name begins so, with the rules of built-in
chains that jump to it. A chain that a stranger's own chain jumps to stays, and is named. All
else is left alone. Without --prefix and without a state file there is nothing to go by.

Exit status, the first that fits: 130 interrupted, 2 usage, 7 permission, 4 another process
holds a table, or the environment, 3 something stays, 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.cleanup(cmd.Context(), &f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s := cmd.Flags()
	s.SortFlags = false
	s.StringSliceVar(&f.prefixes, "prefix", nil, "chains whose names begin with `P` go; it ends in one of - _ . : (repeatable)")
	s.StringVar(&f.backend, "backend", "auto", "which `BACKEND`: auto, nft or legacy")
	s.StringVar(&f.netns, "netns", "", "network namespace to work in, `NAME|PATH`")
	s.StringVar(&f.stateDir, "state-dir", "", "`DIR` that run was given (default: /run/tableward, or one of the user's)")
	s.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to try")
	s.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	s.StringVar(&f.logFormat, "log-format", "console", "console or json")
	return cmd
}

// stateDirOf is where what is believed of a kernel's tables outlives the process; "" where it
// does not.
func stateDirOf(k kernel) (string, error) {
	if k, ok := k.(interface{ StateDir() (string, error) }); ok {
		return k.StateDir()
	}
	return "", nil
}

func (a *app) cleanup(ctx context.Context, f *flags, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	k, err := a.open(ctx, f)
	switch {
	case err != nil && isPermission(err):
		fmt.Fprintln(stderr, permissionAdvice(f, f.backend, err))
		return &exitError{exitPermission, err}
	case err != nil:
		return &exitError{exitEnvironment, err}
	}
	c := &cleaner{kernel: k, flags: f, stdout: stdout, stderr: stderr, went: map[rules.TableID]went{}}
	if c.dir, err = stateDirOf(k); err == nil {
		err = c.run(ctx)
	}
	return errors.Join(err, k.Close())
}

// cleaner takes away what is ours, table by table.
type cleaner struct {
	kernel         kernel
	flags          *flags
	stdout, stderr io.Writer
	dir            string // of the state files
	rt             *actors.Runtime

	mu   sync.Mutex // guards went
	went map[rules.TableID]went
}

// went counts what was taken away.
type went struct{ chains, rules int }

func (c *cleaner) run(ctx context.Context) error {
	ids := c.tables(ctx)
	if len(ids) == 0 && len(c.flags.prefixes) == 0 {
		return &exitError{exitUsage, fmt.Errorf("cleanup needs --prefix, or a state file in %s, to know what is ours", c.dir)}
	}
	if k, ok := c.kernel.(interface{ Hold(rules.TableID) error }); ok {
		for _, id := range ids {
			var held *dataplane.TableHeldError
			if err := k.Hold(id); errors.As(err, &held) {
				return &exitError{exitEnvironment, held}
			}
		}
	}
	info := c.kernel.Info()
	opts := actors.Options{
		Table:    transaction.Config{Prefixes: c.flags.prefixes, MaxDepth: info.MaxDepth, Backend: info.Kernel(), Extensions: info.Extensions},
		Refresh:  -1,
		StateDir: c.dir, Observe: c.observe, Logger: runtimeLog(c.flags.logger(c.stderr)),
	}
	var err error
	if c.rt, err = actors.New(c.kernel, opts.For(info.Backend)); err != nil {
		return &exitError{exitUsage, err}
	}
	c.rt.Start()
	for _, id := range ids {
		err = errors.Join(err, c.table(ctx, id))
	}
	if err == nil {
		err = c.tellPinned(ctx)
	}
	err = errors.Join(err, c.rt.Stop(ctx)) // the deletes come after the answers
	for _, id := range ids {
		w := c.went[id]
		fmt.Fprintf(c.stdout, "%s: %s and %s taken away\n", id, plural(w.chains, "chain"), plural(w.rules, "rule"))
	}
	return err
}

// tables returns the tables that state files are about, and with a prefix all others in use.
func (c *cleaner) tables(ctx context.Context) []rules.TableID {
	var ids []rules.TableID
	if len(c.flags.prefixes) > 0 {
		ids = newLive(ctx, c.kernel, c.flags).pruneTables(&fileSet{})
	}
	for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
		for _, name := range []string{"filter", "mangle", "nat", "raw", "security"} {
			id := rules.TableID{IPVersion: v, Name: name}
			_, err := os.Stat(filepath.Join(c.dir, actors.StateFileName(id)))
			if c.dir != "" && err == nil && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, rules.TableID.Compare)
	return ids
}

// table has one table looked at, and cleaned up of what that has shown.
func (c *cleaner) table(ctx context.Context, id rules.TableID) error {
	for _, body := range []transaction.Body{transaction.Refresh{}, transaction.Cleanup{}} {
		a, err := c.rt.Ask(ctx, id, body)
		if err = errors.Join(err, a.Err); err != nil {
			if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
				return &exitError{exitInterrupted, err}
			}
			if isPermission(err) {
				return &exitError{exitPermission, err}
			}
			return &exitError{exitEnvironment, fmt.Errorf("table %s: %w", id, err)}
		}
	}
	return nil
}

// observe counts what goes. It is called by several goroutines.
func (c *cleaner) observe(e actors.Event) {
	if e.Kind != actors.EventRestore || e.Err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.went[e.Table]
	for line := range strings.Lines(string(e.Input)) {
		switch {
		case strings.HasPrefix(line, "-X "):
			w.chains++
		case strings.HasPrefix(line, "-D "):
			w.rules++
		}
	}
	c.went[e.Table] = w
}

// tellPinned names the chains that have to stay.
func (c *cleaner) tellPinned(ctx context.Context) error {
	st, err := c.rt.Status(ctx)
	if err != nil {
		return &exitError{exitEnvironment, err}
	}
	stays := 0
	for _, t := range st {
		for _, name := range t.Pinned {
			stays++
			fmt.Fprintf(c.stderr, "warning: chain %s of %s stays: a rule of somebody else jumps to it\n", name, t.Table)
		}
	}
	if stays > 0 {
		return &exitError{code: exitPartly}
	}
	return nil
}
