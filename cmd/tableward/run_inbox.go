// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tableward/tableward/actors"
)

// inbox takes what the runtime's goroutines tell, which must not block.
type inbox struct {
	poke chan struct{} // one place: something has come

	mu   sync.Mutex // guards news
	news []news
}

// news is an event, or why a table's actor has ended.
type news struct {
	event actors.Event
	fatal error
}

func (b *inbox) event(e actors.Event) { b.put(news{event: e}) }

func (b *inbox) fatal(err error) { b.put(news{fatal: err}) }

func (b *inbox) put(n news) {
	b.mu.Lock()
	b.news = append(b.news, n)
	b.mu.Unlock()
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []news {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.news
	b.news = nil
	return out
}

// syncWriter is a writer for several goroutines.
type syncWriter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

// Write implements io.Writer.
func (s *syncWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// orNever turns 0, which means never on the command line, into what means it in Options.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
