// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/rules"
)

func (a *app) doctorCommand() *cobra.Command {
	f := flags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps packets from our chains",
		Long: `Doctor reads the tables that are in use, and changes nothing. For each rule of somebody
else's chain, or of a built-in one, that jumps to a chain whose name begins with one of the
prefixes, it names the rules above that decide about packets, so that these never come to it:
ACCEPT, DROP, RETURN and the like. Whether that is as it should be, doctor cannot know.

Exit status, the first that fits: 130 interrupted, 2 usage, 7 permission, 4 environment,
1 something was found, 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if len(f.prefixes) == 0 {
				return errors.New("doctor needs --prefix, to know which chains are ours")
			}
			return a.doctor(cmd.Context(), &f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s := cmd.Flags()
	s.SortFlags = false
	s.StringSliceVar(&f.prefixes, "prefix", nil, "chains whose names begin with `P` are ours; it ends in one of - _ . : (repeatable)")
	s.StringVar(&f.backend, "backend", "auto", "which `BACKEND`: auto, nft or legacy")
	s.StringVar(&f.netns, "netns", "", "network namespace to work in, `NAME|PATH`")
	s.StringVarP(&f.output, "output", "o", "text", "`FORM` of the output: text or json")
	s.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to try")
	s.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	s.StringVar(&f.logFormat, "log-format", "console", "console or json")
	return cmd
}

// shadowed is a rule that jumps to a chain of ours, with the rules above it that decide.
type shadowed struct {
	IP    rules.IPVersion `json:"ip"`
	Table string          `json:"table"`
	Chain string          `json:"chain"`
	Rule  string          `json:"rule"`
	Above []aboveRule     `json:"above"`
}

// aboveRule is a rule with its number in its chain, from 1.
type aboveRule struct {
	Number int    `json:"number"`
	Rule   string `json:"rule"`
}

func (a *app) doctor(ctx context.Context, f *flags, stdout, stderr io.Writer) error {
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
	found := []shadowed{}
	for _, id := range newLive(ctx, k, f).pruneTables(&fileSet{}) {
		snap, err := k.Read(ctx, id)
		switch {
		case err == nil:
			found = append(found, shadowedIn(snap, f.prefixes)...)
		case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
			return errors.Join(&exitError{exitInterrupted, err}, k.Close())
		default:
			fmt.Fprintf(stderr, "warning: table %s cannot be read: %v\n", id, err)
		}
	}
	if err := k.Close(); err != nil {
		return &exitError{exitEnvironment, err}
	}
	if err := printShadowed(stdout, f, found); err != nil {
		return err
	}
	if len(found) > 0 {
		return &exitError{code: exitFindings}
	}
	return nil
}

func printShadowed(w io.Writer, f *flags, found []shadowed) error {
	if f.json() {
		return json.NewEncoder(w).Encode(map[string]any{"schema": "tableward/v1", "command": "doctor", "ok": len(found) == 0, "shadowed": found})
	}
	for _, s := range found {
		fmt.Fprintf(w, "%d/%s: chain %s: %s stands below %s of others\n", s.IP, s.Table, s.Chain, s.Rule, plural(len(s.Above), "deciding rule"))
		for _, r := range s.Above {
			fmt.Fprintf(w, "  %d: %s\n", r.Number, r.Rule)
		}
	}
	return nil
}

// shadowedIn returns the jumps to chains of ours below rules that decide.
func shadowedIn(snap rules.Snapshot, prefixes []string) []shadowed {
	var out []shadowed
	for _, name := range sortedKeys(snap.Chains) {
		if hasPrefix(prefixes, name) {
			continue
		}
		var above []aboveRule
		for i, r := range snap.Chains[name].Rules {
			switch {
			case r.Err == nil && hasPrefix(prefixes, r.Rule.Jump()):
				if len(above) > 0 {
					out = append(out, shadowed{snap.Table.IPVersion, snap.Table.Name, name, r.Text, slices.Clone(above)})
				}
			case r.Err == nil && decides(r.Rule):
				above = append(above, aboveRule{i + 1, r.Text})
			}
		}
	}
	return out
}

// deciding are the targets after which a packet does not come to the next rule.
var deciding = []string{
	"ACCEPT", "BALANCE", "DNAT", "DROP", "MASQUERADE", "MIRROR", "NETMAP", "NFQUEUE", "QUEUE", "REDIRECT", "REJECT", "RETURN", "SAME", "SNAT", "SYNPROXY", "TARPIT", "TPROXY",
}

// decides tells whether a packet that matches the rule does not come to the next one. What a
// chain that it jumps to does is not looked at.
func decides(r rules.Rule) bool {
	return r.IsGoto() || slices.Contains(deciding, r.Target())
}
