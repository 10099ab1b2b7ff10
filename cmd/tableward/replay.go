// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
)

// replayOptions are the flags of replay.
type replayOptions struct {
	output string
	golden string
	kernel bool
	netns  string
}

func newReplayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay LOG ...",
		Short: "Replay message logs on the simulator and print the transcript",
		Long: `Replay plays message logs on a kernel in memory, in virtual time, and prints the
transcript: each block of restore input, each answer, and what the tables hold in
the end. Equal logs give equal transcripts, byte for byte. LOG - is standard input.

With --golden the transcript of one log is compared with a file instead, as JSON when
its name ends in .json or .jsonl, else as text, and the difference is printed.

With --kernel a log is replayed on the real kernel, in a network namespace that is made
for it, or in the one of --netns; never in the host's.

Exit status: 0 whatever the answers were, 1 differs from the golden, 2 a bad log, 4 no
kernel or no namespace.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, logs []string) error {
			return o.run(cmd.InOrStdin(), cmd.OutOrStdout(), logs)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "form of the transcript: text or json")
	cmd.Flags().StringVar(&o.golden, "golden", "", "compare the transcript with `FILE`")
	cmd.Flags().BoolVar(&o.kernel, "kernel", false, "replay on the kernel, in a network namespace of its own")
	cmd.Flags().StringVar(&o.netns, "netns", "", "replay on the kernel, in the network namespace `NAME|PATH`")
	return cmd
}

func (o *replayOptions) run(stdin io.Reader, stdout io.Writer, logs []string) error {
	if err := o.check(logs); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	for _, name := range logs {
		t, err := o.replay(stdin, name)
		if err != nil {
			return err
		}
		if o.golden != "" {
			return compareGolden(stdout, o.golden, name, t)
		}
		if len(logs) > 1 && o.output == "text" {
			fmt.Fprintf(stdout, "# %s\n", name)
		}
		if _, err := stdout.Write(render(t, o.output)); err != nil {
			return &exitError{code: exitUsage, err: err}
		}
	}
	return nil
}

func (o *replayOptions) check(logs []string) error {
	switch {
	case len(logs) == 0:
		return errors.New("replay needs a LOG; - is standard input")
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("output %q: text or json", o.output)
	case o.golden != "" && len(logs) > 1:
		return errors.New("--golden compares one LOG")
	}
	return nil
}

// replay plays one log. Its errors are exitErrors.
func (o *replayOptions) replay(stdin io.Reader, name string) (*msglog.Transcript, error) {
	l, err := parseLog(stdin, name)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	play := msglog.Replay
	if o.kernel || o.netns != "" {
		play = o.onKernel
	}
	t, err := play(l)
	var exit *exitError
	if err != nil && !errors.As(err, &exit) {
		err = &exitError{code: exitUsage, err: fmt.Errorf("%s: %w", name, err)}
	}
	return t, err
}

func (o *replayOptions) onKernel(l *msglog.Log) (*msglog.Transcript, error) {
	w, err := msglog.NewKernelWorld(l.Header.Backend, o.netns)
	if err != nil {
		return nil, &exitError{code: exitEnvironment, err: err}
	}
	t, err := msglog.ReplayOn(l, w)
	return t, errors.Join(err, w.Close())
}

func parseLog(stdin io.Reader, name string) (*msglog.Log, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	l, err := msglog.Parse(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

func render(t *msglog.Transcript, form string) []byte {
	if form == "json" {
		return t.AppendJSON(nil)
	}
	return t.AppendText(nil)
}

func compareGolden(stdout io.Writer, golden, name string, t *msglog.Transcript) error {
	want, err := os.ReadFile(golden)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	form := "text"
	if ext := filepath.Ext(golden); ext == ".json" || ext == ".jsonl" {
		form = "json"
	}
	diff := msglog.Diff(golden, name, string(want), string(render(t, form)))
	if diff == "" {
		return nil
	}
	fmt.Fprint(stdout, diff)
	return &exitError{code: exitFindings, err: fmt.Errorf("%s: the transcript differs from %s", name, golden)}
}
