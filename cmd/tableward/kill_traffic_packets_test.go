// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

const (
	trafficPort   = 7777
	trafficPause  = time.Millisecond
	trafficBuffer = 8 << 20 // bytes: seconds of packets
	trafficBurst  = 100     // packets that are due at once, when the sender was kept waiting
)

// traffic is one numbered packet each millisecond from one namespace into another.
type traffic struct {
	ns       string // of the receiver
	receiver *net.UDPConn
	sender   *net.UDPConn
	before   map[string]uint64 // what the machine had dropped
	stop     chan struct{}
	sending  sync.WaitGroup
	arriving sync.WaitGroup

	sent   uint64 // read when sending is over
	late   time.Duration
	gotten []uint64 // numbers, as they came; read when arriving is over
}

// newTraffic connects a new namespace with ns, and begins to send.
func newTraffic(t *testing.T, ns string, v rules.IPVersion) *traffic {
	t.Helper()
	here, there, bits := "10.99.0.1", "10.99.0.2", "/24"
	if v == rules.IPv6 {
		here, there, bits = "fd99::1", "fd99::2", "/64"
	}
	from := testns.New(t)
	const mac, peerMAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
	ip := func(ns string, args ...string) {
		t.Helper()
		if out, err := exec.Command("nsenter", append([]string{"--net=" + ns, "ip"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v (of iproute2, which this test needs): %v\n%s", args, err, out)
		}
	}
	ip(ns, "link", "add", "name", "tw0", "address", mac, "type", "veth", "peer", "name", "tw1", "address", peerMAC, "netns", from)
	for _, end := range []struct{ ns, link, address, other, otherMAC string }{
		{ns, "tw0", here, there, peerMAC}, {from, "tw1", there, here, mac},
	} {
		args := []string{"address", "add", end.address + bits, "dev", end.link}
		if v == rules.IPv6 {
			args = append(args, "nodad")
		}
		ip(end.ns, args...)
		ip(end.ns, "link", "set", end.link, "up")
		ip(end.ns, "neighbour", "replace", end.other, "lladdr", end.otherMAC, "dev", end.link, "nud", "permanent")
	}
	tr := &traffic{ns: ns, stop: make(chan struct{})}
	address := &net.UDPAddr{IP: net.ParseIP(here), Port: trafficPort}
	within(t, ns, func() (err error) { tr.receiver, err = net.ListenUDP("udp", address); return err })
	within(t, from, func() (err error) { tr.sender, err = net.DialUDP("udp", nil, address); return err })
	enlarge(t, tr.receiver)
	t.Cleanup(func() { tr.end() })
	tr.before = tr.dropped(t)
	tr.arriving.Go(tr.receive)
	tr.sending.Go(func() { tr.send(t) })
	return tr
}

// within runs f on a thread that is in a namespace, and that nothing else runs on afterwards.
func within(t *testing.T, ns string, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		file, err := os.Open(ns)
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in namespace %s: %v", ns, err)
	}
}

// enlarge gives a socket room for packets that come while nobody reads.
func enlarge(t *testing.T, c *net.UDPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, trafficBuffer) != nil {
			// In a user namespace there is only what everybody may have.
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, trafficBuffer)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// send sends what is due, at most trafficBurst at once.
func (tr *traffic) send(t *testing.T) {
	begin := time.Now()
	tick := time.NewTicker(trafficPause)
	defer tick.Stop()
	var packet [8]byte
	for {
		select {
		case <-tr.stop:
			return
		case <-tick.C:
		}
		due := uint64(time.Since(begin) / trafficPause)
		if behind := due - tr.sent; behind > trafficBurst {
			tr.late += time.Duration(behind-trafficBurst) * trafficPause
			begin = begin.Add(time.Duration(behind-trafficBurst) * trafficPause)
			due = tr.sent + trafficBurst
		}
		for ; tr.sent < due; tr.sent++ {
			binary.BigEndian.PutUint64(packet[:], tr.sent)
			if _, err := tr.sender.Write(packet[:]); err != nil {
				t.Errorf("packet %d: %v", tr.sent, err)
				return
			}
		}
	}
}

func (tr *traffic) receive() {
	packet := make([]byte, 64)
	for {
		n, err := tr.receiver.Read(packet)
		if err != nil {
			return // closed
		}
		if n == 8 {
			tr.gotten = append(tr.gotten, binary.BigEndian.Uint64(packet))
		}
	}
}

// dropped is what the machine has dropped itself on the packets' way, by reason.
func (tr *traffic) dropped(t *testing.T) map[string]uint64 {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+tr.ns, "cat", "/proc/net/snmp", "/proc/net/snmp6", "/proc/net/dev")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	drops := map[string]uint64{}
	var names []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "Udp:" && names == nil:
			names = words
		case words[0] == "Udp:":
			for i, name := range names {
				if name == "RcvbufErrors" || name == "MemErrors" {
					drops[name] = number(words[i])
				}
			}
		case words[0] == "Udp6RcvbufErrors" || words[0] == "Udp6MemErrors":
			drops[words[0]] = number(words[1])
		case words[0] == "tw0:" && len(words) == 17:
			drops["receive errors"], drops["receive drops"] = number(words[3]), number(words[4])
		}
	}
	if names == nil {
		t.Fatalf("no counters of UDP in %s", out)
	}
	return drops
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

// end stops sending, and then receiving.
func (tr *traffic) end() {
	select {
	case <-tr.stop:
		return
	default:
		close(tr.stop)
	}
	tr.sending.Wait()
	_ = tr.receiver.SetReadDeadline(time.Now().Add(500 * time.Millisecond)) // what was sent is in its buffer
	tr.arriving.Wait()
	tr.sender.Close()
	tr.receiver.Close()
}

// finish ends the traffic and holds that no packet was lost but by the machine itself.
func (tr *traffic) finish(t *testing.T) {
	t.Helper()
	after := tr.dropped(t)
	tr.end()
	var machine uint64
	for reason, n := range after {
		machine += n - tr.before[reason]
	}
	came := make(map[uint64]bool, len(tr.gotten))
	for _, n := range tr.gotten {
		came[n] = true
	}
	var gaps []string
	lost := uint64(0)
	for n := uint64(0); n < tr.sent; n++ {
		if came[n] {
			continue
		}
		first := n
		for n+1 < tr.sent && !came[n+1] {
			n++
		}
		lost += n - first + 1
		gaps = append(gaps, fmt.Sprintf("%d to %d", first, n))
	}
	if lost > machine {
		t.Errorf("%d packets of %d were lost, %d of them by the machine: %s", lost, tr.sent, machine, strings.Join(gaps, ", "))
	}
	if tr.sent == 0 || len(tr.gotten) == 0 {
		t.Errorf("%d packets sent, %d received", tr.sent, len(tr.gotten))
	}
	t.Logf("%d packets sent, %d received, %d dropped by the machine; the sender was kept waiting for %v", tr.sent, len(tr.gotten), machine, tr.late)
}
