// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// killVariable makes the test program a runtime that is there to be killed. Its value is a
// killSpec.
const killVariable = "TABLEWARD_TEST_KILL"

// killSpec is what a runtime that will be killed is to do.
type killSpec struct {
	Kernel dataplane.Options
	Table  rules.TableID
	Scene  string
	Rules  int // of each of the longer chains
}

// The process to be killed must do none of what a test run does at its start and its end.
func init() {
	text := os.Getenv(killVariable)
	if text == "" {
		return
	}
	var spec killSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = runKillChild(spec)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runKillChild is the life of a runtime: its wishes, then what it is killed at. It says where
// it is by lines, and goes on by lines.
func runKillChild(spec killSpec) error {
	ctx := context.Background()
	k, err := dataplane.NewKernel(ctx, spec.Kernel)
	if err != nil {
		return err
	}
	s := newKillScene(spec.Scene, spec.Rules)
	dp := &stoppingKernel{Kernel: k, scene: s, stdin: bufio.NewReader(os.Stdin)}
	rt, err := newKillRuntime(dp, k.Info())
	if err != nil {
		return err
	}
	for _, piece := range [][]transaction.Message{s.before, endGrace} {
		if err := sendAll(ctx, rt, spec.Table, piece); err != nil {
			return err
		}
	}
	dp.armed.Store(true)
	for _, piece := range [][]transaction.Message{s.act, cleanup, cleanup} {
		if err := sendAll(ctx, rt, spec.Table, piece); err != nil {
			return err
		}
	}
	fmt.Println("done")
	dp.goOn()
	if err := rt.Stop(ctx); err != nil {
		return err
	}
	return k.Close()
}

// stoppingKernel stops once, before and after the block that the scene is about.
type stoppingKernel struct {
	*dataplane.Kernel
	scene *killScene
	armed atomic.Bool
	stdin *bufio.Reader // used by whoever stops, and by the end
}

func (k *stoppingKernel) Restore(ctx context.Context, id rules.TableID, input []byte) error {
	if !k.scene.stopsAt(input) || !k.armed.CompareAndSwap(true, false) {
		return k.Kernel.Restore(ctx, id, input)
	}
	fmt.Println("block", len(input))
	k.goOn()
	err := k.Kernel.Restore(ctx, id, input)
	fmt.Println("restored", err != nil)
	k.goOn()
	return err
}

// goOn waits for a line. Without who started it the process is of no use.
func (k *stoppingKernel) goOn() {
	if _, err := k.stdin.ReadString('\n'); err != nil {
		os.Exit(1)
	}
}

// newKillRuntime starts a runtime as run does, but for timers, which would make the order of
// what happens a matter of chance.
func newKillRuntime(dp actors.Dataplane, info dataplane.Info) (*actors.Runtime, error) {
	opts := actors.Options{
		Table: transaction.Config{
			Prefixes: []string{"tw-"}, Grace: true, MaxDepth: info.MaxDepth, Extensions: info.Extensions,
		},
		Refresh: -1, GraceTimeout: -1, NoJitter: true,
	}
	if info.Backend == string(dataplane.NFT) {
		opts.Pace = actors.NFTPace
	}
	rt, err := actors.New(dp, opts)
	if err == nil {
		rt.Start()
	}
	return rt, err
}

// sendAll sends messages as one piece. Each has to be applied in the end, whatever happens to
// the tools.
func sendAll(ctx context.Context, rt *actors.Runtime, id rules.TableID, msgs []transaction.Message) error {
	answers, err := rt.Send(ctx, id, msgs...)
	if err != nil {
		return err
	}
	for i, a := range answers {
		if a.Err != nil || a.Result != actors.Applied && a.Result != actors.Superseded {
			return fmt.Errorf("message %d, %s: %s: %w", i, a.Kind, a.Result, a.Err)
		}
	}
	return nil
}
