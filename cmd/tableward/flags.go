// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
)

// flags are those that the commands about rules files share.
type flags struct {
	ipv6        bool
	policies    bool
	stubMissing bool
	strict      bool
	dryRun      bool
	prune       bool
	take        []string
	owner       string
	prefixes    []string
	priority    int
	backend     string
	netns       string
	output      string
	logLevel    string
	logFormat   string
	timeout     time.Duration
	stateDir    string
	grace       time.Duration // of run
	refresh     time.Duration // of run
}

func (f *flags) add(cmd *cobra.Command) {
	s := cmd.Flags()
	s.SortFlags = false
	s.BoolVar(&f.ipv6, "ipv6", false, `tables are IPv6 where a file does not say ("# ip: 4")`)
	s.BoolVar(&f.policies, "policies", false, "set the policies of built-in chains that files say")
	s.BoolVar(&f.stubMissing, "stub-missing", false, "let a rule of a kernel chain jump to a chain that does not exist, which becomes a stub")
	s.StringVar(&f.owner, "owner", "", "`NAME` of the owner of all files (default: each file's base name up to its first dot)")
	s.StringSliceVar(&f.prefixes, "prefix", nil, "names that begin with `P` are ours; it ends in one of - _ . : (repeatable)")
	s.IntVar(&f.priority, "priority", 0, "`N`, the place of the owner's rules in kernel chains, lower is nearer to the top")
	s.BoolVar(&f.strict, "strict", false, "apply nothing when a file is refused")
	s.StringVar(&f.backend, "backend", "auto", "which `BACKEND`: auto, nft, legacy or sim")
	s.StringVar(&f.netns, "netns", "", "network namespace to work in, `NAME|PATH`")
	s.StringVar(&f.stateDir, "state-dir", "", "`DIR` of the locks by which a table has one writer, and of the state files of run (default: /run/tableward, or one of the user's)")
	s.StringVarP(&f.output, "output", "o", "text", "`FORM` of the output: text or json")
	s.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to try; what has no answer then is unavailable")
	s.BoolVar(&f.dryRun, "dry-run", false, "print the restore input and touch nothing")
	s.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	s.StringVar(&f.logFormat, "log-format", "console", "console or json")
	s.Bool("no-color", false, "no colours; none are used in any case")
}

// addChanges adds the flags of the commands that change the kernel, or show how.
func (f *flags) addChanges(cmd *cobra.Command) {
	s := cmd.Flags()
	s.BoolVar(&f.prune, "prune", false, "delete chains with one of the prefixes that no file declares, and the rules of kernel chains that jump to them")
	f.addTake(cmd)
}

func (f *flags) addTake(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.take, "take", nil, "declare `CHAIN` although it exists and has the name of another program's chain (repeatable)")
}

// addRun adds the flags of run.
func (f *flags) addRun(cmd *cobra.Command) {
	s := cmd.Flags()
	s.DurationVar(&f.grace, "grace", 30*time.Second, "how long chains of an earlier run are left as they are when their owners do not speak; 0 is not at all")
	s.DurationVar(&f.refresh, "refresh", time.Minute, "time between two looks at each table, which repair it; 0 is never")
	f.addTake(cmd)
}

// check refuses values that no flag may have.
func (f *flags) check() error {
	for _, v := range []struct {
		flag, value string
		allowed     []string
	}{
		{"backend", f.backend, []string{"auto", "nft", "legacy", "sim"}},
		{"output", f.output, []string{"text", "json"}},
		{"log-level", f.logLevel, []string{"trace", "debug", "info", "warn", "error"}},
		{"log-format", f.logFormat, []string{"console", "json"}},
	} {
		if err := oneOf(v.flag, v.value, v.allowed); err != nil {
			return err
		}
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %s: it must be above 0", f.timeout)
	}
	if f.grace < 0 || f.refresh < 0 {
		return errors.New("--grace and --refresh cannot be below 0")
	}
	for _, p := range f.prefixes {
		if p == "" || !strings.ContainsAny(p[len(p)-1:], "-_.:") {
			return fmt.Errorf("--prefix %q: it must end in one of - _ . :, so that it cannot cut a name in two", p)
		}
	}
	if f.prune && len(f.prefixes) == 0 {
		return errors.New("--prune needs --prefix: it deletes the chains whose name begins with it")
	}
	return nil
}

func oneOf(flag, value string, allowed []string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("--%s %q: one of %s", flag, value, strings.Join(allowed, ", "))
}

// json tells whether output is for programs.
func (f *flags) json() bool { return f.output == "json" }

func (f *flags) fileOptions(label string) rulefile.Options {
	return rulefile.Options{
		Owner: f.owner, IPv6: f.ipv6, Policies: f.policies, StubMissing: f.stubMissing,
		Priority: f.priority, Label: label,
	}
}

// logger writes what operators should know to w.
func (f *flags) logger(w io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil {
		level = zerolog.InfoLevel
	}
	if f.logFormat == "console" {
		w = zerolog.ConsoleWriter{Out: w, NoColor: true, TimeFormat: time.RFC3339}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}

// fromEnvironment sets each flag that was not given from its variable: --log-level from
// TABLEWARD_LOG_LEVEL.
func fromEnvironment(set *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	set.VisitAll(func(f *pflag.Flag) {
		name := "TABLEWARD_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, found := lookup(name)
		if f.Changed || !found || f.Name == "help" || failed != nil {
			return
		}
		if err := set.Set(f.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s: %w", name, err)
		}
	})
	return failed
}

// runtimeLog is the log of a runtime inside a command. What it tells at info, blocks that were
// refused or have to wait, the commands tell people in their own way.
func runtimeLog(log zerolog.Logger) zerolog.Logger {
	if log.GetLevel() == zerolog.InfoLevel {
		return log.Level(zerolog.WarnLevel)
	}
	return log
}
