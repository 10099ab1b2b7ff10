// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/cmd/tableward/internal/demo"
	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
	"github.com/tableward/tableward/dataplane"
)

// newDemoCommand returns the command behind "make run". It is hidden: it is for looking, not
// for working with.
func newDemoCommand() *cobra.Command {
	var backend string
	var inside bool
	cmd := &cobra.Command{
		Use:    "demo LOG...",
		Short:  "Let the owners of message logs race for the same tables, in a network namespace of its own",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if backend == "sim" || inside {
				return demoFailed(runDemo(cmd.Context(), cmd.OutOrStdout(), backend, args))
			}
			started, err := demoInNamespace(cmd)
			if started {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "No network namespace can be made here (%v), so the simulator serves.\n", err)
			return demoFailed(runDemo(cmd.Context(), cmd.OutOrStdout(), "sim", args))
		},
	}
	cmd.Flags().StringVar(&backend, "backend", "auto", "auto, nft, legacy or sim")
	cmd.Flags().BoolVar(&inside, "inside", false, "the namespace has been made")
	_ = cmd.Flags().MarkHidden("inside")
	return cmd
}

// demoFailed keeps an error from being taken for one of usage.
func demoFailed(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitEnvironment, err: err}
}

// demoInNamespace runs this program again in a network namespace of its own; one who is not
// root gets a user namespace as well. It reports whether that could be started.
func demoInNamespace(cmd *cobra.Command) (started bool, err error) {
	child := exec.CommandContext(cmd.Context(), "/proc/self/exe", append(os.Args[1:], "--inside")...)
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	if err := child.Start(); err != nil {
		return false, err
	}
	err = child.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return true, &exitError{code: max(exit.ExitCode(), exitFindings)} // it has said why
	}
	return true, err
}

// runDemo runs the demo on the kernel of the namespace that the process is in; on the
// simulator when it is asked for, or when there are no tools.
func runDemo(ctx context.Context, out io.Writer, backend string, files []string) error {
	d := demo.Demo{Out: out}
	for _, name := range files {
		l, err := readLog(name)
		if err != nil {
			return err
		}
		d.Logs = append(d.Logs, l)
	}
	if backend == "sim" {
		d.Kernel, d.Where = dataplane.NewSim(dataplane.NFT), "the simulator, as nft"
		return d.Run(ctx)
	}
	tmp, err := os.MkdirTemp("", "tableward-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	o := dataplane.Options{LockFile: filepath.Join(tmp, "xtables.lock"), StateDir: tmp}
	if backend != "auto" {
		o.Backend = dataplane.Backend(backend)
	}
	k, err := dataplane.NewKernel(ctx, o)
	var missing *dataplane.MissingError
	switch {
	case errors.As(err, &missing) && backend == "auto":
		d.Kernel, d.Where = dataplane.NewSim(dataplane.NFT), fmt.Sprintf("the simulator, as nft, since %v", missing)
		return d.Run(ctx)
	case err != nil:
		return err
	}
	d.Kernel = k
	d.Where = fmt.Sprintf("the kernel, backend %s (%s), in a network namespace of its own", k.Info().Backend, k.Info().Version)
	return errors.Join(d.Run(ctx), k.Close())
}

func readLog(name string) (*msglog.Log, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := msglog.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}
