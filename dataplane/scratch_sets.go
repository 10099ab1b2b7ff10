// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/tableward/tableward/rules"
)

// liveSets are the ipsets of the live namespace, by name: the words that create an empty
// set of the same kind. It is nil where they cannot be read; then nothing is known of any.
type liveSets map[string][]string

// setState is what a scratch namespace has of a set.
type setState struct {
	kind string // the words that create it
	made bool
}

func absentSet(name string) *RestoreError {
	return &RestoreError{Class: Rejected, Reason: "set " + name + " does not exist"}
}

// readSets lists the sets of the live namespace, without their members.
func (k *Kernel) readSets(ctx context.Context) liveSets {
	ipset := k.opts.find("ipset")
	if ipset == "" || k.ns.check() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, k.opts.BaseDeadline, errDeadline)
	defer cancel()
	var out bytes.Buffer
	r := run{path: ipset, args: []string{"list", "-terse"}, env: environ(""), start: k.ns.enter, stdout: &out, wg: &k.wg}
	if o := r.run(ctx); o.err != nil || o.exit != 0 {
		return nil
	}
	return parseSets(out.String())
}

// parseSets reads what "ipset list -terse" prints: for each set lines "Name: x", "Type:
// hash:net", "Header: family inet hashsize 1024 ...", as of ipset 6 and 7.
func parseSets(text string) liveSets {
	sets := liveSets{}
	name := ""
	for line := range strings.Lines(text) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch what {
		case "Name":
			name = value
		case "Type":
			sets[name] = []string{value}
		case "Header":
			if sets[name] != nil {
				sets[name] = append(sets[name], kindOf(strings.Fields(value))...)
			}
		}
	}
	return sets
}

// kindOf keeps of a set's header what a rule may depend on; sizes are left to the tool.
func kindOf(header []string) []string {
	var kind []string
	for i := 0; i < len(header); i++ {
		switch header[i] {
		case "family", "range", "netmask", "markmask", "timeout":
			if i+1 < len(header) {
				kind = append(kind, header[i], header[i+1])
			}
			i++
		case "counters", "comment", "skbinfo":
			kind = append(kind, header[i])
		}
	}
	return kind
}

// kind returns the words that create a set. Those that do not exist, or of which nothing is
// known, get the kind that most have.
func (l liveSets) kind(v rules.IPVersion, name string) string {
	if kind, exists := l[name]; exists {
		return strings.Join(kind, " ")
	}
	if v == rules.IPv6 {
		return "hash:ip family inet6"
	}
	return "hash:ip family inet"
}

// makeSets creates the sets that rules name, empty. The answers are in s.sets, for good.
func (s *scratch) makeSets(ctx context.Context, k *Kernel, v rules.IPVersion, rs []rules.Rule) {
	s.makeSetsOf(ctx, k, v, rs, func() liveSets { return k.readSets(ctx) })
}

// makeSetsOf is makeSets for one who knows the sets of the live namespace.
func (s *scratch) makeSetsOf(ctx context.Context, k *Kernel, v rules.IPVersion, rs []rules.Rule, read func() liveSets) {
	var keys []setKey
	var lines []string
	var live liveSets
	for _, r := range rs {
		for _, name := range r.Sets() {
			key := setKey{v, name}
			if _, asked := s.sets[key]; asked {
				continue
			}
			if len(keys) == 0 {
				live = read()
			}
			kind := live.kind(v, name)
			s.sets[key] = setState{kind: kind}
			keys = append(keys, key)
			lines = append(lines, "create "+name+" "+kind+"\n")
		}
	}
	if len(keys) == 0 {
		return
	}
	together := s.createSets(ctx, k, strings.Join(lines, ""))
	for i, key := range keys {
		state := s.sets[key]
		state.made = together || s.createSets(ctx, k, lines[i])
		s.sets[key] = state
	}
}

// createSets runs lines of ipset in the scratch namespace.
func (s *scratch) createSets(ctx context.Context, k *Kernel, lines string) bool {
	ipset := k.opts.find("ipset")
	if ipset == "" {
		return false
	}
	ctx, cancel := context.WithTimeoutCause(ctx, k.opts.BaseDeadline, errDeadline)
	defer cancel()
	r := run{
		path: ipset, args: []string{"-exist", "restore"}, env: environ(""), start: s.start,
		stdin: []byte(lines), wg: &k.wg,
	}
	o := r.run(ctx)
	return o.err == nil && o.exit == 0
}

// hasSets tells whether all sets of a rule are there.
func (s *scratch) hasSets(v rules.IPVersion, r rules.Rule) bool {
	return !slices.ContainsFunc(r.Sets(), func(name string) bool { return !s.sets[setKey{v, name}].made })
}
