// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"slices"
	"strings"
)

// hostileWords are words with which a line of restore input does more than to add a rule, or
// which look like them.
var hostileWords = strings.Fields(`-A -I -D -F -X -P -N -E -Z -R -L -S -C -t -w -W -h -V -v -n -x -b -M -4 -6 -c -f -j -g -m -s -d -p -i -o -q
	-Ftw-a -FINPUT -fF -fh -f6 -qF -qh -q6 -qV -w5 -tnat -M/bin/true -jtw-a -gtw-a -j"tw-a" -mset -ptcp -cx -c1,2 -X"tw-a"
	--append --app --insert --ins --delete --del --flush --flu --f --zero --z --new-chain --new --policy --pol --rename-chain --ren
	--replace --list --check --table=nat --tab --t --wait --wait=5 --help --he --version --ver --verbose --numeric --exact --modprobe=/bin/true --mod
	--line-numbers --ipv4 --ipv6 --ip --jump=tw-a --goto=tw-a --comm --comment --set --match-set --log-pre --nosuch --nosuch=x --= --- --
	- ! !! !-F 0 1 3 5 -1 -5 -0 "" " " "-F" "--flush" "-h" '-F' # #x *nat *filter COMMIT :tw-a :INPUT [0:0] [5:10] INPUT tw-a tw-b DOCKER-USER
	ACCEPT DROP nat filter s1 src ; && | $(id) \ \" " ' "x x" x"y z" 65536 4294967296 99999999999999999999 tcp udp icmp all 0x 1,2 1:2 , / + ~ * ? % %s @ ` + "`")

// spoiled spoils a rule: its parts, what its words say, which words there are, and its bytes.
func (g *hostileGrammar) spoiled(parts [][]string) string {
	mild := g.in(2)
	for ok := mild || g.in(3); ok; ok = g.in(3) {
		parts = g.spoilParts(parts)
	}
	words := g.written(parts)
	for ok := !mild && g.in(3); ok; ok = g.in(4) {
		words = g.spoilValue(words)
	}
	for i, w := range words {
		words[i] = g.quoted(w)
	}
	for ok := !mild && g.in(3); ok; ok = g.in(4) {
		words = g.spoilWords(words)
	}
	text := g.joined(words)
	if !mild && g.in(3) {
		text = g.spoilBytes(text)
	}
	return text
}

// spoilParts changes a rule so that the tool may well take it.
func (g *hostileGrammar) spoilParts(parts [][]string) [][]string {
	i, j := g.IntN(len(parts)), g.IntN(len(parts))
	switch g.IntN(10) {
	case 0:
		parts[i], parts[j] = parts[j], parts[i]
	case 1:
		return slices.Insert(parts, j, parts[i])
	case 2:
		if len(parts) > 1 {
			return slices.Delete(parts, i, i+1)
		}
	case 3:
		return slices.Insert(parts, i, []string{"-c", g.one("0", "1", "18446744073709551615"), g.one("0", "7")})
	case 4:
		return slices.Insert(parts, i, []string{"-c", g.one("1,2", "0,0")})
	case 5:
		return slices.Insert(parts, i, []string{g.one("-i", "-o"), g.one("lo", "-F", "!", "#", ":x", "*nat", "COMMIT", "-j", "[0:0]", "\u00fc", "a'b", `a\b`, "+", "a.b@c")})
	case 6:
		return slices.Insert(parts, i, []string{"-m", "string", "--algo", g.one("bm", "kmp"), "--string", g.value() + g.one("", "", `\`, `"`, `\"`)})
	case 7:
		return slices.Insert(parts, i, []string{"-m", "recent", g.one("--set", "--update", "--remove"), "--name", g.value()})
	case 8:
		return slices.Insert(parts, i, []string{"-m", "hashlimit", "--hashlimit-upto", "5/min", "--hashlimit-name", g.one(hostileWords...)})
	case 9:
		return slices.Insert(parts, i, []string{"-m", "comment", g.one("--comment", "--comment", "--comm", "--c"), g.one(hostileWords...)})
	}
	return parts
}

// spoilValue changes what a word says. It is quoted well.
func (g *hostileGrammar) spoilValue(words []string) []string {
	i := g.IntN(len(words))
	switch g.IntN(5) {
	case 0:
		words[i] += g.one(" ", "", "\t") + g.value()
	case 1:
		words[i] = g.value()
	case 2:
		words[i] += g.one(" -j DROP", " -g tw-b", " --name x", ` "`, `"`, `\`, "'", " ", " -F", " ! -s 10.0.0.1", " x", "#", "\u00e9")
	case 3:
		words[i] = g.one(hostileWords...)
	case 4:
		words[i] = g.cluster()
	}
	return words
}

// cluster is a word of short options.
func (g *hostileGrammar) cluster() string {
	const letters = "fjgmsdpiocqFhV46tnvxwZabcdeklruyzAIDXPNERLSCW0123!:-;=_"
	b := []byte{'-'}
	for range 1 + g.IntN(4) {
		b = append(b, letters[g.IntN(len(letters))])
	}
	return string(b)
}

// spoilWords changes which words there are.
func (g *hostileGrammar) spoilWords(words []string) []string {
	if len(words) == 0 {
		return []string{g.one(hostileWords...)}
	}
	i, j := g.IntN(len(words)), g.IntN(len(words))
	switch g.IntN(14) {
	case 0, 1:
		return slices.Insert(words, i, g.one(hostileWords...))
	case 2:
		return append(words, g.one(hostileWords...))
	case 3:
		return append(words, g.one(hostileWords...), g.one(hostileWords...))
	case 4:
		return slices.Delete(words, i, i+1)
	case 5:
		return slices.Insert(words, j, words[i])
	case 6, 7:
		words[i], words[j] = words[j], words[i]
	case 8:
		words[i] = g.one(hostileWords...)
	case 9:
		if i+1 < len(words) {
			words[i] += words[i+1]
			return slices.Delete(words, i+1, i+2)
		}
	case 10:
		if n := len(words[i]); n > 1 {
			at := 1 + g.IntN(n-1)
			return slices.Replace(words, i, i+1, words[i][:at], words[i][at:])
		}
	case 11:
		return slices.Insert(words, i, g.cluster())
	case 12:
		return slices.Insert(words, i, g.quoted(g.value()))
	case 13:
		return g.spoilRule(words)
	}
	return words
}

// spoilRule puts whole commands before or behind a rule, or makes it too long.
func (g *hostileGrammar) spoilRule(words []string) []string {
	switch g.IntN(7) {
	case 0:
		return append([]string{g.one("-A", "-I", "-D", "-R", "--append"), g.one("tw-a", "INPUT")}, words...)
	case 1:
		return append([]string{g.one("1", "3", "[5:10]", "[0:0]", "#", "!", "-A")}, words...)
	case 2:
		return append(words, g.one("-F", "-Z", "-X", "-P INPUT DROP", "-N tw-n", "-E tw-a tw-z", "-t nat", "-R tw-a 1 -j DROP"))
	case 3:
		return append(words, strings.Split(strings.Repeat("! ", 100+g.IntN(200)), " ")...)
	case 4:
		return append(words, strings.Repeat("w", 900+g.IntN(300)))
	}
	if g.in(4) {
		for range 9 + g.IntN(3) {
			words = append(words, "-m", "comment", "--comment", strings.Repeat("l", 900+g.IntN(120)))
		}
		return words
	}
	return append(words, "-m", "comment", "--comment", g.quoted(strings.Repeat("\u00e9", 100+g.IntN(100))))
}

// spoilBytes changes bytes.
func (g *hostileGrammar) spoilBytes(text string) string {
	i := g.IntN(len(text) + 1)
	j := min(len(text), i+1+g.IntN(4))
	switch g.IntN(10) {
	case 0:
		return text[:i] + g.one("\n", "\r", "\x00", "\t", "\x1b[2J", "\x7f", "\xff", "\xc3", "\xed\xa0\x80", "\u2028", "\u0085", "\v", "\f") + text[i:]
	case 1, 2:
		return text[:i] + g.one(`"`, `'`, `\`, "!", "#", "[", "]", ":", "-", "=", ",", "/", "*", ";", " ", "0", "F", "t", "%") + text[i:]
	case 3:
		return text[:i] + text[j:]
	case 4:
		return text[:j] + text[i:j] + text[j:]
	case 5:
		return text[:i]
	case 6:
		return text + g.one(`\`, `"`, ` "`, ` "x`, " \\", " #", ` -m comment --comment "open`)
	case 7:
		return text + g.one("\n", "\r\n", "\n-A INPUT -j ACCEPT", "\nCOMMIT", "\nCOMMIT\n*nat\n:tw-a - [0:0]", "\n:INPUT DROP [0:0]", "\r-F", "\n# ")
	case 8:
		b := []byte(text)
		if i < len(b) {
			b[i] ^= 1 << g.IntN(8)
		}
		return string(b)
	}
	return g.one(`"`, " ", "-", "# ", "[5:10] ", "*", ":") + text
}
