// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxCommand is how long Change.Command may be.
const maxCommand = 200

// commandLine is the command line of a process whose name is comm, else comm. The process may
// have ended, and another one have its id.
func commandLine(pid int, comm string) string {
	if pid > 0 && firstPIDs() {
		if _, line, found := process(pid, comm); found {
			return line
		}
	}
	return escaped(comm)
}

// firstPIDs tells whether our process ids are those of the first PID namespace, as the kernel
// uses them. The number is PROC_PID_INIT_INO of linux/proc_ns.h.
var firstPIDs = sync.OnceValue(func() bool {
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == "pid:[4026531836]"
})

// process returns the name of a process and its command line; the name must be comm, unless
// that is empty. Once it is open, the folder stands for that one process.
func process(pid int, comm string) (name, line string, found bool) {
	dir, err := os.OpenRoot(filepath.Join("/proc", itoa(pid)))
	if err != nil {
		return "", "", false
	}
	defer dir.Close()
	text, err := readSome(dir, "comm")
	name = strings.TrimSuffix(string(text), "\n")
	if err != nil || comm != "" && name != comm {
		return "", "", false
	}
	args, err := readSome(dir, "cmdline")
	args = bytes.TrimRight(args, "\x00")
	if err != nil || len(args) == 0 { // it is ending, or it is a thread of the kernel
		return name, escaped(name), true
	}
	return name, escaped(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))), true
}

func readSome(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 2*maxCommand))
}

// escaped is a text in which what cannot be printed is escaped, cut to maxCommand bytes.
func escaped(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		part := text[:size]
		if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
			quoted := strconv.Quote(part)
			part = quoted[1 : len(quoted)-1]
		}
		if b.Len()+len(part) > maxCommand {
			break
		}
		b.WriteString(part)
		text = text[size:]
	}
	return b.String()
}
