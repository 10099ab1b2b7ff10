// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

// Identifier is a Dataplane that names the state of the kernel which its digests are of: what
// was kept under another name is of no use. dataplane.Kernel satisfies it. "" means that this
// cannot be told, and that nothing is kept.
type Identifier interface {
	Identity() string
}

// Why a state file is ignored.
var (
	errStateVersion  = errors.New("it is of another version")
	errStateDamaged  = errors.New("it is damaged: its checksum is not right")
	errStateTable    = errors.New("it is of another table")
	errStateIdentity = errors.New("it is of another boot, network namespace or release of the tools")
	errStateMode     = errors.New("others can write to it, or it is no plain file of this user")
)

// stateMagic begins a state file. The checksum of all behind its line ends the line.
const stateMagic = "tableward state 1 "

// stateFile is where what is known of one table outlives the process. Behind its first line are
// the table, the identity of the kernel's state, and what transaction.AppendSaved gives.
type stateFile struct {
	path     string
	table    rules.TableID
	identity string
}

func newStateFile(dir string, id rules.TableID, identity string) stateFile {
	return stateFile{filepath.Join(dir, StateFileName(id)), id, identity}
}

// StateFileName is the name of a table's file in Options.StateDir: "4-filter.state".
func StateFileName(id rules.TableID) string {
	return strconv.Itoa(int(id.IPVersion)) + "-" + id.Name + ".state"
}

func (f stateFile) head() string {
	return fmt.Sprintf("table %d %s\nkernel %q\n", f.table.IPVersion, f.table.Name, f.identity)
}

// read returns what the file has. An error that is not os.ErrNotExist says why it cannot be
// believed.
func (f stateFile) read() (transaction.Saved, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return transaction.Saved{}, err
	}
	defer file.Close()
	size, err := checkMode(file)
	if err != nil {
		return transaction.Saved{}, err
	}
	text := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := text.ReadFrom(file); err != nil {
		return transaction.Saved{}, err
	}
	return f.parse(text.Bytes())
}

// checkMode refuses a file that another user can have written: rules that it lists are deleted.
// It returns the file's size.
func checkMode(file *os.File) (int64, error) {
	st, err := file.Stat()
	if err != nil {
		return 0, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.Mode().IsRegular() || st.Mode().Perm()&0o022 != 0 || !ok || int(sys.Uid) != os.Geteuid() {
		return 0, errStateMode
	}
	return st.Size(), nil
}

func (f stateFile) parse(text []byte) (transaction.Saved, error) {
	rest, ok := bytes.CutPrefix(text, []byte(stateMagic))
	if !ok {
		return transaction.Saved{}, errStateVersion
	}
	sum, rest, _ := bytes.Cut(rest, []byte("\n"))
	if string(sum) != checksum(rest) {
		return transaction.Saved{}, errStateDamaged
	}
	body := string(rest)
	table := fmt.Sprintf("table %d %s\n", f.table.IPVersion, f.table.Name)
	if !strings.HasPrefix(body, table) {
		return transaction.Saved{}, errStateTable
	}
	if body, ok = strings.CutPrefix(body, f.head()); !ok {
		return transaction.Saved{}, errStateIdentity
	}
	v, err := transaction.ParseSaved(body)
	v.Table = f.table
	return v, err
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// render returns the file's bytes.
func (f stateFile) render(v transaction.Saved) []byte {
	room := len(stateMagic) + 2*sha256.Size + 1
	text := append(make([]byte, room), f.head()...)
	text = transaction.AppendSaved(text, v)
	first := append([]byte(stateMagic), checksum(text[room:])...)
	copy(text, append(first, '\n'))
	return text
}

// write replaces the file as a whole: a process that is killed meanwhile leaves the old one.
func (f stateFile) write(text []byte) (err error) {
	dir, name := filepath.Split(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Only the table's one writer comes here, so that one name is enough.
	next := filepath.Join(dir, "."+name+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next))
		}
	}()
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(next, f.path)
}
