// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/dataplane"
)

// The writer's kinds of acts.
var hostileKinds = []string{"flush", "delete", "reorder", "double", "save and restore"}

// hostileWriter does harm at random.
type hostileWriter struct {
	*fight
	rnd   *rand.Rand
	saves []saved // the last few
}

// keptSaves is how many acts lie between a save and its restore.
const keptSaves = 6

// hostileAct is one act.
type hostileAct struct {
	kind, what   string
	before, end  time.Time // from the beginning of the save before it to the end of the one after it
	begin        time.Time
	noLock       bool
	err          error
	changed      []string // chains that were not the same afterwards
	wrong        []string // those of them that were then not as they should be
	effective    []string // changed, and not by us
	effectWrong  []string
	unattributed int
}

// order is what the writer is about to do: a command, or a block for restore.
type order struct {
	suffix string
	args   []string
	input  string
}

func command(text string) *order {
	return &order{args: append([]string{"-w", "5"}, strings.Fields(text)...)}
}

func block(lines ...string) *order {
	return &order{suffix: "-restore", args: []string{"--noflush", "-w", "5"}, input: "*filter\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"}
}

// act is the writer's life.
func (f *fight) act(w *hostileWriter, begin time.Time, form hostileForm) {
	tick := time.NewTicker(hostilePause)
	defer tick.Stop()
	for {
		passed := time.Since(begin)
		if passed >= form.lasts && (w.enough(form) || passed >= 8*form.lasts) {
			return
		}
		<-tick.C
		w.once()
	}
}

// enough tells whether the writer has done what the form asks for; what cannot be told apart
// from our own writes is found out only afterwards, so some more than that.
func (w *hostileWriter) enough(form hostileForm) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, of := 0, map[string]int{}
	for i := range w.acts {
		if w.attribute(&w.acts[i]); len(w.acts[i].effective) > 0 {
			n++
			of[w.acts[i].kind]++
		}
	}
	for _, kind := range hostileKinds {
		if of[kind] < form.of {
			return false
		}
	}
	return n >= form.acts
}

func (w *hostileWriter) once() {
	t := w.t
	a := hostileAct{before: time.Now()}
	before, err := w.see(t)
	if err != nil {
		return
	}
	w.saves = append(w.saves, before)
	if len(w.saves) > keptSaves {
		w.saves = slices.Delete(w.saves, 0, 1)
	}
	var o *order
	for _, i := range w.rnd.Perm(len(hostileKinds)) {
		if o = w.order(hostileKinds[i], before); o != nil {
			a.kind = hostileKinds[i]
			break
		}
	}
	if o == nil {
		return
	}
	lock := w.lock
	if judgeUndone && w.backend == dataplane.Legacy && w.rnd.IntN(2) == 0 {
		lock, a.noLock = w.other, true
	}
	a.what = strings.Join(o.args, " ") + " " + o.input
	if a.kind == "save and restore" {
		a.what = "an old save"
	}
	w.acting.Add(1)
	a.begin = time.Now()
	a.err = w.tool(lock, o.input, o.suffix, o.args...)
	w.acting.Add(1)
	after, err := w.see(t)
	if err != nil {
		return
	}
	a.end = time.Now()
	a.changed = differences(before.view(), after.view())
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.sights[len(w.sights)-1].wrong
	for _, name := range a.changed {
		if slices.Contains(now, name) {
			a.wrong = append(a.wrong, name)
		}
	}
	w.acts = append(w.acts, a)
}

// order makes an act of a kind, nil where there is nothing to do it to.
func (w *hostileWriter) order(kind string, s saved) *order {
	kernel := []string{"FORWARD", "INPUT"}[w.rnd.IntN(2)]
	var hooks []string
	for _, r := range s.rules[kernel] {
		if strings.HasPrefix(r, "-j tw-") {
			hooks = append(hooks, r)
		}
	}
	var full []string // chains of ours with two rules at least
	for name, rs := range s.rules {
		if strings.HasPrefix(name, "tw-") && len(rs) > 1 {
			full = append(full, name)
		}
	}
	slices.Sort(full)
	dice := w.rnd.IntN(100)
	whole, hook := dice < 2, dice < 20
	if kind == "save and restore" {
		if len(w.saves) < keptSaves || len(differences(w.saves[0].view(), s.view())) == 0 {
			return nil
		}
		return &order{suffix: "-restore", args: []string{"-w", "5"}, input: w.saves[0].text}
	}
	if hook && !whole && len(hooks) == 0 || !hook && len(full) == 0 {
		return nil
	}
	switch {
	case whole && kind == "flush":
		return command("-F")
	case whole && kind == "delete":
		return block("-F", "-X")
	case hook && len(hooks) > 0:
		return w.atHook(kind, kernel, hooks[w.rnd.IntN(len(hooks))])
	case len(full) > 0:
		return w.atChain(kind, full[w.rnd.IntN(len(full))], s)
	}
	return nil
}

func (w *hostileWriter) atHook(kind, kernel, r string) *order {
	switch kind {
	case "flush":
		return command("-F " + kernel)
	case "delete":
		return command("-D " + kernel + " " + r)
	case "reorder":
		return block("-D "+kernel+" "+r, map[string]string{"FORWARD": "-A ", "INPUT": "-I "}[kernel]+kernel+" "+r)
	}
	return command([]string{"-A ", "-I "}[w.rnd.IntN(2)] + kernel + " " + r)
}

func (w *hostileWriter) atChain(kind, name string, s saved) *order {
	rs := s.rules[name]
	n := w.rnd.IntN(len(rs))
	switch kind {
	case "flush":
		return command("-F " + name)
	case "reorder":
		n := w.rnd.IntN(len(rs) - 1) // the last one goes nowhere
		return block(fmt.Sprintf("-D %s %d", name, n+1), "-A "+name+" "+rs[n])
	case "double":
		return command([]string{"-A ", "-I "}[w.rnd.IntN(2)] + name + " " + rs[n])
	}
	if w.rnd.IntN(5) > 0 {
		return command(fmt.Sprintf("-D %s %d", name, n+1))
	}
	var lines []string // the chain as a whole, and what leads to it
	for from, rs := range s.rules {
		for _, r := range rs {
			if r == "-j "+name {
				lines = append(lines, "-D "+from+" "+r)
			}
		}
	}
	slices.Sort(lines)
	return block(append(lines, "-F "+name, "-X "+name)...)
}
