// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// killSeed is what strangers have in the table, and killOrphans what an earlier run of ours
// has left there: chains that jump to each other, and the rule that leads to them.
const (
	killSeed    = "*filter\n:stranger - [0:0]\n-A stranger -p udp -j RETURN\n-A INPUT -j stranger\n-A FORWARD -p sctp -j DROP\nCOMMIT\n"
	killOrphans = "*filter\n:tw-gone - [0:0]\n:tw-lost - [0:0]\n-A tw-gone -j tw-lost\n-A tw-lost -p udp -j DROP\n-A FORWARD -j tw-gone\nCOMMIT\n"
)

// killScene is what a runtime does until and while it, or its tool, is killed.
type killScene struct {
	before []transaction.Message // in the kernel when it comes to it
	act    []transaction.Message // what it is killed at
	final  []transaction.Message // what its next run wants
	sweeps bool                  // the block in question deletes chains
}

// stopsAt tells whether a block is the one that the scene is about.
func (s *killScene) stopsAt(input []byte) bool {
	return bytes.Contains(input, []byte("\n-X ")) == s.sweeps
}

var (
	endGrace = []transaction.Message{{Body: transaction.EndGrace{}}}
	cleanup  = []transaction.Message{{Body: transaction.Cleanup{}}}
)

// newKillScene returns a scene: "write" changes all chains and kernel chains at once,
// "delete" deletes some, "unhook" and "sweep" are the two blocks of a Cleanup.
func newKillScene(name string, size int) *killScene {
	s := &killScene{before: killWishes("old", size)}
	switch name {
	case "write":
		s.act, s.final = killWishes("new", size), killWishes("new", size)
	case "delete":
		s.act = []transaction.Message{
			by("web", transaction.DeleteChains{Chains: []string{"tw-log", "tw-spare"}}),
			by("dns", transaction.RemoveRule("INPUT", killRule("-j tw-dns"), false)),
			by("dns", transaction.DeleteChains{Chains: []string{"tw-dns"}}),
		}
		s.final, s.sweeps = reducedWishes(size), true
	case "unhook", "sweep":
		s.act, s.final, s.sweeps = cleanup, s.before, name == "sweep"
	}
	return s
}

// killWishes are the wishes of two features, in two versions that differ in every chain and
// in what they have in kernel chains.
func killWishes(version string, size int) []transaction.Message {
	msgs := []transaction.Message{
		by("web", rewriteOf("tw-web", append(numbered(version, size), "-j tw-log")...)),
		by("web", rewriteOf("tw-log", "-m comment --comment "+version+" -j DROP")),
		by("web", rewriteOf("tw-spare", "-p udp -m comment --comment "+version)),
		by("web", transaction.InsertRule("INPUT", killRule("-j tw-web"), transaction.InsertTop)),
		by("dns", rewriteOf("tw-dns", numbered(version, size)...)),
		by("dns", transaction.InsertRule("INPUT", killRule("-j tw-dns"), transaction.InsertBottom)),
	}
	ssh := killRule("-p tcp --dport 22 -j ACCEPT")
	if version == "old" {
		return append(msgs,
			by("web", transaction.InsertRule("FORWARD", ssh, transaction.InsertTop)),
			by("web", transaction.SetPolicy{Chain: "FORWARD", Policy: "ACCEPT"}),
		)
	}
	return append(msgs,
		by("web", rewriteOf("tw-new", "-j RETURN")),
		by("web", transaction.InsertRule("INPUT", killRule("-j tw-new"), transaction.InsertTop)),
		by("web", transaction.RemoveRule("FORWARD", ssh, false)),
		by("web", transaction.SetPolicy{Chain: "FORWARD", Policy: "DROP"}),
	)
}

// reducedWishes are those of a next run which knows nothing of what the one before deleted.
func reducedWishes(size int) []transaction.Message {
	var msgs []transaction.Message
	for _, m := range killWishes("old", size) {
		b, rewrite := m.Body.(transaction.RewriteChains)
		if m.Owner == "web" && (!rewrite || b.Chains[0].Name == "tw-web") {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

func by(owner string, body transaction.Body) transaction.Message {
	priority := map[string]int{"web": 10, "dns": 20}[owner]
	return transaction.Message{Owner: owner, Priority: priority, Body: body}
}

func rewriteOf(name string, texts ...string) transaction.Body {
	c := rules.Chain{Name: name}
	for _, text := range texts {
		c.Rules = append(c.Rules, killRule(text))
	}
	return transaction.RewriteChains{Chains: []rules.Chain{c}}
}

// numbered returns rules that are long enough for few of them to fill a pipe. In a user
// namespace nft takes no more than some hundred rules at once, however short.
func numbered(version string, size int) []string {
	texts := make([]string, size)
	for i := range texts {
		texts[i] = fmt.Sprintf("-p tcp -m tcp --dport %d -m comment --comment %s-%s -j ACCEPT", 1+i, version, strings.Repeat("x", 240))
	}
	return texts
}

func killRule(text string) rules.Rule { return rules.MustParseRule(text) }
