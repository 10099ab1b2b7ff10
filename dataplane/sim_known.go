// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	_ "embed"
	"encoding/json"
	"sync"

	"github.com/tableward/tableward/rules"
)

// The vocabulary is what the tools of release 1.8.9 have said about some hundreds of rules,
// each written in a chain that nothing reaches: how they read it back, or why they refuse
// it. A rule that is neither in it nor plain is text that reads back as written.

//go:embed testdata/vocabulary.json
var vocabularyJSON []byte

// entry is one rule of the vocabulary.
type entry struct {
	Table   string  `json:"table"`
	Rule    string  `json:"rule"`
	Answers []known `json:"answers"`
}

// known is one answer, of all the combinations of backend and IP version that gave it.
type known struct {
	In    []string `json:"in"`             // "nft4", "legacy6"
	Canon []string `json:"canon,omitzero"` // what is read back: none, one or several rules
	// Exit is the exit code of a refusal: 2 while the rule is read; else the kernel's, at
	// the rule's line (4, nft) or with COMMIT's (1, legacy).
	Exit  int    `json:"exit,omitempty"`
	Words string `json:"words,omitempty"` // of the tool; of the kernel's errno
	Bare  bool   `json:"bare,omitempty"`  // said without the tool's name
}

// vocabulary has the answers of one backend for one table by the rule's words.
type vocabulary map[string]*known

type vocabularyKey struct{ in, table string }

// combination names a backend and an IP version as the vocabulary does.
func combination(b Backend, v rules.IPVersion) string { return string(b) + itoa(int(v)) }

var loadVocabulary = sync.OnceValue(func() map[vocabularyKey]vocabulary {
	var entries []entry
	if err := json.Unmarshal(vocabularyJSON, &entries); err != nil {
		panic("dataplane: the embedded vocabulary: " + err.Error())
	}
	all := make(map[vocabularyKey]vocabulary)
	for _, e := range entries {
		text := joined(e.Rule)
		for i := range e.Answers {
			for _, in := range e.Answers[i].In {
				key := vocabularyKey{in, e.Table}
				if all[key] == nil {
					all[key] = make(vocabulary)
				}
				all[key][text] = &e.Answers[i]
			}
		}
	}
	for _, v := range all {
		v.close()
	}
	return all
})

// close adds what is read back: it is a fixed point of the tools.
func (v vocabulary) close() {
	var canons []string
	for _, k := range v {
		canons = append(canons, k.Canon...)
	}
	for _, text := range canons {
		if key := joined(text); v[key] == nil {
			v[key] = &known{Canon: []string{text}}
		}
	}
}

// joined returns a rule's words with one blank between them.
func joined(rule string) string {
	words, _ := splitWords(nil, rule)
	return string(appendWords(nil, words))
}

func appendWords(b []byte, words []string) []byte {
	for i, w := range words {
		if i > 0 {
			b = append(b, ' ')
		}
		b = rules.AppendWord(b, w)
	}
	return b
}

// answer puts what the vocabulary knows in the place of what examine has found.
func (sr *simRule) answer(k *known) {
	sr.err, sr.errno = nil, ""
	switch {
	case k.Exit == 2:
		sr.err = &wordError{text: k.Words, bare: k.Bare}
	case k.Exit != 0:
		sr.errno = k.Words
	case len(k.Canon) == 0:
		sr.nothing = true
	default:
		sr.setText(k.Canon[0])
		for _, text := range k.Canon[1:] {
			next := *sr
			next.setText(text)
			sr.more = append(sr.more, &next)
		}
	}
}
