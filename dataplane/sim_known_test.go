// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"slices"
	"testing"

	"github.com/tableward/tableward/rules"
)

// What the simulator works out by itself is what the tools have said.
func TestPlainRules(t *testing.T) {
	plainRules := 0
	for key, known := range loadVocabulary() {
		v := rules.IPv4
		if key.in[len(key.in)-1] == '6' {
			v = rules.IPv6
		}
		for text, k := range known {
			words, _ := splitWords(nil, text)
			sr := &simRule{}
			got := sr.examine([]byte{}, NFT, rules.TableID{IPVersion: v, Name: key.table}, words)
			if got == nil || sr.nothing || sr.target == "QUEUE" { // QUEUE: what askKernel refuses
				continue
			}
			plainRules++
			if !slices.Equal(k.Canon, append([]string{string(got)}, texts(sr.more)...)) {
				t.Errorf("%s %s %s: worked out as %q, but the tools say %+v", key.in, key.table, text, got, k)
			}
		}
	}
	t.Logf("%d plain rules", plainRules)
}

func texts(list []*simRule) (out []string) {
	for _, sr := range list {
		out = append(out, sr.text)
	}
	return out
}
