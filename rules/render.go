// SPDX-License-Identifier: Apache-2.0

package rules

import "strconv"

// AppendRestore appends block as restore input: "*table", its lines, "COMMIT", each with its
// newline. The IP version is not rendered; it chooses the tool. Lines must be such as
// ParseRestore makes: what they hold is not checked again.
func AppendRestore(dst []byte, block Block) []byte {
	dst = append(dst, '*')
	dst = append(dst, block.Table...)
	dst = append(dst, '\n')
	for i := range block.Lines {
		dst = block.Lines[i].AppendTo(dst)
		dst = append(dst, '\n')
	}
	return append(dst, "COMMIT\n"...)
}

// AppendTo appends the line without a newline.
func (l Line) AppendTo(dst []byte) []byte {
	if l.Command == Declare {
		return l.appendDeclare(dst)
	}
	dst = append(dst, '-', l.Command.letter())
	dst = appendArgument(dst, l.Chain)
	if l.Index != 0 {
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(l.Index), 10)
	}
	switch l.Command {
	case Policy:
		dst = appendArgument(dst, l.policy())
	case Rename:
		dst = appendArgument(dst, l.NewName)
	case Append, Insert, Delete, Replace:
		if !l.Rule.IsZero() {
			dst = append(dst, ' ')
			dst = append(dst, l.Rule.text...)
		}
	}
	return dst
}

// appendDeclare writes the chain as it is: a declaration is not read as words, a quote in it
// would become part of the name.
func (l Line) appendDeclare(dst []byte) []byte {
	dst = append(dst, ':')
	dst = append(dst, l.Chain...)
	dst = append(dst, ' ')
	dst = append(dst, l.policy()...)
	return append(dst, " [0:0]"...)
}

func (l Line) policy() string {
	if l.Policy == "" {
		return "-"
	}
	return l.Policy
}

func appendArgument(dst []byte, word string) []byte {
	if word == "" {
		return dst
	}
	return AppendWord(append(dst, ' '), word)
}

// letter is the short form of every command but Declare.
func (c Command) letter() byte {
	const letters = "?:NAIDDRXFPEZ"
	if int(c) < len(letters) {
		return letters[c]
	}
	return '?'
}
