// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// schema names the form of all JSON output but the message log's.
const schema = "tableward/v1"

type versionOutput struct {
	Schema   string `json:"schema"`
	Command  string `json:"command"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("output", output, []string{"text", "json"}); err != nil {
				return err
			}
			v := buildVersion()
			if output == "json" {
				return writeJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "tableward %s\n", v)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORM` of the output: text or json")
	return cmd
}

// String returns "v1.2.3 (revision, go, platform)".
func (v versionOutput) String() string {
	s := v.Version + " ("
	if v.Revision != "" {
		s += v.Revision
		if v.Modified {
			s += " modified"
		}
		s += ", "
	}
	return s + v.Go + ", " + v.Platform + ", schema " + v.Schema + ")"
}

// buildVersion reads what the Go tool has put into the program.
func buildVersion() versionOutput {
	v := versionOutput{
		Schema: schema, Command: "version", Version: "(devel)",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
