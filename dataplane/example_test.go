// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/rules"
)

// The simulator takes what the tools take, and refuses in their words. A block is applied
// as a whole or not at all.
func ExampleSim() {
	ctx := context.Background()
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	sim := dataplane.NewSim(dataplane.NFT)
	if err := sim.Restore(ctx, id, []byte("*filter\n:tw-web - [0:0]\n-A tw-web -s 192.0.2.1/32 -j ACCEPT\nCOMMIT\n")); err != nil {
		log.Fatal(err)
	}
	err := sim.Restore(ctx, id, []byte("*filter\n:tw-a - [0:0]\n-A tw-a -j ACCEPT\n-A tw-a -p tcp --dport 99999\nCOMMIT\n"))
	var re *dataplane.RestoreError
	if errors.As(err, &re) {
		fmt.Println(re.Class, re.Line, re.Text)
		fmt.Println(re.Reason)
	}
	fmt.Print(sim.Save(id))
	// Output:
	// rejected 4 -A tw-a -p tcp --dport 99999
	// invalid port/service `99999' specified
	// *filter
	// :INPUT ACCEPT [0:0]
	// :FORWARD ACCEPT [0:0]
	// :OUTPUT ACCEPT [0:0]
	// :tw-web - [0:0]
	// -A tw-web -s 192.0.2.1/32 -j ACCEPT
	// COMMIT
}

// A hook makes the simulator fail as a machine would.
func ExampleSim_hook() {
	ctx := context.Background()
	id := rules.TableID{IPVersion: rules.IPv4, Name: "filter"}
	sim := dataplane.NewSim(dataplane.Legacy)
	sim.Hook = func(c dataplane.Call) error {
		if c.Op == dataplane.OpRestore {
			return dataplane.Classify(4, "Another app is currently holding the xtables lock. Stopped waiting after 5s.\n", c.Input)
		}
		return nil
	}
	err := sim.Restore(ctx, id, []byte("*filter\n:tw-web - [0:0]\nCOMMIT\n"))
	var re *dataplane.RestoreError
	fmt.Println(errors.As(err, &re) && re.Class == dataplane.Busy)
	// Output:
	// true
}
