// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"os/exec"

	"github.com/tableward/tableward/rules"
)

// ErrDeadline is the cause by which a tool's time ends.
var ErrDeadline = errDeadline

// NeverLive has each block be given to a tool of its own.
func (k *Kernel) NeverLive() { k.live.never() }

// SetMaxResident bounds the memory of a legacy tool that is kept open.
func (k *Kernel) SetMaxResident(bytes int64) { k.live.maxResident = bytes }

// ToolLockFile is the file that the tools of a table are told to lock.
func (k *Kernel) ToolLockFile(id rules.TableID) string { return k.toolLockFile(k.tools[id.IPVersion]) }

// Start starts a command in the namespace.
func (k *Kernel) Start(cmd *exec.Cmd) error { return k.ns.enter(cmd) }
