// SPDX-License-Identifier: Apache-2.0

package transaction_test

import (
	"fmt"
	"log"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// One batch from messages to the text that the kernel gets. Two of the messages are refused
// before the kernel sees them; what the good ones need is there.
func Example() {
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	state, err := transaction.NewState(transaction.Config{Table: id, Prefixes: []string{"tw-"}})
	if err != nil {
		log.Fatal(err)
	}
	state.Observe(rules.Snapshot{Table: id, Chains: map[string]rules.SavedChain{
		"INPUT":  {Name: "INPUT", Policy: "ACCEPT", Full: true},
		"DOCKER": {Name: "DOCKER", Full: true},
	}})

	rewrite := func(id, chain string, rs ...string) transaction.Message {
		c := rules.Chain{Name: chain}
		for _, r := range rs {
			c.Rules = append(c.Rules, rules.MustParseRule(r))
		}
		return transaction.Message{ID: id, Owner: "web", Body: transaction.RewriteChains{Chains: []rules.Chain{c}}}
	}
	msgs := []transaction.Message{
		rewrite("1", "tw-in", "-p tcp -j tw-web", "-j RETURN"),
		rewrite("2", "DOCKER", "-j ACCEPT"),
		rewrite("3", "tw-loop", "-j tw-loop"),
		{ID: "4", Owner: "web", Body: transaction.InsertRule("INPUT", rules.MustParseRule("-j tw-in"), transaction.InsertTop)},
	}

	txn, outcomes := state.Propose(msgs)
	for i, o := range outcomes {
		fmt.Println(msgs[i].ID, o.Result == transaction.Applied)
		if o.Err != nil {
			fmt.Println(" ", o.Err.Reason)
		}
	}
	plan := txn.Plan()
	fmt.Print(string(rules.AppendRestore(nil, plan.Modify)))
	i, line, _ := plan.Origin(5)
	fmt.Printf("line 5, chain %s, is of message %s\n", line.Chain, msgs[i].ID)

	// The kernel has taken it. Without this, nothing has happened.
	state.Commit(txn)
	fmt.Println(state.ContentOf("tw-in"), state.ContentOf("tw-web"), state.ContentOf("DOCKER"))
	// Output:
	// 1 true
	// 2 false
	//   chain DOCKER exists and is not ours
	// 3 false
	//   the chains jump in a circle: tw-loop -> tw-loop
	// 4 true
	// *filter
	// :tw-in - [0:0]
	// :tw-web - [0:0]
	// -A tw-web -m comment --comment "tableward: missing chain" -j DROP
	// -A tw-in -p tcp -j tw-web
	// -A tw-in -j RETURN
	// -I INPUT -j tw-in
	// COMMIT
	// line 5, chain tw-in, is of message 1
	// ours stub foreign
}
