// SPDX-License-Identifier: Apache-2.0

package wishes

import "slices"

// Ledger knows what a runtime holds while some answers are still to come. The zero Ledger is
// empty. Not safe for concurrent use.
type Ledger struct {
	base *Held
	sent []*Entry // in the order in which they were sent; all before them is in base
}

// Entry is a message that was sent.
type Entry struct {
	Message
	answered bool
}

// Send notes a message that goes to the runtime now.
func (l *Ledger) Send(m Message) *Entry {
	e := &Entry{Message: m}
	l.sent = append(l.sent, e)
	return e
}

// Settle notes a final answer: whether the runtime holds the message.
func (l *Ledger) Settle(e *Entry, held bool) {
	e.answered = true
	if !held {
		l.sent = slices.DeleteFunc(l.sent, func(o *Entry) bool { return o == e })
	}
	for len(l.sent) > 0 && l.sent[0].answered {
		l.init()
		l.base.Apply(l.sent[0].Message)
		l.sent = l.sent[1:]
	}
}

func (l *Ledger) init() {
	if l.base == nil {
		l.base = &Held{}
	}
}

// View returns what the runtime will hold when each message that has no answer yet is
// applied, but for those that except names; nil names none.
func (l *Ledger) View(except func(*Entry) bool) *Held {
	l.init()
	h := l.base.Clone()
	for _, e := range l.sent {
		if except == nil || !except(e) {
			h.Apply(e.Message)
		}
	}
	return h
}
