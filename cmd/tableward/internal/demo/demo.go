// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/cmd/tableward/internal/msglog"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Kernel is what the demo runs on: a real kernel or the simulator.
type Kernel interface {
	actors.Dataplane
	Info() dataplane.Info
}

// Demo is one run.
type Demo struct {
	Kernel Kernel
	Where  string // says what Kernel is, for people
	Logs   []*msglog.Log
	Out    io.Writer
	// Hurry leaves out the pauses between messages that the logs ask for.
	Hurry bool
}

// Run runs the demo to its end. An error means that it could not run, or that a message was
// left without its one answer.
func (d *Demo) Run(ctx context.Context) error {
	features, err := d.features()
	if err != nil {
		return err
	}
	if err := d.seed(ctx); err != nil {
		return err
	}
	story := newStory(features)
	rt, err := actors.New(d.Kernel, actors.Options{Table: d.config(), Observe: story.take})
	if err != nil {
		return err
	}
	rt.Start()
	err = race(ctx, rt, features, story, d.Hurry)
	if err == nil {
		err = tidy(ctx, rt, story)
	}
	if err := errors.Join(err, rt.Stop(ctx)); err != nil {
		return err
	}
	return d.print(ctx, features, story)
}

// config is what the logs say of the runtime; the owners of all are waited for.
func (d *Demo) config() transaction.Config {
	info := d.Kernel.Info()
	h := d.Logs[0].Header
	return transaction.Config{
		Prefixes: h.Prefixes, Grace: h.Grace, Owners: h.Owners, MaxDepth: info.MaxDepth, Backend: info.Kernel(), Extensions: info.Extensions,
	}
}

// seed makes what the tables hold before the runtime starts: strangers' rules, and what an
// earlier run left.
func (d *Demo) seed(ctx context.Context) error {
	for _, l := range d.Logs {
		for _, s := range l.Header.Seed {
			in, err := rules.ParseRestore([]byte(s.Restore))
			if err != nil {
				return fmt.Errorf("seed: %w", err)
			}
			for _, b := range in.Blocks {
				id := rules.TableID{IPVersion: s.IPVersion, Name: b.Table}
				if err := d.Kernel.Restore(ctx, id, rules.AppendRestore(nil, b)); err != nil {
					return fmt.Errorf("seed of %s: %w", id, err)
				}
			}
		}
	}
	return nil
}

// tidy deletes what an earlier run left, once every feature has said what it wants.
func tidy(ctx context.Context, rt *actors.Runtime, s *story) error {
	for _, id := range s.tables() {
		a, err := rt.Cleanup(ctx, id)
		if err != nil {
			return fmt.Errorf("cleanup of %s: %w", id, err)
		}
		if a.Result != actors.Applied {
			return fmt.Errorf("cleanup of %s: %s: %w", id, a.Result, a.Err)
		}
	}
	return nil
}

// feature is one log, as one owner sends it.
type feature struct {
	owner    string
	about    string
	messages []*msglog.Message
	at       []time.Duration
}

func (d *Demo) features() ([]*feature, error) {
	if len(d.Logs) == 0 {
		return nil, errors.New("no message log is given")
	}
	var out []*feature
	for _, l := range d.Logs {
		f := &feature{about: l.Header.About}
		for _, e := range l.Entries {
			switch {
			case e.Message == nil:
				return nil, errors.New("the demo sends messages; a log with kernel lines is for replay")
			case e.Message.Refused != nil:
				return nil, fmt.Errorf("message %s: %w", e.Message.ID, e.Message.Refused)
			case f.owner != "" && f.owner != e.Message.Owner:
				return nil, fmt.Errorf("message %s: a log is of one owner here", e.Message.ID)
			}
			f.owner = e.Message.Owner
			f.messages = append(f.messages, e.Message)
			f.at = append(f.at, e.At)
		}
		out = append(out, f)
	}
	return out, nil
}

func (f *feature) title() string {
	return fmt.Sprintf("  %-12s %2d messages  %s", f.owner, len(f.messages), strings.TrimSpace(f.about))
}
