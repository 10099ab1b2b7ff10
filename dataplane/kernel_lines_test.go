// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// What the kernel names, and whether it is to be believed.
func TestKernelLines(t *testing.T) {
	const hooked = "-A FORWARD -j tw-a"
	long := func(bad map[int]string) []string {
		lines := []string{":tw-a - [0:0]", hooked}
		for i := range 150 { // in a user namespace nft takes no more in one block
			text := fmt.Sprintf("-p tcp -m tcp --dport %d -m comment --comment \"rule %d\" -j ACCEPT", i+1, i)
			if bad[i] != "" {
				text = bad[i]
			}
			lines = append(lines, "-A tw-a "+text)
		}
		return lines
	}
	const owner, once = "-m owner --socket-exists -j ACCEPT", "-p tcp -j REDIRECT"
	cases := map[string]struct {
		lines []string
		first []int // named first; the block's first line is 1
		more  bool  // more are named, all in a row
		apart bool
	}{
		"three at once":               {long(map[int]string{3: once, 75: once, 148: once}), []int{7, 79, 152}, false, true},
		"one at once":                 {long(map[int]string{60: once}), []int{64}, false, true},
		"two neighbours at once":      {long(map[int]string{60: once, 61: once}), []int{64, 65}, false, false},
		"twenty at once":              {long(map[int]string{1: once, 3: once, 5: once, 7: once, 9: once, 11: once, 13: once, 15: once, 17: once, 19: once, 21: once, 23: once, 25: once, 27: once, 29: once, 31: once, 33: once, 35: once, 37: once, 39: once}), []int{5, 7, 9, 11}, true, true},
		"from a hook, in the middle":  {long(map[int]string{75: owner}), []int{79, 80, 81}, true, false},
		"from a hook, last but one":   {[]string{":tw-a - [0:0]", hooked, "-A tw-a " + owner, "-A tw-a -j DROP"}, []int{4, 5}, false, false},
		"from a hook, last":           {[]string{":tw-a - [0:0]", hooked, "-A tw-a -p tcp", "-A tw-a " + owner}, []int{5}, false, true},
		"from a hook, native between": {[]string{":tw-a - [0:0]", hooked, "-A tw-a " + owner, "-A tw-a -p tcp", "-A tw-a -p udp", "-A tw-a -j DROP"}, []int{4, 5, 6, 7}, false, false},
		"a loop":                      {[]string{":tw-a - [0:0]", ":tw-b - [0:0]", "-A tw-a -j tw-b", "-A tw-b -j tw-a", hooked}, []int{6}, false, false},
	}
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for name, c := range cases {
			input := "*filter\n" + strings.Join(c.lines, "\n") + "\nCOMMIT\n"
			re := restoreError(t, k.Restore(background, id, []byte(input)))
			if b == dataplane.Legacy {
				if re.Class != dataplane.RejectedSomewhere || re.Lines != nil || re.Apart() {
					t.Errorf("%s: %+v", name, re)
				}
				continue
			}
			var got []int
			for _, l := range re.Lines {
				got = append(got, l.Line)
				if l.Text != c.lines[l.Line-2] {
					t.Errorf("%s: line %d is %q", name, l.Line, l.Text)
				}
			}
			if diff := cmp.Diff(c.first, got[:min(len(got), len(c.first))]); diff != "" || len(got) > len(c.first) != c.more || re.Line != c.first[0] {
				t.Errorf("%s: lines %v (-want +got):\n%s", name, got, diff)
			}
			if re.Apart() != c.apart || !slices.IsSorted(got) {
				t.Errorf("%s: lines %v, apart %v", name, got, re.Apart())
			}
		}
	})
}
