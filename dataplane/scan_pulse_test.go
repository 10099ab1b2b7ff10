// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"testing"

	"github.com/tableward/tableward/dataplane"
)

// What Scan and Read return has the pulse that the table has, which is another one when somebody
// else has written it.
func TestScanAndReadHaveThePulse(t *testing.T) {
	eachScanning(t, func(t *testing.T, b dataplane.Backend, k scanning) {
		k.load("filter", ":tw-a - [0:0]; -A tw-a -p tcp")
		pulses := func() (now, all, named, read, readNamed uint64) {
			now, err := k.Pulse(background, k.id("filter"))
			if err != nil {
				t.Fatal(err)
			}
			return now, k.scan("filter").Pulse, k.scan("filter", "tw-a").Pulse, k.read("filter").Pulse, k.read("filter", "tw-a").Pulse
		}
		last := uint64(0)
		for _, who := range []string{"we", "we", "other", "we", "other"} {
			if who == "we" {
				k.load("filter", "-A tw-a -p udp")
			} else {
				tool := map[bool]string{false: "iptables-", true: "ip6tables-"}[k.v == 6] + string(b)
				k.run(tool, "-A", "tw-a", "-p", "udp")
			}
			now, all, named, read, readNamed := pulses()
			if now == 0 || all != now || named != now || read != now || readNamed != now || last != 0 && (who == "other") != (now != last) {
				t.Errorf("%s wrote: pulse %d after %d, scanned %d, %d, read %d, %d", who, now, last, all, named, read, readNamed)
			}
			last = now
		}
	})
}

// A read has a pulse only if nobody else wrote meanwhile.
func TestScanHasNoUnsteadyPulse(t *testing.T) {
	k := newScanning(t, dataplane.NFT, 4)
	k.load("filter", ":tw-a - [0:0]")
	before, err := k.Pulse(background, k.id("filter"))
	if err != nil {
		t.Fatal(err)
	}
	if got := dataplane.SteadyPulse(k.Kernel, k.id("filter"), before); got != before {
		t.Errorf("nobody wrote: %d, want %d", got, before)
	}
	k.run("iptables-nft", "-A", "tw-a", "-p", "udp")
	if got := dataplane.SteadyPulse(k.Kernel, k.id("filter"), before); got != 0 {
		t.Errorf("somebody wrote: %d", got)
	}
	if got := dataplane.SteadyPulse(k.Kernel, k.id("filter"), 0); got != 0 {
		t.Errorf("it was not to be had: %d", got)
	}
}
