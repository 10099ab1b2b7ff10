// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"bytes"
	"errors"
	"hash/fnv"
	"strings"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/tableward/tableward/dataplane"
)

// Bounds of what a table writes into the log about blocks that fail.
const (
	reportEvery   = time.Minute // between two reports of the same kind, at first; then twice as long each time
	reportRarely  = time.Hour   // and no longer than this
	reportKinds   = 32          // that are told apart; more are one
	reportLines   = 20          // of a block, around the culprit
	reportLine    = 200         // bytes of one of them
	keptPayloads  = 256         // payloads that are known to be in the log
	payloadsEvery = time.Minute // between two payloads
)

// reporter writes about blocks that were not applied, so that a batch which fails for hours
// fills no disk: each kind of failure more and more rarely, with the lines around the culprit; the
// whole block once, at debug.
type reporter struct {
	log      zerolog.Logger
	told     map[string]*report
	payloads map[uint64]bool
	payload  time.Time // when one was logged last
}

// report is what is known of one kind of failure.
type report struct {
	at      time.Time
	every   time.Duration // until the next one
	omitted int           // since then
}

// failed takes in a block that was not applied.
func (r *reporter) failed(now time.Time, input []byte, err error) {
	r.logPayload(now, input)
	var re *dataplane.RestoreError
	class, reason, line := "other", err.Error(), 0
	if errors.As(err, &re) {
		class, reason, line = re.Class.String(), re.Reason, re.Line
	}
	omitted, ok := r.due(now, class+" "+withoutNumbers(reason))
	if !ok {
		return
	}
	e := r.log.Info().Str("class", class).Str("reason", cut(reason, 4*reportLine))
	if line > 0 {
		e = e.Int("line", line).Strs("block", around(input, line))
	}
	if omitted > 0 {
		e = e.Int("omitted", omitted)
	}
	e.Msg("a block was not applied")
}

// due tells whether something of a kind is to be told now, and how often it was not since the
// last time: of each kind more and more rarely.
func (r *reporter) due(now time.Time, kind string) (omitted int, ok bool) {
	t := r.of(kind)
	if !t.at.IsZero() && now.Sub(t.at) < t.every {
		t.omitted++
		return 0, false
	}
	omitted = t.omitted
	*t = report{at: now, every: min(max(2*t.every, reportEvery), reportRarely)}
	return omitted, true
}

// of returns what is known of a kind of failure.
func (r *reporter) of(kind string) *report {
	if r.told == nil {
		r.told = map[string]*report{}
	}
	t := r.told[kind]
	if t == nil && len(r.told) >= reportKinds {
		kind = "" // they are told as one from now on
		t = r.told[kind]
	}
	if t == nil {
		t = &report{}
		r.told[kind] = t
	}
	return t
}

// logPayload logs a block once, and not more than one a minute.
func (r *reporter) logPayload(now time.Time, input []byte) {
	if r.log.GetLevel() > zerolog.DebugLevel {
		return
	}
	h := fnv.New64a()
	h.Write(input)
	if r.payloads[h.Sum64()] || !r.payload.IsZero() && now.Sub(r.payload) < payloadsEvery {
		return
	}
	if r.payloads == nil || len(r.payloads) >= keptPayloads {
		r.payloads = map[uint64]bool{}
	}
	r.payloads[h.Sum64()], r.payload = true, now
	r.log.Debug().Int("bytes", len(input)).Bytes("input", input).Msg("the block that was not applied")
}

// withoutNumbers makes reasons equal that differ in a line's number or an address alone.
func withoutNumbers(reason string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, reason)
}

// around returns the lines of a block around one of them, which is marked.
func around(input []byte, line int) []string {
	lines := bytes.Split(bytes.TrimSuffix(input, []byte("\n")), []byte("\n"))
	from := max(line-1-reportLines/2, 0)
	to := min(from+reportLines, len(lines))
	var out []string
	for i := from; i < to; i++ {
		mark := "  "
		if i == line-1 {
			mark = "> "
		}
		out = append(out, mark+cut(string(lines[i]), reportLine))
	}
	return out
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
