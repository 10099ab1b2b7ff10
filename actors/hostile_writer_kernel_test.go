// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

var hostileSeed = flag.Uint64("hostile.seed", 1, "of the hostile writer and of the features beside it")

const (
	hostileFeatures = 8
	hostilePause    = 50 * time.Millisecond  // between the beginnings of two acts
	featurePause    = 400 * time.Millisecond // between the beginnings of two messages of one feature
	hostileOver     = 2 * time.Second        // after the last act all is as it should be
	hostileTold     = 5 * time.Second        // after an act it has been told
)

// hostileChains is how many chains each feature has. In a user namespace an nft tool cannot
// restore a table of more than some hundred rules at once.
var hostileChains = func() int {
	ids, err := os.ReadFile("/proc/self/uid_map")
	if fields := strings.Fields(string(ids)); err == nil && len(fields) == 3 && fields[2] != "4294967295" {
		return 5
	}
	return 25
}()

// What does not hold yet.
const (
	// judgeRefused is whether a message may be refused because the writer has changed the table
	// after it was planned.
	judgeRefused = true
	// judgeUndone is whether, on legacy, what the writer undoes without the lock may be believed
	// to be in the kernel: an act without the lock that has read the table before a block of
	// ours, and writes it after, leaves no trace when the number of entries is the same.
	judgeUndone = true
)

// hostileForm is how long the fight goes on, and what the writer has to have done by then.
type hostileForm struct {
	lasts   time.Duration
	acts    int // that changed something
	of      int // of each kind
	commits int // of ours that were read back with nobody writing meanwhile
}

func hostileFormOf(v rules.IPVersion) hostileForm {
	if os.Getenv("TABLEWARD_SOAK") != "" && v == rules.IPv4 {
		return hostileForm{time.Minute, 1000, 50, 50}
	}
	if v == rules.IPv6 {
		return hostileForm{2 * time.Second, 3, 0, 1} // the tools are the same
	}
	return hostileForm{4 * time.Second, 10, 1, 1}
}

// A second writer who flushes, deletes, reorders and doubles what is ours, and who saves the
// whole table and restores it later, beside features that change their chains: each commit of
// ours leaves the chains that it touches whole, each message has its answer, what the writer
// did is told, and soon after his last act the kernel holds what is asked for.
func TestKernelHostileWriter(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, _ *dataplane.Kernel) {
		f := newFight(t, b, v)
		f.load()
		f.run(hostileFormOf(v))
		f.judge(hostileFormOf(v))
	})
}

// fight is a Runtime on a kernel, the features that use it, and the hostile writer.
type fight struct {
	t       *testing.T
	backend dataplane.Backend
	id      rules.TableID
	ns      string
	lock    string // the file that all share
	other   string // the one that the writer locks who does not care
	kernel  *dataplane.Kernel
	rt      *actors.Runtime
	wishes  *fightWishes

	acting atomic.Uint64 // odd while the writer's tool runs
	armed  atomic.Bool   // our commits are read back

	asked, answered atomic.Int64

	mu      sync.Mutex // guards the rest
	told    []toldDrift
	took    []time.Duration // of repairs
	looks   []fightLook
	commits []fightCommit
	sights  []sight
	acts    []hostileAct
	refused []refusal
	works   []historyLine
}

func newFight(t *testing.T, b dataplane.Backend, v rules.IPVersion) *fight {
	t.Helper()
	f := &fight{
		t: t, backend: b, id: rules.TableID{IPVersion: v, Name: "filter"}, ns: testns.New(t),
		other: t.TempDir() + "/other.lock", wishes: newFightWishes(),
	}
	o := testns.Options(t, f.ns, b)
	f.lock = o.LockFile
	k, err := dataplane.NewKernel(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	f.kernel = k
	f.rt = newRuntime(t, witness{k, f}, actors.Options{Refresh: time.Hour, Observe: f.observe}.For(string(b)))
	return f
}

func (f *fight) observe(e actors.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case actors.EventDrift:
		f.told = append(f.told, toldDrift{time.Now(), e.Drift.Chain})
	case actors.EventRepaired:
		f.took = append(f.took, e.Drift.Took)
	}
}

func fightOwner(i int) string { return fmt.Sprintf("feature-%d", i) }

func fightChain(feature, i int) string { return fmt.Sprintf("tw-%d-%02d", feature, i) }

// load writes what strangers have, and then what the features want at first.
func (f *fight) load() {
	t := f.t
	t.Helper()
	stranger := "*filter\n:stranger - [0:0]\n-A stranger -p sctp -j DROP\n-A FORWARD -j stranger\n-A INPUT -j stranger\nCOMMIT\n"
	if err := f.tool(f.lock, stranger, "-restore", "--noflush"); err != nil {
		t.Fatal(err)
	}
	for i := range hostileFeatures {
		var msgs []transaction.Message
		for n := range hostileChains {
			msgs = append(msgs, transaction.Message{Body: transaction.RewriteChains{Chains: []rules.Chain{fightContent(fightChain(i, n), 0)}}})
		}
		hook := rule("-j " + fightChain(i, 0))
		msgs = append(msgs,
			transaction.Message{Body: transaction.InsertRule("FORWARD", hook, transaction.InsertTop)},
			transaction.Message{Body: transaction.InsertRule("INPUT", hook, transaction.InsertBottom)},
			transaction.Message{Body: transaction.SetPolicy{Chain: "FORWARD", Policy: "DROP"}},
		)
		if i > 0 {
			msgs = msgs[:len(msgs)-1] // one of them sets the policy
		}
		for n := range msgs {
			msgs[n].Owner, msgs[n].Priority = fightOwner(i), i
		}
		answers, err := f.rt.Send(context.Background(), f.id, msgs...)
		for _, a := range answers {
			if err != nil || a.Result != actors.Applied {
				t.Fatal(err, a.Result, a.Err)
			}
		}
	}
	if wrong := f.look(t); len(wrong) > 0 {
		t.Fatalf("before the fight: %v", wrong)
	}
	f.armed.Store(true)
}

// run is the fight, and what follows it until all is right.
func (f *fight) run(form hostileForm) {
	t := f.t
	t.Helper()
	begin := time.Now()
	over, stop := context.WithCancel(context.Background())
	var features sync.WaitGroup
	for i := range hostileFeatures {
		features.Go(func() { f.feature(over, i) })
	}
	w := &hostileWriter{fight: f, rnd: rand.New(rand.NewPCG(*hostileSeed, uint64(f.id.IPVersion)))}
	w.fight.act(w, begin, form)
	stop()
	last := f.acts[len(f.acts)-1].end
	features.Wait()
	asked, answered := f.asked.Load(), f.answered.Load()
	if asked != answered {
		t.Errorf("%d messages, %d answers", asked, answered)
	}
	f.settle(last)
}

// settle waits until the kernel holds what is asked for.
func (f *fight) settle(last time.Time) {
	t := f.t
	t.Helper()
	var wrong []string
	for limit := last.Add(10 * hostileOver); time.Now().Before(limit); <-time.After(20 * time.Millisecond) {
		if wrong = f.look(t); len(wrong) == 0 {
			break
		}
	}
	took := time.Since(last)
	t.Logf("as it should be %v after the last act", took.Round(time.Millisecond))
	if len(wrong) > 0 || took > hostileOver {
		t.Errorf("%v after the last act, %d chains are not as they should be: %v", took, len(wrong), wrong)
	}
	// Nothing that is believed to be right is wrong.
	if a, err := f.rt.Refresh(context.Background(), f.id); err != nil || a.Err != nil {
		t.Error(err, a.Err)
	}
	if wrong := f.look(t); len(wrong) > 0 {
		t.Errorf("after a refresh: %v", wrong)
	}
}

// feature rewrites chains of its own, one or two with each message, until ctx ends.
func (f *fight) feature(ctx context.Context, i int) {
	rnd := rand.New(rand.NewPCG(*hostileSeed, uint64(100+i)))
	owner := f.rt.Owner(fightOwner(i), i)
	tick := time.NewTicker(featurePause)
	defer tick.Stop()
	for version := 1; ; version++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var chains []rules.Chain
		for _, n := range rnd.Perm(hostileChains)[:1+rnd.IntN(2)] {
			chains = append(chains, fightContent(fightChain(i, n), version))
		}
		f.wishes.ask(chains)
		f.asked.Add(1)
		a, err := owner.RewriteChains(context.Background(), f.id, chains...)
		if err != nil || a.Result != actors.Applied {
			f.mu.Lock()
			f.refused = append(f.refused, refusal{time.Now(), fmt.Sprintf("a message of %s about %d chains: %v: %v %v", fightOwner(i), len(chains), a.Result, err, a.Err)})
			f.mu.Unlock()
			f.wishes.drop(chains)
		} else {
			f.wishes.hold(chains)
		}
		if err == nil {
			f.answered.Add(1)
		}
	}
}
