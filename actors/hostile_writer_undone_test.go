// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// undone is a Kernel beside a writer who has read the table before a block of ours and writes
// after it, without the lock: what the block changed is as before.
type undone struct {
	*dataplane.Kernel
	undo func(input string)
}

func (u undone) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	err := u.Kernel.Restore(ctx, id, input)
	u.undo(string(input))
	return err
}

// A block of ours that somebody else's write has undone at once is not believed to be in the
// kernel, though the table has the size that it had.
func TestKernelWriteUndone(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		if b == dataplane.Legacy && !judgeUndone {
			continue
		}
		t.Run(string(b), func(t *testing.T) {
			f := newFight(t, b, rules.IPv4)
			k := f.kernel
			done := false
			rt := newRuntime(t, undone{k, func(input string) {
				if done || !strings.Contains(input, "--dport 2222") {
					return
				}
				done = true
				if err := f.tool(f.other, "*filter\n:tw-a - [0:0]\n-A tw-a -p tcp -m tcp --dport 1111 -j ACCEPT\nCOMMIT\n", "-restore", "--noflush"); err != nil {
					t.Error(err)
				}
			}}, actors.Options{Refresh: time.Hour}.For(string(b)))
			for _, port := range []string{"1111", "2222"} {
				a, err := rt.RewriteChains(context.Background(), f.id, chainOf("tw-a", "-p tcp -m tcp --dport "+port+" -j ACCEPT"))
				if err != nil || a.Err != nil {
					t.Fatal(err, a.Err)
				}
			}
			for limit := time.Now().Add(hostileTold); ; <-time.After(20 * time.Millisecond) {
				s, err := f.save()
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(s.text, "--dport 2222") {
					return
				}
				if time.Now().After(limit) {
					t.Fatalf("the kernel never holds what was answered to be applied:\n%s", s.text)
				}
			}
		})
	}
}
