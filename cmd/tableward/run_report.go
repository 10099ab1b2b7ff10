// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// say tells people something, as an entry of the log where that is for programs.
func (d *daemon) say(format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	if d.flags.logFormat == "json" {
		d.log.Info().Msg(text)
		return
	}
	fmt.Fprintln(d.stderr, text)
}

// report tells what is odd or wrong with files that were read.
func (d *daemon) report(set *fileSet) {
	for _, e := range set.refused {
		d.say("refused: %v", e)
		if slices.ContainsFunc(set.files, named(e.File)) {
			d.say("  the version of %s in force is kept: correct the file and send SIGHUP", e.File)
		}
	}
	for _, f := range set.files {
		if slices.Contains(d.set.files, f) {
			continue // told when it came
		}
		for _, finding := range f.Findings {
			d.say("warning: %s", locateFinding(f, finding))
		}
	}
	if d.version == 0 {
		var note strings.Builder
		set.tellPolicies(&note)
		if note.Len() > 0 {
			d.say("%s", note.String())
		}
	}
}

// tellWait tells that a message waits for a kernel chain.
func (d *daemon) tellWait(m *filed) {
	d.say("warning: %s:%d:%d: chain %s does not exist in %s: waiting for it",
		m.file.Name, m.Head.Number, max(m.Head.Column, 1), m.Head.Chain, m.Table)
}

// hear takes news of the runtime in.
func (d *daemon) hear(e actors.Event) {
	switch e.Kind {
	case actors.EventRead, actors.EventRestore:
		if isTrouble(e.Err) {
			d.lastErr[e.Table] = e.Err
		} else {
			delete(d.lastErr, e.Table)
			delete(d.resting, e.Table)
		}
	case actors.EventWait:
		d.resting[e.Table] = d.lastErr[e.Table]
	case actors.EventAnswer, actors.EventLate:
		d.answered(*e.Answer)
	case actors.EventRepaired:
		d.sayRepaired(e)
	}
}

// sayRepaired tells that what others broke is mended: of one chain once a minute, since
// somebody may fight for it.
func (d *daemon) sayRepaired(e actors.Event) {
	const rest = time.Minute
	key := e.Table.String() + " " + e.Drift.Chain
	if last, told := d.mended[key]; told && time.Since(last) < rest {
		return
	}
	d.mended[key] = time.Now()
	d.say("repaired: table %s: %v", e.Table, e.Drift)
}

// isTrouble tells whether an operation failed by no message's fault.
func isTrouble(err error) bool {
	var re *dataplane.RestoreError
	return err != nil && !(errors.As(err, &re) && (re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere))
}

// answered notes an answer. One that is unavailable is no last word: the message stays
// wished, and another answer says when it lands.
func (d *daemon) answered(a actors.Answer) {
	key := answerKey{a.Table, a.ID}
	w := d.byID[key]
	if w == nil || a.Kind == (transaction.InSync{}).Kind() {
		return
	}
	w.answer = a
	if a.Result != actors.Unavailable {
		d.ledger.Settle(w.entry, !w.failing())
		delete(d.byID, key)
	}
	if w.failing() && slices.Contains(d.all(), w) {
		d.say("%s", w.explanation())
	}
}

func (w *wish) explanation() string {
	if w.filed == nil {
		return fmt.Sprintf("%s: withdrawal %s: %v", w.answer.Result, w.answer.ID, w.answer.Err)
	}
	var b strings.Builder
	outcome{w.filed, w.answer}.explain(&b, "send SIGHUP")
	return b.String()
}

// sayReady says, when it has changed, whether the wishes are in the kernel. Messages that
// were refused are not waited for: whoever wrote them has to act.
func (d *daemon) sayReady() {
	line := ""
	if reasons := d.reasons(); len(reasons) > 0 {
		line = "not ready: " + strings.Join(reasons, "; ")
	} else if !slices.ContainsFunc(d.all(), (*wish).pending) {
		line = d.readyLine()
	}
	if !slices.ContainsFunc(d.all(), (*wish).pending) {
		d.settled = true
	}
	if line != "" && line != d.said {
		d.said = line
		d.say("%s", line)
	}
}

// reasons are why wishes are not in the kernel that should be.
func (d *daemon) reasons() []string {
	var out []string
	for _, id := range slices.SortedFunc(maps.Keys(d.resting), rules.TableID.Compare) {
		out = append(out, fmt.Sprintf("table %s is tried again: %v", id, d.resting[id]))
	}
	for _, w := range d.all() {
		if w.answer.Result == actors.Unavailable {
			out = append(out, fmt.Sprintf("table %s: %s", w.answer.Table, outcome{w.filed, w.answer}.reason()))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *daemon) readyLine() string {
	owners := map[string]bool{}
	for _, f := range d.set.files {
		owners[f.Owner] = true
	}
	applied, failing, waiting := 0, len(d.set.refused), 0
	for _, w := range d.wished {
		switch {
		case w.failing():
			failing++
		case w.answer.Result == 0:
			waiting++
		default:
			applied++
		}
	}
	for _, w := range d.withdrawn {
		if w.failing() {
			failing++
		}
	}
	line := fmt.Sprintf("ready: %s, %s applied, %d failing", plural(len(owners), "owner"), plural(applied, "message"), failing)
	if waiting > 0 {
		line += fmt.Sprintf(", %d waiting for a kernel chain", waiting)
	}
	return line
}

// hopeless tells, until all messages have had their answers once, that there is no point in
// going on: another process writes a table, or nothing may be written at all.
func (d *daemon) hopeless() (int, error) {
	if d.settled {
		return exitOK, nil
	}
	done, denied := 0, error(nil)
	for _, w := range d.all() {
		var held *dataplane.TableHeldError
		switch err := w.answer.Err; {
		case errors.As(err, &held):
			return exitEnvironment, held
		case w.answer.Result == actors.Unavailable && isPermission(err):
			denied = err
		case w.answer.Result == actors.Applied || w.answer.Result == actors.Superseded || w.pending():
			done++
		}
	}
	if done > 0 || denied == nil {
		return exitOK, nil
	}
	d.say("%s", permissionAdvice(d.flags, d.kernel.Info().Backend, denied))
	return exitPermission, denied
}

// farewell tells what the end has left undone.
func (d *daemon) farewell() {
	for _, n := range d.inbox.take() {
		if n.fatal == nil {
			d.hear(n.event)
		}
	}
	undone := 0
	for _, w := range d.all() {
		if w.answer.Result == 0 || w.answer.Result == actors.Unavailable {
			undone++
		}
	}
	if undone > 0 {
		d.say("stopped: %s not applied; the rules that are in the kernel stay", plural(undone, "message"))
		return
	}
	d.say("stopped: the rules stay in the kernel")
}
