// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/rulefile"
	"github.com/tableward/tableward/cmd/tableward/internal/wishes"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// send takes files over: it withdraws what they do not say any more and sends what the
// runtime does not hold. All of one table goes as one piece, whoever owns it, since a rule
// of one owner may jump to a chain of another, and a chain may change its owner.
func (d *daemon) send(set *fileSet, l *live) {
	d.set, d.version = set, d.version+1
	d.noteOwners()
	msgs := set.messages()
	want := make([]wishes.Message, len(msgs))
	for i, m := range msgs {
		want[i] = wishes.Message{Table: m.Table, Message: m.Message.Message}
	}
	old := d.oldWishes()
	late, view := d.view(want)
	withdraw, send := view.Diff(want)
	d.withdrawn = nil
	pieces := map[rules.TableID][]transaction.Message{}
	for i, m := range append(late, withdraw...) {
		m.ID = fmt.Sprintf("%s#withdraw%d@%d", m.Owner, i+1, d.version)
		m.Priority = d.flags.priority // the owner's place, which each of its messages tells
		d.withdrawn = append(d.withdrawn, d.add(m, nil, pieces))
	}
	d.wished = make([]*wish, len(msgs))
	for i, m := range msgs {
		w := old[want[i].Key()]
		switch _, needed := slices.BinarySearch(send, i); {
		case needed:
			want[i].ID = d.idOf(m)
			w = d.add(want[i], m, pieces)
			if w.waits = l.absent(m); w.waits {
				d.tellWait(m)
			}
		case w != nil:
			w.filed = m
		default:
			w = heldAlready(m)
		}
		d.wished[i] = w
	}
	declared := d.set.declared()
	for _, id := range slices.SortedFunc(maps.Keys(pieces), rules.TableID.Compare) {
		// Names that a file declares count as ours, in a later version too.
		if err := d.rt.Own(id, sortedKeys(declared[id])...); err != nil {
			d.inbox.fatal(err)
		}
		if err := d.rt.Tell(id, pieces[id]...); err != nil {
			d.inbox.fatal(err) // it has been stopped, or a table's actor cannot be had
		}
	}
}

// idOf is FILE#n at first. An answer names its message by the id alone, and an earlier
// version's may still be to come.
func (d *daemon) idOf(m *filed) string {
	if d.version == 1 {
		return m.ID
	}
	return fmt.Sprintf("%s@%d", m.ID, d.version)
}

// add notes a message that goes to the runtime.
func (d *daemon) add(m wishes.Message, f *filed, pieces map[rules.TableID][]transaction.Message) *wish {
	w := &wish{filed: f, entry: d.ledger.Send(m), id: answerKey{m.Table, m.ID}, owner: m.Owner}
	d.byID[w.id] = w
	pieces[m.Table] = append(pieces[m.Table], m.Message)
	return w
}

// heldAlready is the wish of a message that need not be sent: earlier ones say the same.
func heldAlready(m *filed) *wish {
	return &wish{filed: m, owner: m.Owner, answer: actors.Answer{
		ID: m.ID, Owner: m.Owner, Table: m.Table, Kind: m.Body.Kind(), Result: actors.Applied,
	}}
}

// view returns what the runtime will hold. Of a message that waits for its kernel chain
// only the whole can be withdrawn, since it is carried out as a whole when the chain comes:
// where the files do not say it any more, late takes all of it back, and what they still say
// of it is sent again.
func (d *daemon) view(want []wishes.Message) (late []wishes.Message, view *wishes.Held) {
	wanted := map[string]bool{}
	for _, m := range want {
		wanted[m.Key()] = true
	}
	dropped := map[*wishes.Entry]bool{}
	for _, w := range d.wished {
		if w.waits && w.answer.Result == 0 && !wanted[w.entry.Key()] {
			dropped[w.entry] = true
			late = append(late, w.entry.Withdrawal())
		}
	}
	return late, d.ledger.View(func(e *wishes.Entry) bool { return dropped[e] })
}

// oldWishes are those of the version before that were not refused, by what they say.
func (d *daemon) oldWishes() map[string]*wish {
	out := map[string]*wish{}
	for _, w := range d.wished {
		if !w.failing() {
			out[wishes.Message{Table: w.Table, Message: w.Message.Message}.Key()] = w
		}
	}
	return out
}

// noteOwners notes who owns the files, and whose wishes are not known because a file of
// theirs is refused.
func (d *daemon) noteOwners() {
	d.broken = map[string]bool{}
	for _, f := range d.set.files {
		d.owners[f.Owner] = true
	}
	for _, e := range d.set.refused {
		if slices.ContainsFunc(d.set.files, named(e.File)) || d.folders[e.File] {
			continue
		}
		owner := d.flags.owner
		if owner == "" {
			owner = rulefile.OwnerOf(e.File)
		}
		d.owners[owner], d.broken[owner] = true, true
	}
}

// all returns the wishes of the files in force and what they took back.
func (d *daemon) all() []*wish { return slices.Concat(d.withdrawn, d.wished) }

// pending tells whether an answer is to come that does not wait for others to act.
func (w *wish) pending() bool { return w.answer.Result == 0 && !w.waits }

// failing tells whether the message was refused.
func (w *wish) failing() bool {
	return w.answer.Result == actors.Rejected || w.answer.Result == actors.Conflict
}
