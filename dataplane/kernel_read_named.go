// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"os"
	"strings"

	"github.com/tableward/tableward/rules"
)

const (
	// maxListed is how many chains are listed one by one. Each takes a run of the tool, and a
	// save of a thousand chains takes as long as some fifty of those.
	maxListed = 50
	// listAttempts is how often chains are listed while somebody commits all the time.
	listAttempts = 3
)

// readNamed reads chains by "iptables -S CHAIN", which loads no other chain. It returns false
// where that cannot be done, or was in vain: a save reads them, or says what is wrong.
func (k *Kernel) readNamed(ctx context.Context, t toolset, id rules.TableID, names []string) (rules.Snapshot, bool) {
	tool := t.listTool()
	if k.backend != NFT || len(names) == 0 || len(names) > maxListed || tool == "" {
		return rules.Snapshot{}, false
	}
	for range listAttempts {
		// The tool's words for a chain that does not exist are, in 1.8.9, those for one that it
		// cannot show.
		there, err := k.Scan(ctx, id, names...)
		if err != nil {
			return rules.Snapshot{}, false
		}
		snap := rules.Snapshot{Table: id, Chains: make(map[string]rules.SavedChain, len(there.Chains))}
		ok := true
		for name, c := range there.Chains {
			listed, good := k.list(ctx, tool, id.Name, name)
			// It prints something for each rule.
			if ok = good && len(listed.Rules) == len(c.Digests); !ok {
				break
			}
			snap.Chains[name] = listed
		}
		if after := k.generation(); after == there.Generation {
			snap.Generation, snap.Pulse = after, k.steadyPulse(ctx, id, there.Pulse)
			return snap, ok
		}
	}
	return rules.Snapshot{}, false
}

// listTool is the tool of one command, "" if it cannot be told to be of the same release: the
// tools of one backend are one program under several names.
func (t toolset) listTool() string {
	path, found := strings.CutSuffix(t.restore, "-restore")
	if !found {
		return ""
	}
	one, err := os.Stat(path)
	if err != nil {
		return ""
	}
	other, err := os.Stat(t.restore)
	if err != nil || !os.SameFile(one, other) {
		return ""
	}
	return path
}

// list reads one chain.
func (k *Kernel) list(ctx context.Context, tool, table, chain string) (rules.SavedChain, bool) {
	if rules.CheckChainName(chain) != nil {
		return rules.SavedChain{}, false // the tool might take it for an option
	}
	ctx, cancel := context.WithTimeoutCause(ctx, k.opts.BaseDeadline, errDeadline)
	defer cancel()
	k.stats.runs.Add(1)
	var out bytes.Buffer
	r := run{
		path: tool, args: []string{"-t", table, "-S", chain}, env: environ(k.opts.LockFile),
		start: k.ns.enter, stdout: &out, wg: &k.wg,
	}
	if o := r.run(ctx); o.err != nil || o.exit != 0 {
		return rules.SavedChain{}, false
	}
	return parseListed(out.String(), chain)
}

// parseListed reads what "iptables -S CHAIN" prints: "-P CHAIN policy" or "-N CHAIN", then the
// lines that a save prints of the chain's rules.
func parseListed(text, chain string) (rules.SavedChain, bool) {
	head, lines, _ := strings.Cut(text, "\n")
	policy, isBuiltin := strings.CutPrefix(head, "-P "+chain+" ")
	switch {
	case isBuiltin:
	case head == "-N "+chain:
		policy = "-"
	default:
		return rules.SavedChain{}, false
	}
	save := "*filter\n:" + chain + " " + policy + " [0:0]\n" + lines + "COMMIT\n" // or whatever table
	set, err := rules.ParseSave(strings.NewReader(save))
	if err != nil || len(set.Tables) != 1 || !set.Tables[0].Complete || len(set.Tables[0].Chains) != 1 {
		return rules.SavedChain{}, false
	}
	return set.Tables[0].Chains[0], true
}
