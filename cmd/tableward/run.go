// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/rules"
)

func (a *app) runCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "run FILE|DIR ...",
		Short: "Keep the rules of files in the kernel until told to stop",
		Long: `Run keeps what rules files say in the kernel, whatever others do to it, until it is told
to stop. Files are read as by apply; each is an owner's.

SIGHUP reads the files again: what is new or changed is sent, and what an earlier version
had and this one has not is withdrawn. A file that is refused then keeps its previous
version; one that has gone from a DIR is withdrawn. With --strict, a refused file leaves
everything as it is. The tables are then repaired at once, and standard error says what was
repaired. SIGTERM and SIGINT answer what is under way and end, and leave the rules
in the kernel; a second one ends at once.

At the start nothing that works is cut: chains of an earlier run (see --prefix) keep their
content until their owner's file has been sent, or --grace is over.

Standard error says "ready: ..." when every message has its answer, and "not ready: ..." with
the reasons while a table cannot be had. Standard output is empty.

Exit status, the first that fits: 130 by SIGINT or a second signal, 2 usage, no usable file,
or a refused file with --strict at the start, 7 nothing could be applied for want of
permission, 4 another process holds a table, or the environment does not let rules be kept,
0 by SIGTERM.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if slices.Contains(args, "-") {
				return errors.New("run cannot read - : standard input cannot be read again")
			}
			return a.daemon(cmd.Context(), &f, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	f.addRun(cmd)
	return cmd
}

// daemon runs until a signal comes. The context ends by SIGINT and SIGTERM too: it cuts
// what is done at the start short, and then only the signals count.
func (a *app) daemon(ctx context.Context, f *flags, args []string, stdout, stderr io.Writer) error {
	signals := a.signals
	if signals == nil {
		real := make(chan os.Signal, 8)
		signal.Notify(real, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
		defer signal.Stop(real)
		signals = real
	}
	d := newDaemon(ctx, f, args, stderr)
	if err := d.open(a); err != nil {
		return err
	}
	if err := d.begin(); err != nil {
		return errors.Join(err, d.kernel.Close())
	}
	code, err := d.loop(signals)
	if d.stop(signals) {
		// What is open goes with the process.
		return &exitError{exitInterrupted, errors.New("a second signal: ended at once")}
	}
	if d.dry != nil {
		printBlocks(stdout, d.dry.inOrder())
	}
	if closeErr := d.kernel.Close(); err == nil {
		err = closeErr
	}
	if code == exitOK && err == nil {
		return nil
	}
	return &exitError{code, err}
}

// open opens the kernel. A dry run does without one where there is none.
func (d *daemon) open(a *app) error {
	ctx, cancel := context.WithTimeout(d.ctx, d.flags.timeout)
	defer cancel()
	k, err := a.open(ctx, d.flags)
	switch {
	case d.flags.dryRun:
		d.openDry(k, err)
	case err == nil:
		d.kernel = k
	case d.ctx.Err() != nil:
		return &exitError{exitInterrupted, err}
	case isPermission(err):
		d.say("%s", permissionAdvice(d.flags, d.flags.backend, err))
		return &exitError{exitPermission, err}
	default:
		return &exitError{exitEnvironment, err}
	}
	return nil
}

// openDry makes the kernel one that keeps what would be sent.
func (d *daemon) openDry(k kernel, err error) {
	d.dry = &dryKernel{kernel: k, blind: func(id rules.TableID, err error) {
		d.say("note: table %s cannot be read (%v): planned against an empty table", id, err)
	}}
	if err != nil {
		d.say("note: there is no kernel to read: %v", err)
		d.dry.kernel = nil // k may be a nil pointer in an interface
	}
	d.kernel = d.dry
}
