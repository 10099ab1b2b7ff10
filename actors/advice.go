// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"strings"

	"github.com/tableward/tableward/dataplane"
	"github.com/tableward/tableward/transaction"
)

const setAdvice = "create the set first, or send the message again when it exists"

// advices say what to do about words of the tools, 1.8.9 on either backend; the first that is
// found counts.
var advices = []struct{ words, advice string }{
	{"unknown option", "check its spelling, and that the -m or -j which has the option stands before it"},
	{"Couldn't load match", "check the match's name; if it is right, this host lacks its extension"},
	{"Couldn't load target", "check the target's name; a chain must be sent, or exist, before a rule jumps to it"},
	{"et ", setAdvice},
	{"invalid port/service", "a port is a number from 0 to 65535, or a name of /etc/services"},
	{"host/network", "write an address; a name must be one that this host can resolve"},
	{"Need TCP, UDP, SCTP or DCCP", "write -p tcp or -p udp before the ports"},
	{"too many ports", "use several rules: one takes 15 ports, and a range counts as two"},
	{"Bad argument", "the word belongs to no option; text with blanks needs double quotes"},
	{"multiple -", "give the option once"},
	{"must be specified", "add the option that is named"},
	{"requires an argument", "give the option its value"},
	{"No such file or directory", "the kernel lacks the match or target, or something that it names"},
	{"Operation not supported", "the kernel has the match or target, but not for this"},
	{"Invalid argument", "the kernel does not take the match or target in this table, at this hook, or with these values"},
	{"Too many links", "the chains jump in a circle, or are nested more deeply than the kernel allows"},
	{"does not say why", "try its matches and its target one by one: one of them is not allowed in this table or at this hook, or the kernel lacks it"},
	{"without saying", "try its rules one by one"},
}

// dress completes a refusal: what to do, and a command that shows it again.
func (c *core) dress(err error) error {
	var e *transaction.Error
	if !errors.As(err, &e) {
		return err
	}
	var re *dataplane.RestoreError
	refused := errors.As(e.Err, &re)
	if refused && e.Advice == "" {
		e.Advice = adviceFor(re, e.Reason)
	}
	if e.Command == "" && (refused || errors.Is(e.Err, transaction.ErrPlace)) {
		e.Command = e.Reproduce(c.state.Backend())
	}
	return err
}

func adviceFor(re *dataplane.RestoreError, reason string) string {
	if re.Class == dataplane.TooLarge {
		return "send it as several messages: this environment takes no block of this size"
	}
	for _, a := range advices {
		if a.advice == setAdvice && !strings.Contains(reason, "exist") {
			continue // "Set x doesn't exist", "set x does not exist"
		}
		if strings.Contains(reason, a.words) {
			return a.advice
		}
	}
	return ""
}
