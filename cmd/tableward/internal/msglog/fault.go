// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"bytes"
	"errors"
	"slices"
	"syscall"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// faults are the failures that are still to come, by table, in the order of the log.
type faults map[rules.TableID][]Fault

func (fs faults) add(id rules.TableID, f Fault) { fs[id] = append(fs[id], f) }

// next returns the error of the first fault that is about an operation, and uses it up.
// What the tool reads back for a rule is asked outside of the live table, and never fails.
func (fs faults) next(id rules.TableID, on string, input []byte) error {
	list := fs[id]
	i := slices.IndexFunc(list, func(f Fault) bool { return f.On == "any" || f.On == on })
	if i < 0 {
		return nil
	}
	err := list[i].err(input)
	if list[i].Times--; list[i].Times == 0 {
		fs[id] = slices.Delete(list, i, i+1)
	}
	return err
}

// phaseOf tells what a block is for by its text, which is all that the kernel sees: only a
// block of deletes deletes chains.
func phaseOf(input []byte) string {
	if bytes.Contains(input, []byte("\n-X ")) {
		return "delete"
	}
	return "modify"
}

// err is the error that the dataplane makes of the fault.
func (f Fault) err(input []byte) error {
	switch {
	case f.Hang:
		return &dataplane.RestoreError{Class: dataplane.Unknown, ExitCode: -1, Reason: "no answer within the deadline"}
	case f.Killed:
		return &dataplane.RestoreError{Class: dataplane.Unknown, ExitCode: -1, Reason: "the tool was killed"}
	case f.Spawn != "":
		return f.spawnError()
	}
	return dataplane.Classify(f.Exit, f.Stderr, input)
}

// spawnError: what the machine is short of passes, what it lacks does not.
func (f Fault) spawnError() error {
	errno := map[string]error{
		"ENOMEM": syscall.ENOMEM, "EAGAIN": syscall.EAGAIN, "ENOENT": syscall.ENOENT, "EACCES": syscall.EACCES,
	}[f.Spawn]
	class := dataplane.Unavailable
	if errors.Is(errno, syscall.ENOMEM) || errors.Is(errno, syscall.EAGAIN) {
		class = dataplane.Busy
	}
	return &dataplane.RestoreError{Class: class, ExitCode: -1, Reason: "the tool could not be started: " + errno.Error(), Err: errno}
}
