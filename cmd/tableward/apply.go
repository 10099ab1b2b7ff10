// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

func (a *app) applyCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "apply FILE|DIR|- ...",
		Short: "Put the rules of files into the kernel",
		Long: `Apply sends what rules files say to the kernel, waits for all answers and exits; the
rules stay. Files are in the syntax of iptables-save. A chain that a file declares
(":chain - [0:0]") holds exactly the file's rules afterwards; rules of other chains are
inserted beside those of others. A DIR stands for its *.rules files, - for standard input.

Exit status, the first that fits: 130 interrupted, 2 usage, no usable file, or a refused
file with --strict, 7 nothing could be applied for want of permission, 4 nothing could be
applied because of the environment, 3 something was not applied, 0.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			r := &applyRun{
				app: a, flags: &f, ctx: cmd.Context(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
			}
			return r.run(args, cmd.InOrStdin())
		},
	}
	f.add(cmd)
	f.addChanges(cmd)
	return cmd
}

// applyRun is one run of apply.
type applyRun struct {
	app            *app
	flags          *flags
	ctx            context.Context // ends by a signal
	stdout, stderr io.Writer

	set      *fileSet
	kernel   kernel
	dry      *dryKernel // not nil with --dry-run: it is the kernel then
	outcomes []outcome
	tables   []tableReport
}

// outcome is a message's answer.
type outcome struct {
	*filed
	actors.Answer
}

// tableReport is what was done to one table.
type tableReport struct {
	id    rules.TableID
	count tableCount
	stubs []string
}

func (r *applyRun) run(args []string, stdin io.Reader) error {
	set, err := loadFiles(args, stdin, r.flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	r.set = set
	r.set.tellPolicies(r.stderr)
	if r.unusable() {
		return r.finish(exitUsage)
	}
	if len(set.messages()) == 0 && !r.flags.prune {
		return r.finish(r.status(r.ctx.Err()))
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.flags.timeout)
	defer cancel()
	if err := r.open(ctx); err != nil {
		r.failAll(err)
		return r.finish(r.status(r.ctx.Err()))
	}
	defer r.kernel.Close()
	return r.send(ctx)
}

// unusable tells whether nothing may be sent: no file is usable, or one is refused and
// --strict is given.
func (r *applyRun) unusable() bool {
	return len(r.set.files) == 0 || r.flags.strict && len(r.set.refused) > 0
}

// open opens the kernel. A dry run does without one where there is none.
func (r *applyRun) open(ctx context.Context) error {
	k, err := r.app.open(ctx, r.flags)
	if !r.flags.dryRun {
		r.kernel = k
		return err
	}
	r.dry = &dryKernel{kernel: k, blind: func(id rules.TableID, err error) {
		if !slices.Contains(tables(r.set.messages()), id) {
			return // looked at for --prune; what is not there has nothing to prune
		}
		fmt.Fprintf(r.stderr, "note: table %s cannot be read (%v): planned against an empty table\n", id, err)
	}}
	if err != nil {
		fmt.Fprintf(r.stderr, "note: there is no kernel to read: %v\n", err)
		r.dry.kernel = nil
	}
	r.kernel = r.dry
	return nil
}

func (r *applyRun) send(ctx context.Context) error {
	if err := r.propose(ctx, r.dry == nil); err != nil {
		return &exitError{exitUsage, err}
	}
	if r.unusable() {
		return r.finish(exitUsage)
	}
	if r.dry != nil {
		for i := range r.tables {
			r.tables[i].count.restores = 0 // nothing was sent to the live table
		}
	}
	return r.finish(r.status(r.ctx.Err()))
}

// propose sends the messages to a runtime on r.kernel and gathers the answers, unless no
// file is usable once the kernel has been looked at. With wait, what is about a kernel chain
// that does not exist waits for it. The error is about the usage.
func (r *applyRun) propose(ctx context.Context, wait bool) error {
	l := newLive(ctx, r.kernel, r.flags)
	if !r.flags.stubMissing {
		l.refuseHooks(r.set)
	}
	if r.unusable() {
		return nil
	}
	l.warnOfOwners(r.stderr, r.set)
	if r.flags.prune {
		l.prune(r.set, r.flags.prefixes, r.stderr)
	}
	msgs := r.set.messages()
	if wait {
		l.warnOfWaits(r.stderr, msgs, r.flags.timeout)
	}
	s := newSession(r.kernel, msgs, l.absent)
	s.dry = !wait
	if err := s.run(ctx, r.flags.prefixes, r.flags.logger(r.stderr)); err != nil {
		return err
	}
	late := lateReason(ctx, r.ctx, r.flags)
	for _, m := range s.msgs {
		r.outcomes = append(r.outcomes, outcome{m, s.answer(m, late)})
	}
	for _, id := range s.ids {
		report := tableReport{id: id, stubs: s.stubs(r.ctx, id)}
		report.count = *s.counts[id]
		report.count.reads += l.reads(id)
		r.tables = append(r.tables, report)
	}
	return nil
}

// failAll answers every message: there is no kernel to send them to.
func (r *applyRun) failAll(err error) {
	for _, m := range r.set.messages() {
		r.outcomes = append(r.outcomes, outcome{m, actors.Answer{
			ID: m.ID, Owner: m.Owner, Table: m.Table, Kind: m.Body.Kind(), Result: actors.Unavailable, Err: err,
		}})
	}
}

// status is the exit status, the first that fits.
func (r *applyRun) status(interrupted error) int {
	applied, environment, permission := 0, 0, 0
	for _, o := range r.outcomes {
		switch o.Result {
		case actors.Applied, actors.Superseded:
			applied++
		case actors.Unavailable:
			environment++
			if isPermission(o.Err) {
				permission++
			}
		}
	}
	total := len(r.outcomes)
	switch {
	case interrupted != nil:
		return exitInterrupted
	case permission > 0 && environment == total:
		return exitPermission
	case environment > 0 && environment == total:
		return exitEnvironment
	case applied < total || len(r.set.refused) > 0:
		return exitPartly
	}
	return exitOK
}

// finish prints what there is to say and ends with a status.
func (r *applyRun) finish(code int) error {
	var err error
	switch {
	case r.flags.json():
		r.explain()
		err = writeJSON(r.stdout, r.jsonOutput(code))
	default:
		r.explain()
		err = r.printText(code)
	}
	if err != nil {
		return &exitError{max(code, exitPartly), fmt.Errorf("output: %w", err)}
	}
	if code == exitInterrupted {
		fmt.Fprintln(r.stderr, "interrupted")
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}
