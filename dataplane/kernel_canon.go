// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/tableward/tableward/rules"
)

// ErrNoScratch says that no scratch network namespace can be had, so the tools cannot be
// asked how they read a rule back. Callers fall back to the rule's own text.
var ErrNoScratch = errors.New("no scratch network namespace can be had")

const (
	maxCanon = 10_000 // answers kept
	// maxProbes is how many probe chains a scratch namespace may hold before a new one is
	// made. Chains are never deleted there: on nft that would cost a grace period each time,
	// and a table that only grows makes every read slower.
	maxProbes = 500
	// probeBatch is how many rules are tried in one block.
	probeBatch = 100
	// probePrefix names the chains that hold one rule each, below any name that a caller
	// would choose.
	probePrefix = "tableward-canon-"
)

// canonizer asks the tools, in a namespace that nothing depends on, how they read rules
// back, and remembers the answers.
type canonizer struct {
	mu      sync.Mutex // guards everything, and is held while the tools run
	scratch *scratch
	probes  int
	known   map[canonKey]rules.Canon
}

type canonKey struct {
	id   rules.TableID
	text string
}

func (c *canonizer) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drop()
}

func (c *canonizer) drop() error {
	if c.scratch == nil {
		return nil
	}
	s := c.scratch
	c.scratch, c.probes = nil, 0
	return s.close()
}

// Canon returns for each rule the text, or texts, that the tools read back for it; nil for
// a rule that they refuse. It returns ErrNoScratch where no scratch namespace can be made.
//
// A rule is tried alone and unreached: what only a hook would refuse is not noticed, and
// the chains that it jumps to and the sets that it names exist there by themselves.
func (k *Kernel) Canon(ctx context.Context, id rules.TableID, rs []rules.Rule) ([]rules.Canon, error) {
	t, err := k.toolset(id)
	if err != nil {
		return nil, err
	}
	c := &k.canon
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > maxCanon {
		c.known = nil
	}
	if c.known == nil {
		c.known = make(map[canonKey]rules.Canon)
	}
	var ask []rules.Rule
	for _, r := range rs {
		key := canonKey{id, r.String()}
		if _, ok := c.known[key]; ok {
			continue
		}
		if !probeable(r) {
			c.known[key] = rules.Canon{r.String()}
			continue
		}
		c.known[key] = nil
		ask = append(ask, r)
	}
	for part := range slices.Chunk(ask, probeBatch) {
		if err := k.probe(ctx, t, id, part); err != nil {
			for _, r := range ask {
				delete(c.known, canonKey{id, r.String()})
			}
			return nil, err
		}
	}
	out := make([]rules.Canon, len(rs))
	for i, r := range rs {
		out[i] = slices.Clone(c.known[canonKey{id, r.String()}])
	}
	return out, nil
}

// probeable tells whether a rule may be loaded in a scratch namespace. Timers and leds are
// named for the whole host: to load the rule there would reset the live one. The others
// need objects that only the live namespace has.
func probeable(r rules.Rule) bool {
	switch r.Target() {
	case "IDLETIMER", "LED", "RATEEST":
		return false
	case "CT":
		return !hasWord(r, "--helper") && !hasWord(r, "--timeout")
	}
	return !hasWord(r, "nfacct") && !hasWord(r, "rateest") && !hasWord(r, "--object-pinned")
}

func hasWord(r rules.Rule, word string) bool {
	ws, err := rules.SplitWords(r.String())
	return err != nil || slices.ContainsFunc(ws, func(w rules.Word) bool { return w.Text == word })
}

// probe tries rules in the scratch namespace and notes the answers. Rules that are refused
// are found by their line, or by halves where no line can be trusted.
func (k *Kernel) probe(ctx context.Context, t toolset, id rules.TableID, rs []rules.Rule) error {
	c := &k.canon
	for len(rs) > 0 {
		if c.probes+len(rs) > maxProbes {
			if err := c.drop(); err != nil {
				return err
			}
		}
		s, err := c.get(k)
		if err != nil {
			return err
		}
		s.makeSets(ctx, k, id.IPVersion, rs)
		rs = slices.DeleteFunc(slices.Clone(rs), func(r rules.Rule) bool {
			if s.hasSets(id.IPVersion, r) && s.judges(r) {
				return false
			}
			// Nothing can be said of it here.
			c.known[canonKey{id, r.String()}] = rules.Canon{r.String()}
			return true
		})
		if len(rs) == 0 {
			return nil
		}
		input, lines := probeBlock(id.Name, rs, c.probes)
		k.stats.probes.Add(1)
		re := k.restore(ctx, t, s.start, s.lockFile, input)
		if re == nil {
			return k.readProbes(ctx, t, id, rs)
		}
		if refused := re.Class == Rejected || re.Class == RejectedSomewhere; !refused || !s.alive() {
			// The next call makes a new one.
			return errors.Join(s.failure(re), c.drop())
		}
		if bad := slices.Index(lines, re.Line); bad >= 0 {
			rs = slices.Delete(rs, bad, bad+1)
			continue
		}
		if len(rs) == 1 {
			return nil
		}
		half := len(rs) / 2
		if err := k.probe(ctx, t, id, rs[:half]); err != nil {
			return err
		}
		rs = rs[half:]
	}
	return nil
}

// get returns the scratch namespace, made when first asked for.
func (c *canonizer) get(k *Kernel) (*scratch, error) {
	if c.scratch != nil {
		return c.scratch, nil
	}
	s, err := k.newScratch()
	if err != nil {
		return nil, err
	}
	c.scratch = s
	return s, nil
}

// probeBlock renders a block that holds each rule in a chain of its own, and returns the
// line of each rule.
func probeBlock(table string, rs []rules.Rule, first int) ([]byte, []int) {
	var b strings.Builder
	line := 1
	b.WriteString("*" + table + "\n")
	declared := make(map[string]bool)
	declare := func(name string) {
		if name != "" && !declared[name] && !rules.IsBuiltin(table, name) {
			declared[name] = true
			line++
			b.WriteString(":" + name + " - [0:0]\n")
		}
	}
	for i, r := range rs {
		declare(probePrefix + itoa(first+i))
		declare(r.Jump())
	}
	lines := make([]int, len(rs))
	for i, r := range rs {
		line++
		lines[i] = line
		b.WriteString("-A " + probePrefix + itoa(first+i) + " " + r.String() + "\n")
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String()), lines
}

// readProbes reads back what probeBlock wrote.
func (k *Kernel) readProbes(ctx context.Context, t toolset, id rules.TableID, rs []rules.Rule) error {
	c := &k.canon
	first := c.probes
	c.probes += len(rs)
	k.stats.probes.Add(1)
	saved, re := k.save(ctx, t, c.scratch.start, c.scratch.lockFile, id.Name)
	if re != nil {
		return re
	}
	for _, chain := range saved.Chains {
		number, found := strings.CutPrefix(chain.Name, probePrefix)
		i := atoi(number) - first
		if !found || i < 0 || i >= len(rs) {
			continue
		}
		canon := make(rules.Canon, len(chain.Rules))
		for j, r := range chain.Rules {
			canon[j] = r.Text
		}
		c.known[canonKey{id, rs[i].String()}] = canon
	}
	return nil
}
