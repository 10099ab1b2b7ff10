// SPDX-License-Identifier: Apache-2.0

package demo_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/cmd/tableward/internal/demo"
	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
)

// The order in which features race is left to chance; what is found in the end is not.
const natInTheEnd = `  *nat
  :PREROUTING ACCEPT
  :INPUT ACCEPT
  :OUTPUT ACCEPT
  :POSTROUTING ACCEPT
  :LOCAL-NAT -
  :tw-eg-blue -
  :tw-egress -
  :tw-pf -
  :tw-pf-5353 -
  :tw-pf-8080 -
  -A PREROUTING -m addrtype --dst-type LOCAL -j tw-pf
  -A POSTROUTING -m comment --comment "egress SNAT" -j tw-egress
  -A POSTROUTING -j LOCAL-NAT
  -A POSTROUTING -s 10.42.0.0/16 -m conntrack --ctstate DNAT -m comment --comment hairpin -j MASQUERADE
  -A LOCAL-NAT -s 172.16.0.0/12 -j MASQUERADE
  -A tw-eg-blue -m comment --comment "tenant: \"blue\"" -j SNAT --to-source 192.0.2.11
  -A tw-egress -s 10.42.0.0/16 -d 10.42.0.0/16 -m comment --comment "pod to pod" -j RETURN
  -A tw-egress -s 10.42.1.0/24 -j tw-eg-blue
  -A tw-pf -p tcp -m tcp --dport 8080 -j tw-pf-8080
  -A tw-pf -p udp -m udp --dport 5353 -j tw-pf-5353
  -A tw-pf-5353 -d 198.51.100.1/32 -p udp -j DNAT --to-destination 10.42.2.53:53
  -A tw-pf-8080 -d 198.51.100.1/32 -p tcp -j DNAT --to-destination 10.42.1.10:80
  COMMIT
`

var essential = []string{
	"tw-pol-web: is jumped to, nobody has sent it yet; until then: DROP\n",
	"tw-pf-5353: is jumped to, nobody has sent it yet; until then: RETURN\n",
	"rejected    nodepolicy-3 ",
	"the port 66443 is out of range\n",
	"rejected    nodepolicy-4 ",
	"unknown target ACCPET; did you mean ACCEPT?\n",
	"applied     nodepolicy-7   rewrite tw-pol-web (2 rules)\n",
	"deleted     tw-eg-green\n",
	"deleted     tw-eg-gone\n",
	"23 messages of 3 features: ",
	" 2 rejected; ",
	", 0 of them refused.\n",
}

func logs(t *testing.T) []*msglog.Log {
	t.Helper()
	names, err := filepath.Glob("../../../../testdata/demo/*.log")
	if err != nil || len(names) != 3 {
		t.Fatalf("logs: %v, %v", names, err)
	}
	var out []*msglog.Log
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		l, err := msglog.Parse(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, l)
	}
	return out
}

func run(t *testing.T, k demo.Kernel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	d := demo.Demo{Kernel: k, Where: "a test", Logs: logs(t), Out: &out, Hurry: true}
	if err := d.Run(ctx); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range essential {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	_, nat, _ := strings.Cut(out.String(), "Table nat, IPv4, in the end:\n")
	nat, _, _ = strings.Cut(nat, "\n\n")
	if diff := cmp.Diff(natInTheEnd, nat+"\n"); diff != "" {
		t.Errorf("table nat (-want +got):\n%s", diff)
	}
}

func TestDemoOnSimulator(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b), func(t *testing.T) { run(t, dataplane.NewSim(b)) })
	}
}

// The demo's logs are of both IP versions, so it is not counted for one of them.
func TestDemoOnKernel(t *testing.T) {
	for _, b := range []dataplane.Backend{dataplane.NFT, dataplane.Legacy} {
		t.Run(string(b), func(t *testing.T) {
			k, err := dataplane.NewKernel(context.Background(), testns.Options(t, testns.New(t), b))
			if err != nil {
				t.Skipf("no kernel: %v", err)
			}
			defer k.Close()
			run(t, k)
		})
	}
}
