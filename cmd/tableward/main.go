// SPDX-License-Identifier: Apache-2.0

// Command tableward keeps iptables rules as files and messages say.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program: it returns the exit status. SIGINT and SIGTERM end it in order, the
// second one at once.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return (&app{open: openKernel}).run(ctx, args, stdin, stdout, stderr)
}

// app is what the commands share.
type app struct {
	// open opens what rules are written to; a test brings its own.
	open func(context.Context, *flags) (kernel, error)
	// signals are those that run lives by; nil takes the real ones.
	signals <-chan os.Signal
}

func (a *app) run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := a.rootCommand()
	root.SetArgs(append([]string{}, args...)) // never nil: cobra would take those of the process
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		fmt.Fprintf(stderr, "error: %v\nRun '%s --help' for usage.\n", err, cmd.CommandPath())
		return exitUsage
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "error: %v\n", exit.err)
	}
	return exit.code
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "tableward",
		Short: "Keeps iptables rules as files and messages say",
		Long: `Tableward keeps the chains of iptables as rules files and messages say. Rules of others
in the same tables are left alone, and one bad rule does not keep the good ones out.

Each flag can be given in the environment too: --log-level as TABLEWARD_LOG_LEVEL.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), os.LookupEnv)
		},
	}
	root.AddCommand(a.applyCommand(), a.diffCommand(), a.checkCommand(), a.runCommand(), a.cleanupCommand(), a.doctorCommand(), newReplayCommand(), newDemoCommand(), versionCommand())
	return root
}
