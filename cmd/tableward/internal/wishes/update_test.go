// SPDX-License-Identifier: Apache-2.0

package wishes

import "flag"

// "go test ./... -update" reaches every package; here there is no golden to rewrite.
var _ = flag.Bool("update", false, "rewrite golden files; there are none here")
