// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

// Several tells whether the tools may make more than one rule of this one, or a number that
// only they know: "-s 10.0.0.1,10.0.0.2" is two, and a host's name as many as it has addresses.
func (r Rule) Several() bool { return !plainAddresses(r.text) && r.several() }

func (r Rule) several() bool {
	w := walk{text: r.text}
	for p := (part{}); w.next(&p); {
		if (p.name == "source" || p.name == "destination") && !oneAddress(p.value.text()) {
			return true
		}
	}
	return false
}

// plainAddresses tells of most rules, without a look at what each word means, that they have
// at most one address behind -s and one behind -d.
func plainAddresses(text string) bool {
	address := false // comes next
	for more, word := true, ""; more; {
		if quoted, rest, ok := cutQuoted(text); ok {
			word, text, more = quoted, rest, rest != ""
		} else {
			word, text, more = strings.Cut(text, " ")
		}
		switch {
		case address:
			if address = false; !oneAddress(word) {
				return false
			}
		case word == "-s", word == "-d":
			address = true
		case strings.Contains(word, "\""):
			return false
		case len(word) > 2 && word[0] == '-' && word[1] != '-':
			return false // an option and its value, or several
		case strings.HasPrefix(word, "--s"), strings.HasPrefix(word, "--d"):
			switch word {
			case "--sport", "--dport", "--sports", "--dports", "--state", "--set", "--set-mark", "--dst-type", "--src-type":
			default:
				return false // --source or --destination perhaps
			}
		}
	}
	return !address
}

// cutQuoted cuts a word off that is in quotes as a whole, and has neither quotes nor backslashes
// in it.
func cutQuoted(text string) (word, rest string, ok bool) {
	if !strings.HasPrefix(text, "\"") {
		return "", "", false
	}
	end := strings.IndexAny(text[1:], "\"\\") + 1
	switch {
	case end == 0 || text[end] != '"':
		return "", "", false
	case end+1 == len(text):
		return text[1:end], "", true
	case text[end+1] != ' ' || end+2 == len(text):
		return "", "", false
	}
	return text[1:end], text[end+2:], true
}

// oneAddress tells whether a value is an address or a network in numbers.
func oneAddress(value string) bool {
	letters := "0123456789./"
	if strings.Contains(value, ":") {
		letters = "0123456789abcdefABCDEF.:/"
	}
	return value != "" && strings.Trim(value, letters) == ""
}
