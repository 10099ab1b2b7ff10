// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Feature is one owner's handle: its messages carry the owner's name and priority. Each
// method waits for the message's answer. The error is ErrPending when ctx ended first (the
// message stays), ErrStopped or ErrNotStarted, or what is wrong with the call itself; a
// message that is refused is no error of the call but the Answer's.
type Feature struct {
	rt       *Runtime
	owner    string
	priority int
}

// Owner returns the handle of an owner. Priority places the owner's rules in kernel chains:
// lower is nearer to the top; owners of one priority are ordered by name.
func (r *Runtime) Owner(name string, priority int) *Feature {
	return &Feature{rt: r, owner: name, priority: priority}
}

// RewriteChains makes each chain hold exactly the rules given.
func (f *Feature) RewriteChains(ctx context.Context, id rules.TableID, chains ...rules.Chain) (Answer, error) {
	return f.Ask(ctx, id, transaction.RewriteChains{Chains: chains})
}

// DeleteChains takes the content of chains away, and the chains where nothing reaches them.
func (f *Feature) DeleteChains(ctx context.Context, id rules.TableID, names ...string) (Answer, error) {
	return f.Ask(ctx, id, transaction.DeleteChains{Chains: names})
}

// HandOver gives chains of this owner to another one.
func (f *Feature) HandOver(ctx context.Context, id rules.TableID, to string, names ...string) (Answer, error) {
	return f.Ask(ctx, id, transaction.HandOver{Chains: names, To: to})
}

// InsertRule lists a rule in a kernel chain: at is InsertTop, InsertFirst, InsertNear or
// InsertBottom.
func (f *Feature) InsertRule(ctx context.Context, id rules.TableID, chain string, rule rules.Rule, at transaction.Op) (Answer, error) {
	return f.Ask(ctx, id, transaction.InsertRule(chain, rule, at))
}

// InsertRuleBefore keeps a rule right above an anchor of a kernel chain, wherever that goes; see
// transaction.InsertBefore for where it stands while there is none.
func (f *Feature) InsertRuleBefore(ctx context.Context, id rules.TableID, chain string, rule rules.Rule, anchor transaction.Anchor) (Answer, error) {
	return f.Ask(ctx, id, transaction.InsertRuleBefore(chain, rule, anchor))
}

// InsertRuleAfter is InsertRuleBefore for the place right below the anchor.
func (f *Feature) InsertRuleAfter(ctx context.Context, id rules.TableID, chain string, rule rules.Rule, anchor transaction.Anchor) (Answer, error) {
	return f.Ask(ctx, id, transaction.InsertRuleAfter(chain, rule, anchor))
}

// RemoveRule withdraws a rule from a kernel chain; keepOut bans it as well.
func (f *Feature) RemoveRule(ctx context.Context, id rules.TableID, chain string, rule rules.Rule, keepOut bool) (Answer, error) {
	return f.Ask(ctx, id, transaction.RemoveRule(chain, rule, keepOut))
}

// SetPolicy sets the policy of a built-in chain, ACCEPT or DROP; "-" releases it.
func (f *Feature) SetPolicy(ctx context.Context, id rules.TableID, chain, policy string) (Answer, error) {
	return f.Ask(ctx, id, transaction.SetPolicy{Chain: chain, Policy: policy})
}

// OverrideStub sets what a stub of the chain holds; nil takes the override away.
func (f *Feature) OverrideStub(ctx context.Context, id rules.TableID, chain string, rs []rules.Rule) (Answer, error) {
	return f.Ask(ctx, id, transaction.OverrideStub{Chain: chain, Rules: rs, Remove: rs == nil})
}

// Refresh reads the table and repairs what differs from the wishes.
func (f *Feature) Refresh(ctx context.Context, id rules.TableID) (Answer, error) {
	return f.Ask(ctx, id, transaction.Refresh{})
}

// EndGrace ends the grace of the table.
func (f *Feature) EndGrace(ctx context.Context, id rules.TableID) (Answer, error) {
	return f.Ask(ctx, id, transaction.EndGrace{})
}

// Cleanup deletes the orphans of an earlier run that an earlier read had shown.
func (f *Feature) Cleanup(ctx context.Context, id rules.TableID) (Answer, error) {
	return f.Ask(ctx, id, transaction.Cleanup{})
}

// InSync says to every table that the owner has sent all that it wants. Tables that are
// started later are told as well.
func (f *Feature) InSync(ctx context.Context) (Answer, error) {
	r := f.rt
	r.mu.Lock()
	r.inSyncs = append(r.inSyncs, f.owner)
	var ids []rules.TableID
	for id := range r.pids {
		ids = append(ids, id)
	}
	err := r.state.err()
	r.mu.Unlock()
	all := Answer{Owner: f.owner, Kind: transaction.InSync{}.Kind(), Result: Applied}
	for _, id := range ids {
		a, askErr := f.Ask(ctx, id, transaction.InSync{})
		if askErr != nil {
			return a, askErr
		}
		if a.Result != Applied {
			all = a
		}
	}
	return all, err
}

// Ask sends one message and waits for its answer.
func (f *Feature) Ask(ctx context.Context, id rules.TableID, body transaction.Body) (Answer, error) {
	answers, err := f.rt.Send(ctx, id, transaction.Message{Owner: f.owner, Priority: f.priority, Body: body})
	if len(answers) == 0 {
		return Answer{}, err
	}
	return answers[0], err
}

// Tell sends one message without waiting; OnAnswer gets the answer. The error is about the
// call: then the message was not taken and no answer comes.
func (f *Feature) Tell(id rules.TableID, body transaction.Body) error {
	return f.rt.Tell(id, transaction.Message{Owner: f.owner, Priority: f.priority, Body: body})
}

// FeatureActor is a feature that is an actor beside the tables' actors. The methods of Feature,
// which wait, may be called by it as well: no table waits for a feature.
type FeatureActor struct {
	*Feature
	pid *actor.PID
}

// Spawn makes the feature an actor of the Runtime, which must be running. Its receive is
// called for one message after the other: what Post gave it, and an Answer for each message
// that Request took. A panic there is logged, and the actor goes on.
func (f *Feature) Spawn(receive func(self *FeatureActor, message any)) (*FeatureActor, error) {
	r := f.rt
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.state.err(); err != nil {
		return nil, err
	}
	a := &FeatureActor{Feature: f}
	a.pid = r.system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case actor.SystemMessage, actor.AutoReceiveMessage: // of the actor's own life
		default:
			defer func() {
				if p := recover(); p != nil {
					r.opts.Logger.Error().Interface("panic", p).Str("owner", f.owner).Msg("panic in a feature actor")
				}
			}()
			receive(a, m)
		}
	}))
	return a, nil
}

// Post puts a message into the actor's own mailbox, from wherever: itself, a timer, another
// feature. It never waits.
func (a *FeatureActor) Post(message any) { a.rt.system.Root.Send(a.pid, message) }

// Request sends a message of the feature's to a table's actor, without waiting: its Answer
// comes into the mailbox. With an error the message was not taken, and no Answer comes.
func (a *FeatureActor) Request(id rules.TableID, m transaction.Message) error {
	if m.Body == nil {
		return fmt.Errorf("message %q has no body", m.ID)
	}
	table, err := a.rt.PID(id)
	if err != nil {
		return err
	}
	m.Owner, m.Priority = a.owner, a.priority
	// Stop goes behind what is sent under the lock.
	a.rt.mu.RLock()
	defer a.rt.mu.RUnlock()
	if err := a.rt.state.err(); err != nil {
		return err
	}
	a.rt.system.Root.RequestWithCustomSender(table, Request{m}, a.pid)
	return nil
}

// End ends the actor when it has handled what is in its mailbox, and waits for that. Answers
// that come later are lost. It must not be called by the actor itself.
func (a *FeatureActor) End() { _ = a.rt.system.Root.PoisonFuture(a.pid).Wait() }

// Tell sends messages without waiting, as one piece: they are in one batch. OnAnswer gets
// the answers.
func (r *Runtime) Tell(id rules.TableID, msgs ...transaction.Message) error {
	items, err := r.items(msgs, nil)
	if err != nil {
		return err
	}
	return r.post(id, items)
}

// Send sends messages as one piece, so that they are in one batch, and waits for all their
// answers, in the order of the messages. When ctx ends first the error is ErrPending, and
// the answers that have not come are zero.
func (r *Runtime) Send(ctx context.Context, id rules.TableID, msgs ...transaction.Message) ([]Answer, error) {
	w := &waiter{answers: make([]Answer, len(msgs)), missing: len(msgs), done: make(chan struct{})}
	items, err := r.items(msgs, w)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	if err := r.post(id, items); err != nil {
		return nil, err
	}
	select {
	case <-w.done:
		return w.answers, nil
	case <-ctx.Done():
		return w.sofar(), fmt.Errorf("%w: %w", ErrPending, ctx.Err())
	}
}

func (r *Runtime) items(msgs []transaction.Message, w *waiter) ([]*item, error) {
	items := make([]*item, len(msgs))
	for i, m := range msgs {
		if m.Body == nil {
			return nil, fmt.Errorf("message %q has no body", m.ID)
		}
		items[i] = &item{msg: r.named(m).Clone()}
		if w != nil {
			items[i].reply = func(a Answer) { w.take(i, a) }
		}
	}
	return items, nil
}

// waiter gathers the answers of one Send.
type waiter struct {
	mu      sync.Mutex // guards answers and missing
	answers []Answer
	missing int
	done    chan struct{}
}

func (w *waiter) take(i int, a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[i] = a
	if w.missing--; w.missing == 0 {
		close(w.done)
	}
}

func (w *waiter) sofar() []Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Answer(nil), w.answers...)
}
