// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"github.com/asynkron/protoactor-go/actor"
)

// guardMailbox wraps a table actor's mailbox so that nothing in it is lost when the actor
// ends: protoactor drops what is queued behind a stop without a word, and suspends the
// mailbox of an actor that it stops for its failures.
func guardMailbox(s *shell) actor.MailboxProducer {
	inner := actor.Unbounded()
	return func() actor.Mailbox { return &guarded{Mailbox: inner(), shell: s} }
}

type guarded struct {
	actor.Mailbox
	shell *shell
}

// RegisterHandlers implements actor.Mailbox.
func (g *guarded) RegisterHandlers(invoker actor.MessageInvoker, dispatcher actor.Dispatcher) {
	g.Mailbox.RegisterHandlers(&guardedInvoker{invoker, g}, dispatcher)
}

// guardedInvoker hands messages on as long as the actor lives; then it answers them.
type guardedInvoker struct {
	actor.MessageInvoker
	box *guarded
}

// InvokeUserMessage implements actor.MessageInvoker.
func (i *guardedInvoker) InvokeUserMessage(message any) {
	if i.box.shell.gone.Load() {
		i.box.shell.bury(message)
		return
	}
	i.MessageInvoker.InvokeUserMessage(message)
}

// InvokeSystemMessage implements actor.MessageInvoker. After the system message that ends
// the actor the mailbox goes on, to answer what is left in it.
func (i *guardedInvoker) InvokeSystemMessage(message any) {
	was := i.box.shell.gone.Load()
	i.MessageInvoker.InvokeSystemMessage(message)
	if !was && i.box.shell.gone.Load() {
		i.box.PostSystemMessage(&actor.ResumeMailbox{})
	}
}

// bury answers a message that reaches the table's actor after its end.
func (s *shell) bury(message any) {
	var sender *actor.PID
	if env, ok := message.(*actor.MessageEnvelope); ok {
		message, sender = env.Message, env.Sender
	}
	switch m := message.(type) {
	case Request:
		s.buryRequest(sender, m)
	case *Request:
		s.buryRequest(sender, *m)
	default:
		s.rt.bury(message)
	}
}

func (s *shell) buryRequest(sender *actor.PID, m Request) {
	it := s.itemOf(sender, m)
	s.rt.deliver(it, s.refusal(it))
}
