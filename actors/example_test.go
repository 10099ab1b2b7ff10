// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/tableward/tableward/actors"
	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

var (
	filter = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	nat    = rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
)

func chain(name string, texts ...string) rules.Chain {
	c := rules.Chain{Name: name}
	for _, text := range texts {
		c.Rules = append(c.Rules, rules.MustParseRule(text))
	}
	return c
}

// The plain use: an owner writes a chain, hooks it into a built-in one, and has the answers.
func Example() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT) // in production: dataplane.NewKernel
	rt, err := actors.New(sim, actors.Options{Table: transaction.Config{Prefixes: []string{"tw-"}}})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()

	web := rt.Owner("web", 0)
	a, err := web.RewriteChains(ctx, filter, chain("tw-web", "-p tcp -m tcp --dport 443 -j ACCEPT", "-j DROP"))
	if err != nil {
		log.Fatal(err) // the call went wrong: not started, stopped, or ctx ended first
	}
	fmt.Println(a.Kind, a.Result)
	a, err = web.InsertRule(ctx, filter, "INPUT", rules.MustParseRule("-i eth0 -j tw-web"), transaction.InsertTop)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.Kind, a.Result)

	if err := rt.Stop(ctx); err != nil { // the rules stay
		log.Fatal(err)
	}
	fmt.Print(sim.Save(filter))
	// Output:
	// rewrite applied
	// insert applied
	// *filter
	// :INPUT ACCEPT [0:0]
	// :FORWARD ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :tw-web - [0:0]
	// -A INPUT -i eth0 -j tw-web
	// -A tw-web -p tcp -m tcp --dport 443 -j ACCEPT
	// -A tw-web -j DROP
	// COMMIT
}

// A chain that is jumped to before anybody has sent it is a stub that drops. The order in
// which features speak does not matter.
func Example_stub() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT)
	rt, err := actors.New(sim, actors.Options{Table: transaction.Config{Prefixes: []string{"tw-"}}})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()
	defer rt.Stop(ctx)
	show := func(a actors.Answer, err error) {
		if err != nil || a.Err != nil {
			log.Fatal(err, a.Err)
		}
		fmt.Print(a.Owner, " ", a.Result, "\n", sim.Save(filter))
	}

	show(rt.Owner("forward", 0).RewriteChains(ctx, filter, chain("tw-fwd", "-d 192.0.2.10/32 -j tw-policy")))
	show(rt.Owner("policy", 0).RewriteChains(ctx, filter, chain("tw-policy", "-p tcp -j ACCEPT")))
	// Output:
	// forward applied
	// *filter
	// :INPUT ACCEPT [0:0]
	// :FORWARD ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :tw-fwd - [0:0]
	// :tw-policy - [0:0]
	// -A tw-fwd -d 192.0.2.10/32 -j tw-policy
	// -A tw-policy -m comment --comment "tableward: missing chain" -j DROP
	// COMMIT
	// policy applied
	// *filter
	// :INPUT ACCEPT [0:0]
	// :FORWARD ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :tw-fwd - [0:0]
	// :tw-policy - [0:0]
	// -A tw-fwd -d 192.0.2.10/32 -j tw-policy
	// -A tw-policy -p tcp -j ACCEPT
	// COMMIT
}

// Of several messages in one batch, the one with a mistake is rejected, with its reason, and
// the others land as if it had never been sent.
func Example_rejected() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT)
	rt, err := actors.New(sim, actors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()
	defer rt.Stop(ctx)

	answers, err := rt.Send(ctx, filter,
		transaction.Message{ID: "a", Body: transaction.RewriteChains{Chains: []rules.Chain{chain("tw-a", "-p tcp --dport 80 -j ACCEPT")}}},
		transaction.Message{ID: "b", Body: transaction.RewriteChains{Chains: []rules.Chain{chain("tw-b", "-p tcp --dport 99999 -j ACCEPT")}}},
		transaction.Message{ID: "c", Body: transaction.RewriteChains{Chains: []rules.Chain{chain("tw-c", "-p tcp --dport 81 -j ACCPET")}}},
		transaction.Message{ID: "d", Body: transaction.RewriteChains{Chains: []rules.Chain{chain("tw-d", "-p tcp --dport 82 -j ACCEPT")}}},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range answers {
		fmt.Println(a.ID, a.Result)
		var why *transaction.Error
		if errors.As(a.Err, &why) {
			fmt.Printf("  chain %s, rule %s\n  %s\n", why.Chain, why.Rule, why.Reason)
		}
	}
	// Output:
	// a applied
	// b rejected
	//   chain tw-b, rule -p tcp --dport 99999 -j ACCEPT
	//   the port 99999 is out of range
	// c rejected
	//   chain tw-c, rule -p tcp --dport 81 -j ACCPET
	//   unknown target ACCPET; did you mean ACCEPT?
	// d applied
}

// After a restart what works is left as it is until its owner has spoken. When every
// declared owner is in sync, grace is over, and Cleanup deletes what nobody wants any more.
func Example_restart() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT)
	// An earlier run left this, and so did somebody else.
	if err := sim.Load(rules.IPv4, []byte(`*nat
:tw-blue - [0:0]
:tw-egress - [0:0]
:tw-old - [0:0]
:LOCAL - [0:0]
-A POSTROUTING -j tw-egress
-A tw-egress -s 10.42.1.0/24 -j tw-blue
-A tw-blue -j SNAT --to-source 192.0.2.11
-A tw-old -j MASQUERADE
COMMIT
`)); err != nil {
		log.Fatal(err)
	}
	rt, err := actors.New(sim, actors.Options{Table: transaction.Config{
		Prefixes: []string{"tw-"}, Grace: true, Owners: []string{"egress"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()
	must := func(a actors.Answer, err error) {
		if err != nil || a.Err != nil {
			log.Fatal(err, a.Err)
		}
	}

	egress := rt.Owner("egress", 0)
	must(egress.RewriteChains(ctx, nat, chain("tw-egress", "-s 10.42.1.0/24 -j tw-blue")))
	// tw-blue has not been sent yet, and still translates.
	fmt.Print(sim.Save(nat))

	must(egress.RewriteChains(ctx, nat, chain("tw-blue", "-j SNAT --to-source 192.0.2.12")))
	must(egress.InSync(ctx))
	must(egress.Cleanup(ctx, nat))
	if err := rt.Stop(ctx); err != nil { // it waits for deletes too
		log.Fatal(err)
	}
	fmt.Print(sim.Save(nat))
	// Output:
	// *nat
	// :PREROUTING ACCEPT [0:0]
	// :INPUT ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :POSTROUTING ACCEPT [0:0]
	// :LOCAL - [0:0]
	// :tw-blue - [0:0]
	// :tw-egress - [0:0]
	// :tw-old - [0:0]
	// -A POSTROUTING -j tw-egress
	// -A tw-blue -j SNAT --to-source 192.0.2.11
	// -A tw-egress -s 10.42.1.0/24 -j tw-blue
	// -A tw-old -j MASQUERADE
	// COMMIT
	// *nat
	// :PREROUTING ACCEPT [0:0]
	// :INPUT ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :POSTROUTING ACCEPT [0:0]
	// :LOCAL - [0:0]
	// :tw-blue - [0:0]
	// :tw-egress - [0:0]
	// -A POSTROUTING -j tw-egress
	// -A tw-blue -j SNAT --to-source 192.0.2.12
	// -A tw-egress -s 10.42.1.0/24 -j tw-blue
	// COMMIT
}

// A feature that is an actor sends what it wants and goes on; the answers come as messages
// among others.
func ExampleFeature_Spawn() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT)
	rt, err := actors.New(sim, actors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()
	defer rt.Stop(ctx)

	type endpoint string // what this feature is told of
	done := make(chan struct{})
	web, err := rt.Owner("web", 0).Spawn(func(self *actors.FeatureActor, message any) {
		switch m := message.(type) {
		case endpoint:
			rewrite := transaction.RewriteChains{Chains: []rules.Chain{chain("tw-web", "-d "+string(m)+" -j ACCEPT")}}
			if err := self.Request(filter, transaction.Message{ID: string(m), Body: rewrite}); err != nil {
				log.Fatal(err)
			}
		case actors.Answer:
			fmt.Println(m.ID, m.Owner, m.Result)
			close(done)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	web.Post(endpoint("192.0.2.7/32"))
	<-done
	web.End()
	// Output:
	// 192.0.2.7/32 web applied
}

// A feature that is an actor of your own making, by protoactor-go, asks a table's actor, and
// goes on with other messages until the answer comes.
func ExampleRequest() {
	ctx := context.Background()
	sim := dataplane.NewSim(dataplane.NFT)
	rt, err := actors.New(sim, actors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	rt.Start()
	defer rt.Stop(ctx)
	table, err := rt.PID(filter)
	if err != nil {
		log.Fatal(err)
	}

	done := make(chan struct{})
	feature := rt.System().Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Request(table, actors.Request{Message: transaction.Message{
				ID: "web-1", Owner: "web", Body: transaction.RewriteChains{Chains: []rules.Chain{chain("tw-web", "-j ACCEPT")}},
			}})
		case actors.Answer:
			fmt.Println(m.ID, m.Owner, m.Table, m.Result)
			close(done)
		}
	}))
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		log.Fatal("no answer")
	}
	rt.System().Root.Stop(feature)
	// Output:
	// web-1 web 4/filter applied
}
