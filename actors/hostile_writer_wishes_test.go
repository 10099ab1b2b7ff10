// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tableward/tableward/rules"
)

// fightContent is a chain in one of its versions. All are of the same length but each third,
// and one chain in three has a match that nft does not know by itself.
func fightContent(name string, version int) rules.Chain {
	number := fmt.Sprintf("-p udp -m udp --dport %d -j DROP", 1000+version)
	texts := []string{"-p tcp -m tcp --dport 1 -j ACCEPT", number, "-p tcp -m tcp --dport 2 -j RETURN", "-p sctp -j RETURN"}
	last := name[len(name)-2:]
	switch {
	case last == "00":
		texts = []string{number}
		for i := 1; i < hostileChains; i++ {
			texts = append(texts, fmt.Sprintf("-j %s%02d", name[:len(name)-2], i))
		}
	case last[1]%3 == 0:
		texts[0] = "-p tcp -m tcp --dport 1 -m comment --comment " + name + " -j ACCEPT"
	}
	if version%3 == 2 {
		texts = append(texts, "-p esp -j DROP")
	}
	return chainOf(name, texts...)
}

// fightWishes are the versions that chains may have.
type fightWishes struct {
	mu         sync.Mutex
	held, sent map[string]string
}

func newFightWishes() *fightWishes {
	w := &fightWishes{held: map[string]string{}, sent: map[string]string{}}
	var hooks string
	for i := range hostileFeatures {
		hooks += "\n-j " + fightChain(i, 0)
		for n := range hostileChains {
			w.held[fightChain(i, n)] = textOf(fightContent(fightChain(i, n), 0))
		}
	}
	w.held["FORWARD"], w.held["INPUT"] = "DROP"+hooks, "ACCEPT"+hooks
	return w
}

func textOf(c rules.Chain) string {
	lines := []string{"-"}
	for _, r := range c.Rules {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

func (w *fightWishes) ask(chains []rules.Chain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range chains {
		w.sent[c.Name] = textOf(c)
	}
}

func (w *fightWishes) hold(chains []rules.Chain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range chains {
		w.held[c.Name] = w.sent[c.Name]
		delete(w.sent, c.Name)
	}
}

// drop is what a refused message is: what was held stays, as far as it is known.
func (w *fightWishes) drop(chains []rules.Chain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range chains {
		delete(w.sent, c.Name)
	}
}

// now returns what each chain may hold at this moment.
func (w *fightWishes) now() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string][]string, len(w.held))
	for name, text := range w.held {
		out[name] = []string{text}
		if sent, ok := w.sent[name]; ok {
			out[name] = append(out[name], sent)
		}
	}
	return out
}

// wrong returns the chains that are nothing of what they may be.
func wrong(v tableView, may ...map[string][]string) []string {
	var out []string
	for name := range may[0] {
		right := slices.ContainsFunc(may, func(m map[string][]string) bool { return slices.Contains(m[name], v[name]) })
		if !right {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
