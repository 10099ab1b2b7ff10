// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/dataplane/testns"
	"github.com/tableward/tableward/rules"
)

// A Sim says of the batches what the kernels say.
func TestSimTry(t *testing.T) {
	for _, b := range backends {
		for _, v := range []rules.IPVersion{rules.IPv4, rules.IPv6} {
			s := dataplane.NewSim(b)
			s.Hook = func(dataplane.Call) error { return errors.New("not to be called") }
			id := rules.TableID{IPVersion: v, Name: "filter"}
			for name, c := range tryCases {
				want := c.nft
				if b == dataplane.Legacy {
					want = c.legacy
				}
				trial := try(t, s, id, c.batch)
				if diff := cmp.Diff(want, told(trial.Verdicts)); diff != "" {
					t.Errorf("%s, %s (-want +got):\n%s", b, name, diff)
				}
				if diff := cmp.Diff(trial, try(t, s, id, c.batch)); diff != "" || trial.Took != 0 {
					t.Errorf("%s, %s: took %s, the second time differs:\n%s", b, name, trial.Took, diff)
				}
			}
			if got := s.Save(id); got != dataplane.NewSim(b).Save(id) {
				t.Errorf("the live table was written to:\n%s", got)
			}
		}
	}
}

// One load, and one more for each unit that is refused. The time does not matter.
func TestSimTryCounts(t *testing.T) {
	for _, b := range backends {
		s := dataplane.NewSim(b)
		for _, bad := range []int{0, 1, 3, 100} {
			for name, refused := range refusals {
				batch := messages(100, every(bad, 100), refused)
				batch.Budget = time.Nanosecond
				trial := try(t, s, filter, batch)
				var want []string
				for i := range 100 {
					if every(bad, 100)(i) {
						want = append(want, fmt.Sprintf("tw-%d 6", i))
					}
				}
				var got []string
				for _, v := range trial.Verdicts {
					got = append(got, fmt.Sprintf("%s %d", v.Chain, v.Index))
				}
				if !slices.Equal(got, want) || trial.Probes != bad+1 {
					t.Errorf("%s, %d of %s: %d probes, %q", b, bad, name, trial.Probes, got)
				}
			}
		}
	}
}

func TestSimTrySets(t *testing.T) {
	s := dataplane.NewSim(dataplane.NFT)
	batch := dataplane.Batch{Chains: []rules.Chain{chain("tw-a", "-m set --match-set tw-s src -j DROP")}}
	for _, want := range []int{1, 0, 1} {
		if got := try(t, s, filter, batch).Verdicts; len(got) != want {
			t.Errorf("%q", told(got))
		}
		if want == 1 {
			s.AddSet(rules.IPv4, "tw-s")
		} else {
			s.RemoveSet(rules.IPv4, "tw-s")
		}
	}
	if got := try(t, s, filter6, batch).Verdicts; len(got) != 1 {
		t.Errorf("IPv6: %q", told(got))
	}
}

func TestSimTryErrors(t *testing.T) {
	s := dataplane.NewSim(dataplane.Legacy)
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := s.Try(ctx, filter, dataplane.Batch{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_, err := s.Try(background, rules.TableID{IPVersion: rules.IPv4, Name: "nosuch"}, dataplane.Batch{})
	if re := restoreError(t, err); re.Class != dataplane.Unavailable {
		t.Errorf("got %v", err)
	}
	s.NoScratch = true
	if _, err := s.Try(background, filter, dataplane.Batch{}); !errors.Is(err, dataplane.ErrNoScratch) {
		t.Errorf("got %v", err)
	}
}

// As one block a batch is refused together or not at all.
func TestTryWhole(t *testing.T) {
	testns.Each(t, func(t *testing.T, b dataplane.Backend, v rules.IPVersion, k *dataplane.Kernel) {
		id := rules.TableID{IPVersion: v, Name: "filter"}
		for _, dp := range []trier{k, dataplane.NewSim(b)} {
			for want, batch := range map[bool]dataplane.Batch{
				false: {Whole: true, Chains: []rules.Chain{chain("tw-a", "-j tw-b", "-m set --match-set tw-s src -j DROP"), chain("tw-b", "-j DROP")}, Kernel: []rules.Chain{chain("INPUT", "-j tw-a")}},
				true:  {Whole: true, Chains: []rules.Chain{chain("tw-a", "-j tw-b"), chain("tw-b", "-j tw-a")}, Around: []rules.Chain{chain("INPUT", "-j tw-a")}},
			} {
				trial, err := dp.Try(background, id, batch)
				if errors.Is(err, dataplane.ErrTogether) != want || (err == nil) == want || trial.Probes != 1 || trial.Verdicts != nil {
					t.Errorf("%T: %+v, %v", dp, trial, err)
				}
			}
		}
	})
}
