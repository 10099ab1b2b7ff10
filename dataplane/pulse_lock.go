// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockWatch tells what is done to the xtables lock file, by inotify. The file may be removed
// and made again, so its folder is watched too, for the name.
type lockWatch struct {
	path string
	name []byte // in its folder
	mask uint32
	fd   int
	dir  int // watch of the folder, -1 if there is none
	buf  [4 << 10]byte
}

// lockSeen is what has been done to the file.
type lockSeen struct {
	opened bool
	closed bool // or another file may have been locked in its place
}

// lockGone are the signs that the name may be another file's by now. A link less is one.
const lockGone = unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF

// watchLock watches for the file's being closed, and for more. It makes the file if need be,
// as each of the tools does.
func watchLock(path string, more uint32) (*lockWatch, error) {
	if f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		f.Close()
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &lockWatch{path: path, name: []byte(filepath.Base(path)), mask: more | unix.IN_CLOSE | lockGone, fd: fd}
	w.dir, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if err != nil {
		w.dir = -1
	}
	if armed := w.arm(); armed != nil && err != nil {
		w.close()
		return nil, armed
	}
	return w, nil
}

// arm watches the file that has the name now. A file that had it before is watched until it is
// gone: those who have it open still lock it.
func (w *lockWatch) arm() error {
	_, err := unix.InotifyAddWatch(w.fd, w.path, w.mask)
	return err
}

// drain reads what has come.
func (w *lockWatch) drain() (seen lockSeen) {
	for {
		n, err := unix.Read(w.fd, w.buf[:])
		switch {
		case err == unix.EINTR:
		case err != nil || n <= 0:
			return seen
		default:
			s := w.parse(w.buf[:n])
			seen.opened, seen.closed = seen.opened || s.opened, seen.closed || s.closed
		}
	}
}

// parse reads events.
func (w *lockWatch) parse(data []byte) (seen lockSeen) {
	replaced := false
	for len(data) >= unix.SizeofInotifyEvent {
		wd := int(int32(binary.NativeEndian.Uint32(data)))
		mask := binary.NativeEndian.Uint32(data[4:])
		end := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(data[12:])), len(data))
		name, _, _ := bytes.Cut(data[unix.SizeofInotifyEvent:end], []byte{0})
		data = data[end:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			replaced = true
		case wd == w.dir:
			replaced = replaced || bytes.Equal(name, w.name)
		default:
			seen.opened = seen.opened || mask&unix.IN_OPEN != 0
			seen.closed = seen.closed || mask&unix.IN_CLOSE != 0
			replaced = replaced || mask&lockGone != 0
		}
	}
	if replaced {
		_ = w.arm() // it may not exist now; the folder tells when it does
		seen.closed = true
	}
	return seen
}

func (w *lockWatch) close() { unix.Close(w.fd) }
