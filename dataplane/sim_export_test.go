// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/json"
)

// What the tests that write the vocabulary need of it.

// Known is an answer of the vocabulary.
type Known = known

// Entry is a rule of the vocabulary.
type Entry = entry

// What the simulator speaks like.
const (
	SimVersion  = simVersion
	ProgramMark = programMark
)

// VocabularyKey returns what rules of the same words share.
func VocabularyKey(rule string) string { return joined(rule) }

// LookUp returns what the vocabulary answers for one combination.
func LookUp(in, table, rule string) (Known, bool) {
	k := loadVocabulary()[vocabularyKey{in, table}][joined(rule)]
	if k == nil {
		return Known{}, false
	}
	out := *k
	out.In = nil
	return out, true
}

// EncodeVocabulary returns a vocabulary as it is embedded, one entry in a line.
func EncodeVocabulary(entries []Entry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteString("[\n")
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(e); err != nil {
			return nil, err
		}
	}
	b.WriteString("]\n")
	return b.Bytes(), nil
}
