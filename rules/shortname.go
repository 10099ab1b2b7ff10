// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// A shortened name is a prefix, the start of the id, hashMark and hashLetters letters of hash.
const (
	hashMark    = "~"
	hashLetters = 16 // 80 bits
	maxStart    = maxChainName - len(hashMark) - hashLetters
)

var hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ShortChainName returns a name for the chain of an id of any length: the id itself if it can
// be the name of a chain, else the prefix, as much of the id's start as fits, and a hash of
// both, "tw-my-netwo~q3cx5jz7wy2kfa4n". It is always one that CheckChainName takes and that
// no target or built-in chain has, of at most 28 bytes, cut between characters. The same
// prefix and id give the same name in every process and release.
//
// Different ids get different names: an id that looks like a shortened name is shortened as
// well, so only two hashes could meet. By accident that takes about 10^12 ids; somebody who
// chooses ids to that end needs about as many trials.
//
// The first 11 bytes of the prefix are kept. The way back from a name to its id is the
// caller's; Names remembers it.
func ShortChainName(prefix, id string) string {
	if fits(id) {
		return id
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(len(prefix)) + ":" + prefix + id))
	start := cleanName(prefix+strings.TrimPrefix(id, prefix), maxStart)
	return start + hashMark + hashEncoding.EncodeToString(sum[:])[:hashLetters]
}

// fits tells whether an id can be its own name.
func fits(id string) bool {
	if CheckChainName(id) != nil || IsVerdict(id) || IsExtension(id) || SimilarTarget(id) != "" {
		return false
	}
	for _, chains := range builtin {
		for _, chain := range chains {
			if id == chain {
				return false
			}
		}
	}
	return !isShortened(id)
}

func isShortened(name string) bool {
	at := len(name) - hashLetters - len(hashMark)
	if at < 0 || name[at:at+len(hashMark)] != hashMark {
		return false
	}
	for _, c := range name[at+len(hashMark):] {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// cleanName returns at most limit bytes of the start of text, with "_" for what a chain's
// name may not have.
func cleanName(text string, limit int) string {
	var b strings.Builder
	for i, r := range text {
		if r <= ' ' || r == '"' || r == 0x7F || r == utf8.RuneError || i == 0 && (r == '-' || r == '!') {
			r = '_'
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Names gives names as ShortChainName does and remembers their ids, so that messages can tell
// what a shortened name stands for. The zero Names is ready to use. It grows with the number
// of different names until they are forgotten.
type Names struct {
	mu  sync.Mutex
	ids map[string]string // by name
}

// Of returns ShortChainName(prefix, id) and remembers the id.
func (n *Names) Of(prefix, id string) string {
	name := ShortChainName(prefix, id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids == nil {
		n.ids = make(map[string]string)
	}
	n.ids[name] = id
	return name
}

// ID returns the id of a name that Of has given.
func (n *Names) ID(name string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.ids[name]
	return id, ok
}

// Forget drops a name whose chain is gone.
func (n *Names) Forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.ids, name)
}
