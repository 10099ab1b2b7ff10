// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/transaction"
)

// race lets all features send at once and waits for them.
func race(ctx context.Context, rt *actors.Runtime, features []*feature, s *story, hurry bool) error {
	errs := make([]error, len(features))
	gun := make(chan struct{})
	var wg sync.WaitGroup
	for i, f := range features {
		wg.Go(func() {
			<-gun
			if err := f.run(ctx, rt, s, hurry); err != nil {
				errs[i] = fmt.Errorf("%s: %w", f.owner, err)
			}
		})
	}
	close(gun)
	wg.Wait()
	return errors.Join(errs...)
}

// run sends the messages of one feature without waiting for answers. Where its log lets
// time pass, the feature does what a real one does: it has its answers before it goes on.
func (f *feature) run(ctx context.Context, rt *actors.Runtime, s *story, hurry bool) error {
	handle := rt.Owner(f.owner, 0)
	begin := time.Now()
	for i, m := range f.messages {
		if i > 0 && f.at[i] > f.at[i-1] {
			if err := s.wait(ctx, f.owner); err != nil {
				return err
			}
			if err := sleep(ctx, time.Until(begin.Add(f.at[i])), hurry); err != nil {
				return err
			}
		}
		if _, ok := m.Body.(transaction.InSync); ok {
			if _, err := handle.InSync(ctx); err != nil {
				return err
			}
			s.insync(m.ID)
			continue
		}
		s.sent(f.owner)
		if err := rt.Tell(m.Table, m.Message); err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
	}
	return s.wait(ctx, f.owner)
}

func sleep(ctx context.Context, d time.Duration, hurry bool) error {
	if hurry || d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
