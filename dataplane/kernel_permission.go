// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// explain names the capability that a legacy tool lacks where the tool does not: restore says
// the same of a table that does not exist and of one that it may not touch, and save says that
// one must be root, whichever capability is missing.
func (k *Kernel) explain(re *RestoreError) *RestoreError {
	if re == nil || re.Class != Unavailable || k.backend != Legacy ||
		!tableUnknown.MatchString(re.Stderr) && !strings.Contains(re.Stderr, "(you must be root)") {
		return re
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return re
	}
	if missing := missingCapability(string(status), os.Geteuid()); missing != "" {
		e := *re
		e.Reason, e.Err = "no permission: "+missing+" is missing", os.ErrPermission
		return &e
	}
	return re
}

// missingCapability returns which of the two that legacy tools need a program started by us
// would not have: root's has what is in the bounding set, another user's only what is in the
// ambient set.
func missingCapability(status string, uid int) string {
	set := "CapAmb:"
	if uid == 0 {
		set = "CapBnd:"
	}
	for line := range strings.Lines(status) {
		text, found := strings.CutPrefix(line, set)
		if !found {
			continue
		}
		have, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err != nil {
			return ""
		}
		switch {
		case have&(1<<unix.CAP_NET_ADMIN) == 0:
			return "CAP_NET_ADMIN"
		case have&(1<<unix.CAP_NET_RAW) == 0:
			return "CAP_NET_RAW"
		}
	}
	return ""
}
