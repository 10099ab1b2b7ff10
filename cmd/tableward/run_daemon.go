// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/wishes"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// daemon keeps the wishes of files. One goroutine, that of loop, has all of it; what the
// runtime tells comes through the inbox.
type daemon struct {
	ctx    context.Context // cuts the start and each reading of the kernel short
	flags  *flags
	args   []string
	stderr io.Writer // safe for several goroutines
	log    zerolog.Logger
	kernel kernel
	dry    *dryKernel // not nil with --dry-run: it is the kernel then
	rt     *actors.Runtime
	inbox  inbox
	asks   sync.WaitGroup // calls of the runtime that wait for an answer

	folders map[string]bool // arguments that were folders once
	set     *fileSet        // the files in force
	version int             // how often files were taken over
	broken  map[string]bool // owners of refused files of which no version is in force
	owners  map[string]bool // all that ever were
	inSync  map[string]bool // those that have said so

	ledger    wishes.Ledger
	wished    []*wish // the messages of the files in force, in order
	withdrawn []*wish // by the last version
	byID      map[answerKey]*wish

	mended  map[string]time.Time    // when a repair was told last, by table and chain
	lastErr map[rules.TableID]error // of the last operation on a table, when that was no message's fault
	resting map[rules.TableID]error // tables that are tried again after a rest
	said    string                  // the last line about being ready
	settled bool                    // all messages have had their answers once
}

// wish is a message on its way to its answer, or beyond.
type wish struct {
	*filed               // nil: a withdrawal
	entry  *wishes.Entry // nil: held already, by other messages
	id     answerKey
	owner  string
	waits  bool          // for a kernel chain that did not exist when it was sent
	answer actors.Answer // zero: none yet
}

func newDaemon(ctx context.Context, f *flags, args []string, stderr io.Writer) *daemon {
	w := &syncWriter{w: stderr}
	return &daemon{
		ctx: ctx, flags: f, args: args, stderr: w, log: f.logger(w), inbox: inbox{poke: make(chan struct{}, 1)},
		folders: map[string]bool{}, set: &fileSet{}, owners: map[string]bool{}, inSync: map[string]bool{},
		byID: map[answerKey]*wish{}, mended: map[string]time.Time{}, lastErr: map[rules.TableID]error{}, resting: map[rules.TableID]error{},
	}
}

// begin reads the files, starts the runtime and sends the messages.
func (d *daemon) begin() error {
	ctx, cancel := context.WithTimeout(d.ctx, d.flags.timeout)
	defer cancel()
	set, l := d.load(ctx)
	d.report(set)
	switch n := len(set.refused); {
	case n == 0 && len(set.files) == 0:
		return &exitError{exitUsage, fmt.Errorf("no file: %q has no *.rules files", d.args)}
	case len(set.files) == 0 || d.flags.strict && n > 0:
		return &exitError{exitUsage, fmt.Errorf("nothing is run: %s refused", plural(n, "file"))}
	}
	if err := d.hold(set); err != nil {
		return err
	}
	info := d.kernel.Info()
	dir, err := d.keepIn()
	if err != nil {
		return err
	}
	opts := actors.Options{
		StateDir: dir,
		Table: transaction.Config{
			Prefixes: d.flags.prefixes, MaxDepth: info.MaxDepth, Backend: info.Kernel(), Extensions: info.Extensions, Grace: d.flags.grace > 0,
		},
		Adjust: d.adjust, Observe: d.inbox.event, Fatal: d.inbox.fatal, Logger: runtimeLog(d.log),
		Refresh: orNever(d.flags.refresh), GraceTimeout: orNever(d.flags.grace),
	}
	rt, err := actors.New(d.kernel, opts.For(info.Backend))
	if err != nil {
		return &exitError{exitUsage, err}
	}
	d.rt = rt
	rt.Start()
	d.send(set, l)
	return nil
}

// keepIn is the folder of the state files; "" for a dry run.
func (d *daemon) keepIn() (string, error) {
	if d.dry != nil {
		return "", nil
	}
	dir, err := stateDirOf(d.kernel)
	if err != nil {
		return "", &exitError{exitEnvironment, err}
	}
	return dir, nil
}

// hold makes sure that the daemon is the only writer of its tables before there is anything
// to write: one that only takes over what is there would not notice another one.
func (d *daemon) hold(set *fileSet) error {
	k, ok := d.kernel.(interface{ Hold(rules.TableID) error })
	if !ok || d.dry != nil {
		return nil
	}
	tables := map[rules.TableID]bool{}
	for _, m := range set.messages() {
		tables[m.Table] = true
	}
	for _, id := range slices.SortedFunc(maps.Keys(tables), rules.TableID.Compare) {
		var held *dataplane.TableHeldError
		if err := k.Hold(id); errors.As(err, &held) {
			return &exitError{exitEnvironment, held}
		}
	}
	return nil
}

// adjust completes the configuration of a table when its first message comes, which is when
// send sends it. An owner whose file is refused is among those that grace waits for and
// stays silent, so that its chains of an earlier version are not replaced by stubs while the
// file is being corrected; the timer, which warns, ends grace then.
func (d *daemon) adjust(cfg *transaction.Config) {
	cfg.OwnChains = sortedKeys(d.set.declared()[cfg.Table])
	cfg.Owners = sortedKeys(d.owners)
}

// loop lives by signals and by what the runtime tells. It returns the exit status and what
// there is to say about it.
func (d *daemon) loop(signals <-chan os.Signal) (int, error) {
	for {
		d.sayInSync()
		if code, err := d.hopeless(); code != exitOK {
			return code, err
		}
		d.sayReady()
		if d.dry != nil && d.settled {
			d.asks.Wait()
			return exitOK, nil
		}
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGHUP:
				d.reload()
			case syscall.SIGINT:
				return exitInterrupted, nil
			default:
				return exitOK, nil
			}
		case <-d.inbox.poke:
			for _, n := range d.inbox.take() {
				if n.fatal != nil {
					return exitEnvironment, n.fatal
				}
				d.hear(n.event)
			}
		}
	}
}

// reload reads the files again, sends what has changed, and has all tables repaired now.
func (d *daemon) reload() {
	ctx, cancel := context.WithTimeout(d.ctx, d.flags.timeout)
	defer cancel()
	set, l := d.load(ctx)
	d.report(set)
	if d.flags.strict && len(set.refused) > 0 {
		d.say("nothing is changed: %s refused, and --strict is given", plural(len(set.refused), "file"))
		return
	}
	d.said = ""
	d.send(set, l)
	d.resync()
}

// resync has each table of the files looked at and repaired, without waiting. Every repair of it
// is told.
func (d *daemon) resync() {
	clear(d.mended)
	tables := map[rules.TableID]bool{}
	for _, m := range d.set.messages() {
		tables[m.Table] = true
	}
	for id := range tables {
		refresh := transaction.Message{ID: fmt.Sprintf("resync@%d", d.version), Body: transaction.Refresh{}}
		if err := d.rt.Tell(id, refresh); err != nil {
			d.inbox.fatal(err)
		}
	}
}

// stop answers what is under way and ends the runtime. The rules stay. A further signal cuts
// it short, and then nothing is waited for.
func (d *daemon) stop(signals <-chan os.Signal) (cut bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), d.flags.timeout)
		defer cancel()
		_ = d.rt.Stop(ctx) // its error is that ctx has ended
		d.asks.Wait()
	}()
	for {
		select {
		case <-done:
			d.farewell()
			return false
		case s := <-signals:
			if s != syscall.SIGHUP {
				return true
			}
		}
	}
}

// sayInSync speaks for each owner whose messages all have their answers, or wait for a chain
// that is not ours to make.
func (d *daemon) sayInSync() {
	pending := map[string]bool{}
	for _, w := range d.all() {
		pending[w.owner] = pending[w.owner] || w.pending()
	}
	for _, owner := range sortedKeys(d.owners) {
		if d.inSync[owner] || d.broken[owner] || pending[owner] {
			continue
		}
		d.inSync[owner] = true
		f := d.rt.Owner(owner, d.flags.priority)
		d.asks.Go(func() {
			_, _ = f.InSync(context.Background()) // it ends with the runtime; a refusal is tried again there
		})
	}
}
