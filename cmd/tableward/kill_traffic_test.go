// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

var killSeedFlag = flag.Uint64("kill.seed", 1, "of the moments at which the daemon is killed")

// trafficKills is how often the daemon is killed.
func trafficKills(v rules.IPVersion) int {
	switch soak := os.Getenv("TABLEWARD_SOAK") != ""; {
	case soak && v == rules.IPv4:
		return 50
	case soak || v == rules.IPv4:
		return 5
	}
	return 2
}

// TestKillTraffic holds that a daemon which is killed at any moment, and started again, loses
// no packet that its rules accept, and no counter of a rule that nobody changes.
func TestKillTraffic(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		w := newTrafficWorld(t, b, v)
		w.change()
		d := w.start()
		w.ready(d)
		w.checkCounters("after the first start")
		for n := range trafficKills(v) {
			what := w.untilKilled(d)
			d = w.start()
			if n%5 == 4 { // it dies before it has begun
				w.pause(300 * time.Millisecond)
				w.kill(d)
				d = w.start()
			}
			w.ready(d)
			w.checkCounters(fmt.Sprintf("start %d, killed %s", n+1, what))
		}
		w.reload(d)
		w.ready(d)
		w.checkCounters("at the end")
		w.checkRules()
		w.end(d)
		w.traffic.finish(t)
		t.Logf("seed %d: %d kills, %d starts, %d reloads", *killSeedFlag, w.kills, w.starts, w.version)
	})
}

// trafficWorld is a namespace whose rules a daemon keeps, and through which packets come.
type trafficWorld struct {
	t        *testing.T
	n        namespace
	v        rules.IPVersion
	lock     string
	dir      string // of the rules files
	rnd      *rand.Rand
	traffic  *traffic
	version  int
	counters map[string]counter
	starts   int
	kills    int
}

type counter struct{ packets, bytes uint64 }

func newTrafficWorld(t *testing.T, b dataplane.Backend, v rules.IPVersion) *trafficWorld {
	t.Helper()
	w := &trafficWorld{
		t: t, n: namespace{path: testns.New(t), backend: b}, v: v, lock: filepath.Join(t.TempDir(), "xtables.lock"),
		dir: t.TempDir(), rnd: rand.New(rand.NewPCG(*killSeedFlag, uint64(v))),
	}
	t.Setenv("XTABLES_LOCKFILE", w.lock)
	w.n.load(t, v, fmt.Sprintf("*filter\n:stranger - [0:0]\n-A stranger -p udp -m udp --dport %d\n-A INPUT -j stranger\nCOMMIT\n", trafficPort))
	w.traffic = newTraffic(t, w.n.path, v)
	return w
}

// Rules that nobody changes, which all packets meet, and chains that change beside them; one
// of these is what the packets pass.
const (
	stillRules = "*filter\n:tw-still - [0:0]\n-A INPUT -j tw-still\n-A tw-still -p udp -m udp --dport %d\n-A tw-still -p udp\nCOMMIT\n"
	passRules  = "*filter\n:INPUT DROP [0:0]\n:tw-pass - [0:0]\n-A INPUT -j tw-pass\n" +
		"-A tw-pass -p %s -j ACCEPT\n-A tw-pass -p tcp -m tcp --dport %d -j ACCEPT\n-A tw-pass -p udp -m udp --dport %d -j ACCEPT\n-A tw-pass -p tcp -m tcp --dport %d -j DROP\nCOMMIT\n"
	otherChains = 20
)

// change writes the next version of the rules files: each chain that packets do not pass, and
// every other time the one that they pass.
func (w *trafficWorld) change() {
	w.version++
	var chains, rs strings.Builder
	for i := range otherChains {
		fmt.Fprintf(&chains, ":tw-other-%d - [0:0]\n", i)
		for n := range 1 + w.version%3 {
			fmt.Fprintf(&rs, "-A tw-other-%d -p tcp -m tcp --dport %d -j ACCEPT\n", i, 1000*(n+1)+w.version)
		}
		fmt.Fprintf(&rs, "-A INPUT -p tcp -m tcp --dport %d -j tw-other-%d\n", i+1, i)
	}
	w.writeRules("3-other", "*filter\n"+chains.String()+rs.String()+"COMMIT\n")
	icmp := map[rules.IPVersion]string{rules.IPv4: "icmp", rules.IPv6: "ipv6-icmp"}[w.v]
	w.writeRules("2-pass", fmt.Sprintf(passRules, icmp, 1000+w.version/2, trafficPort, 3000+w.version/2))
	w.writeRules("1-still", fmt.Sprintf(stillRules, trafficPort))
}

// writeRules puts a file in its place as a whole.
func (w *trafficWorld) writeRules(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name+".rules")
	writeFile(w.t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}

// daemonProcess is the program in a process of its own.
type daemonProcess struct {
	cmd    *exec.Cmd
	stderr *watched
}

func (w *trafficWorld) start() *daemonProcess {
	w.t.Helper()
	w.starts++
	args := append([]string{"run"}, w.n.flags()...)
	args = append(args, fmt.Sprintf("--ipv6=%t", w.v == rules.IPv6), "--prefix", "tw-", "--policies", w.dir)
	d := &daemonProcess{cmd: exec.Command(os.Args[0], args...), stderr: newWatched()}
	// It does not live to remove what it makes in its temporary folder.
	d.cmd.Env = append(os.Environ(), runVariable+"=1", "TMPDIR="+w.t.TempDir(), "GORACE=atexit_sleep_ms=0")
	d.cmd.Stderr = d.stderr
	d.cmd.WaitDelay = 10 * time.Second // tools that outlive it have its stderr too
	if err := d.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.kill(d) })
	return d
}

func (w *trafficWorld) ready(d *daemonProcess) {
	w.t.Helper()
	d.stderr.wait(w.t, "ready: 3 owners")
}

// kill kills the daemon, and waits for its tools to end too.
func (w *trafficWorld) kill(d *daemonProcess) {
	if d.cmd.ProcessState != nil {
		return
	}
	w.kills++
	_ = d.cmd.Process.Kill() // fails if it has just ended
	_ = d.cmd.Wait()         // it was killed
	d.stderr.end()
}

func (w *trafficWorld) reload(d *daemonProcess) {
	w.t.Helper()
	w.change()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
}

// untilKilled has the daemon read files again and again until it is killed, and says how.
func (w *trafficWorld) untilKilled(d *daemonProcess) string {
	w.t.Helper()
	at := time.Now().Add(time.Duration(w.rnd.Int64N(int64(400 * time.Millisecond))))
	reloads := 0
	for {
		w.reload(d)
		reloads++
		next := time.Duration(w.rnd.Int64N(int64(100 * time.Millisecond)))
		if left := time.Until(at); left < next {
			w.pause(max(0, left))
			break
		}
		w.pause(next)
	}
	w.kill(d)
	if w.rnd.IntN(2) == 0 {
		w.change()
	}
	return fmt.Sprintf("after %d reloads, version %d", reloads, w.version)
}

// pause is a random moment's coming.
func (w *trafficWorld) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
	}
}

// end has the daemon end in order.
func (w *trafficWorld) end(d *daemonProcess) {
	w.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	if err := d.cmd.Wait(); err != nil {
		w.t.Errorf("the daemon: %v\n%s", err, d.stderr)
	}
}

// save is the table with its counters, read while nobody writes: a legacy tool has all
// counters at zero for a moment.
func (w *trafficWorld) save() string {
	w.t.Helper()
	f, err := os.OpenFile(w.lock, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		w.t.Fatal(err)
	}
	return w.output(toolOf(w.v)+"-"+string(w.n.backend)+"-save", "-c", "-t", "filter")
}

func toolOf(v rules.IPVersion) string {
	return map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[v]
}

func (w *trafficWorld) output(args ...string) string {
	w.t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + w.n.path}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

var countedRule = regexp.MustCompile(`^\[(\d+):(\d+)\] (-A .*)$`)

// judgeEditedChains tells whether rules that stay in a chain that is changed must keep their
// counters too. They do not yet: a chain is written as a whole by the first block after the
// start, and by one that follows another before that was verified.
const judgeEditedChains = true

// untouched tells whether nobody changes a rule once it is there.
func untouched(text string) bool {
	return strings.HasPrefix(text, "-A tw-still ") || strings.HasPrefix(text, "-A stranger ") ||
		strings.HasPrefix(text, "-A INPUT -j ") ||
		text == fmt.Sprintf("-A tw-pass -p udp -m udp --dport %d -j ACCEPT", trafficPort)
}

// checkCounters holds that counters of rules that nobody changes are not lower than before.
func (w *trafficWorld) checkCounters(when string) {
	w.t.Helper()
	now := map[string]counter{}
	for line := range strings.Lines(w.save()) {
		m := countedRule.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || !untouched(m[3]) {
			continue
		}
		packets, _ := strconv.ParseUint(m[1], 10, 64)
		bytes, _ := strconv.ParseUint(m[2], 10, 64)
		now[m[3]] = counter{packets, bytes}
	}
	if w.counters == nil && len(now) != 7 {
		w.t.Fatalf("%s: %d rules that nobody changes, want 7: %v", when, len(now), now)
	}
	for text, was := range w.counters {
		switch is, there := now[text]; {
		case !there:
			w.t.Errorf("%s: %s is gone", when, text)
		case !judgeEditedChains && strings.HasPrefix(text, "-A tw-pass "):
		case is.packets < was.packets || is.bytes < was.bytes:
			w.t.Errorf("%s: the counters of %s were %v and are %v", when, text, was, is)
		case is.packets == was.packets:
			w.t.Errorf("%s: no packet has met %s: %v", when, text, is)
		}
	}
	w.counters = now
}

// checkRules holds that the kernel has the last version.
func (w *trafficWorld) checkRules() {
	w.t.Helper()
	text := w.save()
	for _, want := range []string{
		fmt.Sprintf("-A tw-pass -p tcp -m tcp --dport %d -j ACCEPT\n", 1000+w.version/2),
		fmt.Sprintf("-A tw-other-%d -p tcp -m tcp --dport %d -j ACCEPT\n", otherChains-1, 1000+w.version),
		":INPUT DROP ",
	} {
		if !strings.Contains(text, want) {
			w.t.Errorf("at the end the table lacks %q:\n%s", want, text)
		}
	}
}
