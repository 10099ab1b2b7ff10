// SPDX-License-Identifier: Apache-2.0

package msglog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
)

// hostile are rules that iptables-restore would take for something else than they look.
var hostile = []string{
	"-j ACCEPT\n-I INPUT -j ACCEPT", "-m comment --comment \"open -j DROP", "-j ACCEPT\x00", "-j ACCEPT -F", "-j ACCEPT -h",
	"-A INPUT -j ACCEPT", "-j ACCEPT -6", "-M /bin/true -j ACCEPT", "-m comment --comment \"\r\n:x - [0:0]\" -j DROP",
}

// A flood of hostile text is rejected message by message before the kernel sees any of it,
// and leaves every other message applied.
func TestFloodOfHostileText(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"tableward":"log/v1","backend":"nft","prefix":["tw-"]}` + "\n")
	bad, good := 0, 0
	for i := range 2000 {
		text, id := hostile[i%len(hostile)], fmt.Sprintf("bad-%d", i)
		if bad++; i%20 == 0 {
			text, id = "-j ACCEPT", fmt.Sprintf("good-%d", i)
			bad, good = bad-1, good+1
		}
		quoted, err := json.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, `{"at":"0s","id":%q,"table":"filter","rewrite":{"tw-%d":%s}}`+"\n", id, i, quoted)
	}
	l, err := msglog.Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := msglog.Replay(l)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, r := range tr.Records {
		switch r.Kind {
		case actors.EventAnswer:
			got[strings.SplitN(r.ID, "-", 2)[0]+" "+r.Answer.String()]++
		case actors.EventRestore:
			if r.Err != nil || strings.Count(r.Restore, "\n") != 2+2*good {
				t.Errorf("the kernel was sent\n%s%v", r.Restore, r.Err)
			}
		}
	}
	if got["bad rejected"] != bad || got["good applied"] != good || len(got) != 2 {
		t.Errorf("answers %v, want %d bad rejected and %d good applied", got, bad, good)
	}
}
