// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// askHooks asks about each sample in each table. The tables have a namespace each, because the
// nft kernel makes a namespace wait for some 15 ms after each block that it refuses.
func askHooks(t *testing.T, a hookAnswers, have hookTable) map[string][]fate {
	t.Helper()
	expected := have.expand()
	fates := make(map[string][]fate)
	var mu sync.Mutex // guards fates
	var wg sync.WaitGroup
	for _, table := range []string{"mangle", "filter", "nat", "security", "raw"} {
		ns := testns.New(t)
		makeHookSets(t, ns, a.version)
		p := &prober{
			k: newKernel(t, testns.Options(t, ns, a.backend)), backend: a.backend,
			id: rules.TableID{IPVersion: a.version, Name: table}, samples: a.samples,
		}
		for _, s := range a.samples {
			p.expected = append(p.expected, a.expect(s, table, expected))
		}
		wg.Go(func() {
			f, err := p.ask()
			if err != nil {
				t.Errorf("%s: %v", p.id, err)
			}
			mu.Lock()
			defer mu.Unlock()
			fates[table] = f
		})
	}
	wg.Wait()
	return fates
}

// makeHookSets makes the sets that samples name; --map-set reads twskb.
func makeHookSets(t *testing.T, ns string, v rules.IPVersion) {
	t.Helper()
	family := map[rules.IPVersion]string{rules.IPv4: "inet", rules.IPv6: "inet6"}[v]
	cmd := exec.Command("nsenter", "--net="+ns, "ipset", "restore")
	cmd.Stdin = strings.NewReader("create twhooks hash:ip family " + family + "\ncreate twskb hash:ip family " + family + " skbinfo\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ipset: %v: %s", err, out)
	}
}

// expect is what the file says of a sample: it decides how we ask, not what comes out.
func (a *hookAnswers) expect(s hookSample, table string, file map[hookKey]fate) fate {
	if s.feature == "" {
		return fateOf(rules.RefusalsOf(string(a.backend), rules.TableID{IPVersion: a.version, Name: table}, s.rule))
	}
	if f, unknown := file[hookKey{a.in(), s.feature, everywhere}]; unknown {
		return f
	}
	return file[hookKey{a.in(), s.feature, table}]
}

// place is where a sample is tried: in a chain that nothing reaches, in a chain that hook
// reaches, or in hook itself.
type place struct {
	hook   string
	direct bool
}

// trying is a sample, by its number, at a place.
type trying struct {
	sample int
	place
}

func (f fate) refuses(at place) bool {
	switch {
	case at.hook == "":
		return f.All
	case at.direct:
		return f.Direct&rules.HookOf(at.hook) != 0
	}
	return f.Reached&rules.HookOf(at.hook) != 0
}

// note notes a refusal.
func (f *fate) note(at place) {
	switch {
	case at.hook == "":
		f.All = true
	case at.direct:
		f.Direct |= rules.HookOf(at.hook)
	default:
		f.Reached |= rules.HookOf(at.hook)
	}
}

// prober asks about samples in one table.
type prober struct {
	k        *dataplane.Kernel
	backend  dataplane.Backend
	id       rules.TableID
	samples  []hookSample
	expected []fate
	blocks   int
}

// The match rateest needs what this target makes.
const makesRateest = "-j RATEEST --rateest-name twhooks --rateest-interval 250ms --rateest-ewmalog 500ms"

func (p *prober) ask() ([]fate, error) {
	if err := p.k.Restore(context.Background(), p.id, p.block([]string{":before - [0:0]", "-A before " + makesRateest})); err != nil {
		return nil, err
	}
	fates := make([]fate, len(p.samples))
	var todo []trying
	for i := range p.samples {
		todo = append(todo, trying{sample: i})
	}
	if err := p.all(todo, fates); err != nil {
		return nil, err
	}
	todo = nil
	for i := range p.samples {
		if fates[i].All {
			continue
		}
		for _, hook := range rules.BuiltinChains(p.id.Name) {
			todo = append(todo, trying{i, place{hook, false}}, trying{i, place{hook, true}})
		}
	}
	return fates, p.all(todo, fates)
}

// most is how much is tried at once: what nft takes in one block of a user namespace.
const most = 250

// all notes what is refused. What is expected to be taken is tried together, and what is not
// by itself; so it takes few runs if all is as expected.
func (p *prober) all(todo []trying, fates []fate) error {
	var good, bad []trying
	for _, try := range todo {
		if p.expected[try.sample].refuses(try.place) {
			bad = append(bad, try)
		} else {
			good = append(good, try)
		}
	}
	for part := range slices.Chunk(good, most) {
		if err := p.halves(part, fates); err != nil {
			return err
		}
	}
	if p.backend == dataplane.NFT {
		var err error
		if bad, err = p.named(bad, fates); err != nil {
			return err
		}
	}
	for _, try := range bad {
		if err := p.halves([]trying{try}, fates); err != nil {
			return err
		}
	}
	return nil
}

// halves notes what is refused of some of which most are taken.
func (p *prober) halves(todo []trying, fates []fate) error {
	re, err := p.try(todo, false)
	if err != nil || re == nil {
		return err
	}
	if len(todo) == 1 {
		fates[todo[0].sample].note(todo[0].place)
		return nil
	}
	half := len(todo) / 2
	if err := p.halves(todo[:half], fates); err != nil {
		return err
	}
	return p.halves(todo[half:], fates)
}

var refusedLine = regexp.MustCompile(`(?m)\bline (\d+): RULE_APPEND failed`)

// named notes what is refused of some of which most are refused, and returns what it cannot
// decide. nft names all lines that the kernel does not take, up to some fifteen; but what the
// kernel refuses only for the hook that reaches it, it finds when it has the whole block, and
// then nft names the lines that follow as well. A rule that is taken everywhere stands between
// any two to show that.
func (p *prober) named(todo []trying, fates []fate) (left []trying, err error) {
	var together []trying
	for _, try := range todo {
		if try.hook != "" && !try.direct {
			left = append(left, try)
		} else {
			together = append(together, try)
		}
	}
	for part := range slices.Chunk(together, 12) {
		re, err := p.try(part, true)
		if err != nil {
			return nil, err
		}
		var got, want []string
		if re != nil {
			for _, m := range refusedLine.FindAllStringSubmatch(re.Stderr, -1) {
				got = append(got, m[1])
			}
		}
		for i := range part {
			want = append(want, fmt.Sprint(4+2*i))
		}
		if !slices.Equal(got, want) {
			left = append(left, part...)
			continue
		}
		for _, try := range part {
			fates[try.sample].note(try.place)
		}
	}
	return left, nil
}

// try loads rules together and returns what the tool has against them. With spaced, the rules
// are on each second line from the fourth on, and none is to be reached.
func (p *prober) try(todo []trying, spaced bool) (*dataplane.RestoreError, error) {
	chain := func(hook string) string { return "tried-" + hook }
	var lines []string
	if p.backend == dataplane.NFT {
		// What has been tried stays, in chains of its block, since to delete it takes longer.
		p.blocks++
		chain = func(hook string) string { return fmt.Sprintf("tried-%s-%d", hook, p.blocks) }
	} else {
		for _, hook := range rules.BuiltinChains(p.id.Name) {
			lines = append(lines, "-F "+hook)
		}
	}
	var rest []string
	if spaced {
		lines = append(lines, ":"+chain("")+" - [0:0]", "-A "+chain("")+" -p tcp -j ACCEPT")
	}
	reached := map[string]bool{"": spaced}
	for _, try := range todo {
		name := try.hook
		if !try.direct {
			name = chain(try.hook)
			if !reached[try.hook] {
				reached[try.hook] = true
				lines = append(lines, ":"+name+" - [0:0]")
				if try.hook != "" {
					lines = append(lines, "-A "+try.hook+" -j "+name)
				}
			}
		}
		rest = append(rest, "-A "+name+" "+p.samples[try.sample].rule.String())
		if spaced {
			rest = append(rest, "-A "+name+" -p tcp -j ACCEPT")
		}
	}
	err := p.k.Restore(context.Background(), p.id, p.block(append(lines, rest...)))
	var re *dataplane.RestoreError
	if errors.As(err, &re) && (re.Class == dataplane.Rejected || re.Class == dataplane.RejectedSomewhere) {
		return re, nil
	}
	return nil, err
}

func (p *prober) block(lines []string) []byte {
	return []byte("*" + p.id.Name + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n")
}
