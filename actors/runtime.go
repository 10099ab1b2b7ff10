// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/rs/zerolog"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Options are what a Runtime may be told. The zero value is the production default, with
// no prefix.
type Options struct {
	// Table is the configuration that every table shares; Table.Table is filled in.
	Table transaction.Config
	// Adjust may change a table's configuration when the table's actor starts; nil changes
	// nothing.
	Adjust func(*transaction.Config)
	// OnAnswer gets the answers of messages that were only told. It is called by the table's
	// actor and must not block.
	OnAnswer func(Answer)
	// Observe gets reads, restores and answers as they happen. It is called by several
	// goroutines and must not block.
	Observe func(Event)
	// OnBatch gets the record of each batch when it is over. It is called by the tables'
	// actors and must not block.
	OnBatch func(BatchRecord)
	// Clock is the time that waits are measured by; nil is the machine's.
	Clock Clock
	// Logger gets what operators should know; the zero value logs nothing.
	Logger zerolog.Logger
	// Refresh is the time between two looks at a table, which repair it and, once grace is
	// over, delete orphans; 0 is DefaultRefresh, negative is never.
	Refresh time.Duration
	// GraceTimeout ends grace where not every owner says InSync; 0 is DefaultGrace, negative
	// is never.
	GraceTimeout time.Duration
	// Spacing is the least time from the end of one batch to the beginning of the next, for
	// each table; 0 is none. On nft the tables are paced together besides; see Pace.
	Spacing time.Duration
	// Pace is the time for which a commit that frees something holds up the next commit of
	// any table: NFTPace on nft, 0 (none) for all else.
	Pace time.Duration
	// Limits bound what one batch holds; zero is 20,000 messages and 8 MiB.
	Limits Limits
	// MaxPending refuses messages of Go callers with ErrBusy while as many wait for a table;
	// 0 is no limit. Actors are never refused.
	MaxPending int
	// Fatal is told when a table's actor ends though nobody stopped the Runtime: it panicked
	// too often, or somebody stopped its actor. All its messages have been answered. It is
	// called once for each table, and must not block.
	Fatal func(error)
	// StateDir is a folder, made if need be, for a file of each table with what is believed of
	// it, so that the next Runtime need not read what nobody has changed, and knows which rules
	// of kernel chains and which chains without a prefix are ours. "" is none. The files may be
	// deleted at any time; one that is damaged, or of another boot or network namespace, is
	// ignored. Runtimes of different network namespaces need different folders.
	StateDir string
	// NoJitter makes refreshes and rests between tries come exactly when they are due.
	NoJitter bool
}

// Runtime owns the tables of one network namespace: one actor for each IP version and
// table, started when its first message comes. Its own methods speak for the owner "".
type Runtime struct {
	Feature

	dp       Dataplane
	opts     Options
	system   *actor.ActorSystem
	ctx      context.Context // ends when operations under way must end
	cancel   context.CancelFunc
	ids      atomic.Uint64
	watching sync.WaitGroup
	pacer    *pacer // nil: tables are not paced together

	shells sync.Map // *shell by the id of its PID; read where mu may be held

	mu      sync.RWMutex // guards what follows; senders hold it for reading while they send
	state   lifecycle
	tables  map[rules.TableID]*shell
	pids    map[rules.TableID]*actor.PID
	inSyncs []string // owners that are in sync, for tables that are started later
}

// For sets Pace, Spacing and Table.Backend as they are right for a kernel's backend: "nft" or
// "legacy", as dataplane.Info has it. For any other nothing is set.
func (o Options) For(backend string) Options {
	if backend == "nft" || backend == "legacy" {
		o.Table.Backend = backend
	}
	switch backend {
	case "nft":
		o.Pace = NFTPace
	case "legacy":
		o.Spacing = LegacySpacing
	}
	return o
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = RealClock{}
	}
	o.Refresh = cmp.Or(o.Refresh, DefaultRefresh)
	o.GraceTimeout = cmp.Or(o.GraceTimeout, DefaultGrace)
	if o.Limits == (Limits{}) {
		o.Limits = defaultLimits
	}
}

// New returns a Runtime that has touched nothing yet.
func New(dp Dataplane, opts Options) (*Runtime, error) {
	check := opts.Table
	check.Table = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	if err := check.Validate(); err != nil {
		return nil, err
	}
	opts.setDefaults()
	r := &Runtime{dp: dp, opts: opts, tables: map[rules.TableID]*shell{}, pids: map[rules.TableID]*actor.PID{}}
	r.Feature = Feature{rt: r}
	if opts.Pace > 0 {
		r.pacer = &pacer{spacing: opts.Pace}
	}
	return r, nil
}

// PID returns the actor of a table, for senders that are actors of the same system (see
// System) and speak Request.
func (r *Runtime) PID(id rules.TableID) (*actor.PID, error) {
	r.mu.RLock()
	pid, state := r.pids[id], r.state
	r.mu.RUnlock()
	if pid != nil || state != running {
		return pid, state.err()
	}
	return r.spawn(id)
}

// System returns the actor system that the table actors live in, for feature actors that
// are to live beside them.
func (r *Runtime) System() *actor.ActorSystem { return r.system }

// spawn starts the actor of a table.
func (r *Runtime) spawn(id rules.TableID) (*actor.PID, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.state.err(); err != nil || r.pids[id] != nil {
		return r.pids[id], err
	}
	cfg := r.opts.Table
	cfg.Table, cfg.Kinds = id, canTry(r.dp)
	if r.opts.Adjust != nil {
		r.opts.Adjust(&cfg)
	}
	jitter := 0.1
	if r.opts.NoJitter {
		jitter = 0
	}
	c, err := newCore(cfg, jitter)
	if err != nil {
		return nil, err
	}
	_, c.eyes.able = r.dp.(Scanner)
	c.mail.limits, c.mail.spacing = r.opts.Limits, r.opts.Spacing
	s := &shell{rt: r, core: c, keep: r.keeperOf(id), report: reporter{log: r.opts.Logger.With().Stringer("table", id).Logger()}}
	props := actor.PropsFromProducer(func() actor.Actor { return s }, actor.WithMailbox(guardMailbox(s)))
	pid, err := r.system.Root.SpawnNamed(props, "table-"+strconv.Itoa(int(id.IPVersion))+"-"+id.Name)
	if err != nil {
		return nil, err
	}
	r.tables[id], r.pids[id] = s, pid
	r.shells.Store(pid.Id, s)
	for _, owner := range r.inSyncs {
		msg := transaction.Message{ID: owner + " in sync", Owner: owner, Body: transaction.InSync{}}
		r.system.Root.Send(pid, &envelope{[]*item{{msg: msg, answered: true}}, s})
	}
	return pid, nil
}

// Own makes chain names ours whatever their prefix, as Config.OwnChains does, before any
// message that is sent afterwards.
func (r *Runtime) Own(id rules.TableID, names ...string) error {
	pid, err := r.PID(id)
	if err != nil {
		return err
	}
	r.system.Root.Send(pid, own{slices.Clone(names)})
	return nil
}

// post puts items into a table's mailbox as one, so that they are in one batch.
func (r *Runtime) post(id rules.TableID, items []*item) error {
	if err := id.Validate(); err != nil {
		return err
	}
	for {
		r.mu.RLock()
		pid, s, err := r.pids[id], r.tables[id], r.state.err()
		if most := int64(r.opts.MaxPending); err == nil && pid != nil && most > 0 && s.depth.Load() >= most {
			err = ErrBusy
		}
		if err == nil && pid != nil {
			s.depth.Add(int64(len(items)))
			r.system.Root.Send(pid, &envelope{items, s})
		}
		r.mu.RUnlock()
		if err != nil || pid != nil {
			return err
		}
		if _, err := r.spawn(id); err != nil {
			return err
		}
	}
}

// deliver gives an answer to who waits for it. A callback that panics harms nobody else's
// answer.
func (r *Runtime) deliver(it *item, a Answer) {
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.Error().Interface("panic", p).Str("message", a.ID).Msg("panic in a callback that took an answer")
		}
	}()
	if r.opts.Observe != nil && !it.internal {
		r.observe(Event{Table: a.Table, Kind: EventAnswer, Answer: &a})
	}
	switch {
	case it.reply != nil:
		it.reply(a)
	case r.opts.OnAnswer != nil:
		r.opts.OnAnswer(a)
	}
}

// tellBatch hands on the record of a batch.
func (r *Runtime) tellBatch(b BatchRecord) {
	if r.opts.OnBatch == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.Error().Interface("panic", p).Msg("panic in a callback that takes batch records")
		}
	}()
	r.opts.OnBatch(b)
}

// observe tells an event. It is called by table actors and beside them; a callback that
// panics ends neither.
func (r *Runtime) observe(e Event) {
	if r.opts.Observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.opts.Logger.Error().Interface("panic", p).Msg("panic in a callback that observes")
		}
	}()
	r.opts.Observe(e)
}

// named gives a message without an id one of its own.
func (r *Runtime) named(m transaction.Message) transaction.Message {
	if m.ID == "" {
		m.ID = strconv.FormatUint(r.ids.Add(1), 10)
		if m.Owner != "" {
			m.ID = m.Owner + "#" + m.ID
		}
	}
	return m
}
