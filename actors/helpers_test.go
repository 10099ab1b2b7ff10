// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"testing"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/rules"
)

var (
	filter4 = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	nat4    = rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
)

// newRuntime starts a Runtime with the prefix "tw-", which is stopped when the test ends.
func newRuntime(tb testing.TB, dp actors.Dataplane, opts actors.Options) *actors.Runtime {
	tb.Helper()
	if opts.Table.Prefixes == nil {
		opts.Table.Prefixes = []string{"tw-"}
	}
	rt, err := actors.New(dp, opts)
	if err != nil {
		tb.Fatal(err)
	}
	rt.Start()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := rt.Stop(ctx); err != nil {
			tb.Errorf("stop: %v", err)
		}
	})
	return rt
}

func rule(text string) rules.Rule { return rules.MustParseRule(text) }

func chainOf(name string, texts ...string) rules.Chain {
	c := rules.Chain{Name: name}
	for _, text := range texts {
		c.Rules = append(c.Rules, rule(text))
	}
	return c
}
