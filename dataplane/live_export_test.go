// SPDX-License-Identifier: Apache-2.0

package dataplane

import "github.com/tableward/tableward/rules"

// LivePID returns the process that is kept open for a table, 0 if there is none.
func (k *Kernel) LivePID(id rules.TableID) int {
	l := k.live.byTable[id]
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tool == nil {
		return 0
	}
	return l.tool.cmd.Process.Pid
}

// RestLive does what comes when a table's tool has been idle.
func (k *Kernel) RestLive(id rules.TableID) {
	l := k.live.byTable[id]
	l.mu.Lock()
	p := l.tool
	l.mu.Unlock()
	l.rest(k, p)
}
