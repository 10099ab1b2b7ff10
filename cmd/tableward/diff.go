// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

func (a *app) diffCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "diff FILE|DIR|- ...",
		Short: "Show what apply would change",
		Long: `Diff reads the kernel and shows what apply of the same files would change, as a unified
diff of each table's rules as the tools print them; it writes nothing. After apply it is
empty. What the kernel would refuse is tried in a scratch network namespace.

Exit status: 0 nothing would change, 1 something would, 2 trouble: usage, a file that is
refused, a message that could not be applied, a kernel that cannot be read.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			r := &diffRun{applyRun: applyRun{
				app: a, flags: &f, ctx: cmd.Context(), stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
			}}
			return r.run(args, cmd.InOrStdin())
		},
	}
	f.add(cmd)
	f.addChanges(cmd)
	return cmd
}

// diffRun is one run of diff: one of apply, on a copy of the kernel.
type diffRun struct {
	applyRun
	shadow *shadowKernel // nil when there is no kernel
	diffs  []tableDiff
}

func (r *diffRun) run(args []string, stdin io.Reader) error {
	set, err := loadFiles(args, stdin, r.flags)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	r.set = set
	r.set.tellPolicies(r.stderr)
	ctx, cancel := context.WithTimeout(r.ctx, r.flags.timeout)
	defer cancel()
	if !r.unusable() {
		if err := r.compare(ctx); err != nil {
			return &exitError{exitUsage, err}
		}
	}
	return r.finish()
}

// compare plays the files on a copy of the kernel and compares it with the kernel.
func (r *diffRun) compare(ctx context.Context) error {
	k, err := r.app.open(ctx, r.flags)
	if err != nil {
		r.failAll(err)
		return nil
	}
	r.shadow = newShadow(k)
	r.kernel = r.shadow
	defer r.kernel.Close()
	if err := r.propose(ctx, false); err != nil {
		return err
	}
	for _, t := range r.tables {
		r.diffs = append(r.diffs, diffTables(t.id, r.shadow.before[t.id], r.shadow.after[t.id]))
	}
	if r.shadow.textOnly {
		fmt.Fprintln(r.stderr, "note: no scratch network namespace can be had: rules are compared by their text, so that another spelling shows as a difference")
	}
	return nil
}

// status is the exit status: trouble, else whether anything differs.
func (r *diffRun) status() int {
	switch {
	case r.ctx.Err() != nil:
		return exitInterrupted
	case r.unusable() || len(r.set.refused) > 0 || len(r.failed()) > 0:
		return exitUsage
	}
	for _, d := range r.diffs {
		if len(d.chains) > 0 {
			return exitFindings
		}
	}
	return exitOK
}

// failed returns the messages that would not be applied.
func (r *diffRun) failed() []outcome {
	var out []outcome
	for _, o := range r.outcomes {
		if o.Result != actors.Applied && o.Result != actors.Superseded {
			out = append(out, o)
		}
	}
	return out
}

func (r *diffRun) finish() error {
	code := r.status()
	r.explain()
	var err error
	if r.flags.json() {
		err = writeJSON(r.stdout, r.jsonOutput(code))
	} else {
		w := bufio.NewWriter(r.stdout)
		for _, d := range r.diffs {
			w.WriteString(d.text())
		}
		err = w.Flush()
	}
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("output: %w", err)}
	}
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

type diffOutput struct {
	Schema   string       `json:"schema"`
	Command  string       `json:"command"`
	Backend  string       `json:"backend,omitempty"`
	OK       bool         `json:"ok"`       // the exit status is 0
	TextOnly bool         `json:"textOnly"` // rules were compared by their own text
	Tables   []jsonDiff   `json:"tables"`
	Failed   []jsonAnswer `json:"failed"` // what apply would not apply
	Refused  []jsonPlace  `json:"refused"`
	Findings []jsonPlace  `json:"findings"`
}

type jsonDiff struct {
	IP     rules.IPVersion `json:"ip"`
	Table  string          `json:"table"`
	Diff   string          `json:"diff"` // "" when nothing would change
	Chains []jsonChainDiff `json:"chains"`
}

// jsonChainDiff has a chain's lines, the declaration first; null where there is no chain.
type jsonChainDiff struct {
	Chain  string   `json:"chain"`
	Kernel []string `json:"kernel"`
	Files  []string `json:"files"`
}

func (r *diffRun) jsonOutput(code int) diffOutput {
	out := diffOutput{
		Schema: schema, Command: "diff", Backend: r.backend(), OK: code == exitOK,
		TextOnly: r.shadow != nil && r.shadow.textOnly,
		Tables:   []jsonDiff{}, Failed: []jsonAnswer{}, Refused: jsonRefused(r.set.refused), Findings: []jsonPlace{},
	}
	for _, d := range r.diffs {
		t := jsonDiff{IP: d.id.IPVersion, Table: d.id.Name, Diff: d.text(), Chains: []jsonChainDiff{}}
		for _, c := range d.chains {
			t.Chains = append(t.Chains, jsonChainDiff{c.name, c.before, c.after})
		}
		out.Tables = append(out.Tables, t)
	}
	for _, o := range r.failed() {
		out.Failed = append(out.Failed, o.json())
	}
	for _, f := range r.set.files {
		for _, finding := range f.Findings {
			out.Findings = append(out.Findings, placeOf(f, finding))
		}
	}
	return out
}
