// SPDX-License-Identifier: Apache-2.0

package msglog

import (
	"fmt"
	"strings"
)

// around is how many equal lines are shown around a difference.
const around = 3

// Diff returns the difference of two texts as a unified diff, "" when they are equal. It is
// made for transcripts: its cost grows with the product of the lines that differ.
func Diff(fromName, toName, from, to string) string {
	if from == to {
		return ""
	}
	edits := editScript(splitLines(from), splitLines(to))
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", fromName, toName)
	for start := 0; start < len(edits); {
		if edits[start].op == ' ' {
			start++
			continue
		}
		end := hunkEnd(edits, start)
		writeHunk(&b, edits, max(start-around, 0), min(end+around, len(edits)))
		start = end
	}
	return b.String()
}

// edit is one line of a diff; a and b count the lines of either text before it.
type edit struct {
	op   byte // ' ', '-' or '+'
	text string
	a, b int
}

func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// editScript finds the shortest script, by the longest common subsequence of what is left
// between the equal lines at both ends.
func editScript(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	s := script{}
	for _, line := range a[:head] {
		s.add(' ', line)
	}
	s.middle(a[head:len(a)-tail], b[head:len(b)-tail])
	for _, line := range a[len(a)-tail:] {
		s.add(' ', line)
	}
	return s.edits
}

type script struct {
	edits []edit
	a, b  int
}

func (s *script) add(op byte, text string) {
	s.edits = append(s.edits, edit{op, text, s.a, s.b})
	if op != '+' {
		s.a++
	}
	if op != '-' {
		s.b++
	}
}

func (s *script) middle(a, b []string) {
	common := lcs(a, b)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			s.add(' ', a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			s.add('-', a[i])
			i++
		default:
			s.add('+', b[j])
			j++
		}
	}
}

// lcs[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
func lcs(a, b []string) [][]int {
	n := make([][]int, len(a)+1)
	n[len(a)] = make([]int, len(b)+1)
	for i := len(a) - 1; i >= 0; i-- {
		n[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				n[i][j] = n[i+1][j+1] + 1
			} else {
				n[i][j] = max(n[i+1][j], n[i][j+1])
			}
		}
	}
	return n
}

// hunkEnd returns where the hunk that begins with the change at start has its last change:
// changes belong together when their surroundings touch.
func hunkEnd(edits []edit, start int) int {
	end := start + 1
	for i := end; i < len(edits) && i <= end+2*around; i++ {
		if edits[i].op != ' ' {
			end = i + 1
		}
	}
	return end
}

func writeHunk(b *strings.Builder, edits []edit, from, to int) {
	var minus, plus int
	for _, e := range edits[from:to] {
		if e.op != '+' {
			minus++
		}
		if e.op != '-' {
			plus++
		}
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", span(edits[from].a, minus), span(edits[from].b, plus))
	for _, e := range edits[from:to] {
		b.WriteByte(e.op)
		b.WriteString(strings.TrimSuffix(e.text, "\n"))
		b.WriteByte('\n')
		if !strings.HasSuffix(e.text, "\n") {
			b.WriteString("\\ No newline at end of file\n")
		}
	}
}

// span is a range of lines: of an empty one, the line before it is named.
func span(before, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", before)
	}
	return fmt.Sprintf("%d,%d", before+1, n)
}
