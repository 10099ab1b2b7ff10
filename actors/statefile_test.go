// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tableward/tableward/rules"
	"github.com/tableward/tableward/transaction"
)

var keptTable = rules.TableID{IPVersion: rules.IPv4, Name: "filter"}

func keptExample() transaction.Saved {
	return transaction.Saved{Table: keptTable, Chains: []transaction.SavedChain{
		{Name: "FORWARD", Content: transaction.Foreign, Digest: 5, Known: true, Rules: []string{"-j tw-a"},
			Listed: []transaction.ListedRule{{Owner: "web", List: "top", Text: "-j tw-a", Canon: []string{"-j tw-a"}}}},
		{Name: "tw-a", Content: transaction.Ours, Owner: "web", Digest: 7, Known: true, Rules: []string{"-p tcp -j ACCEPT", "-j DROP"}},
	}}
}

func writeState(t *testing.T, f stateFile, text []byte) {
	t.Helper()
	if err := f.write(text); err != nil {
		t.Fatal(err)
	}
}

func TestStateFile(t *testing.T) {
	f := newStateFile(filepath.Join(t.TempDir(), "made"), keptTable, `boot "1"`)
	if _, err := f.read(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	for range 2 { // anew, and in place of another one
		writeState(t, f, f.render(keptExample()))
		v, err := f.read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(keptExample(), v); diff != "" {
			t.Error(diff)
		}
	}
	dir, err := os.Stat(filepath.Dir(f.path))
	if err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", dir.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if err != nil || len(entries) != 1 || entries[0].Name() != "4-filter.state" {
		t.Errorf("%v, %v", entries, err)
	}
	if st, err := os.Stat(f.path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v", st.Mode(), err)
	}
}

// What does not fit is not believed, and says why.
func TestStateFileIgnored(t *testing.T) {
	f := newStateFile(t.TempDir(), keptTable, "boot 1")
	good := f.render(keptExample())
	nat := rules.TableID{IPVersion: rules.IPv4, Name: "nat"}
	other := newStateFile(filepath.Dir(f.path), keptTable, "boot 2")
	tests := []struct {
		name string
		text []byte
		want error
	}{
		{"another version", []byte(strings.Replace(string(good), "state 1", "state 2", 1)), errStateVersion},
		{"no state file", []byte("*filter\nCOMMIT\n"), errStateVersion},
		{"empty", nil, errStateVersion},
		{"another table", newStateFile("", nat, "boot 1").render(keptExample()), errStateTable},
		{"another boot", other.render(keptExample()), errStateIdentity},
		{"appended", append(append([]byte(nil), good...), '\n'), errStateDamaged},
	}
	for _, tt := range tests {
		writeState(t, f, tt.text)
		if _, err := f.read(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	for i := range good {
		for bit := range 8 {
			good[i] ^= 1 << bit
			if _, err := f.parse(good); err == nil {
				t.Errorf("with bit %d of byte %d flipped it is believed", bit, i)
			}
			good[i] ^= 1 << bit
		}
		if _, err := f.parse(good[:i]); err == nil {
			t.Errorf("the first %d bytes are believed", i)
		}
	}
}

// A file that others can write to lists no rules that are deleted.
func TestStateFileOfOthers(t *testing.T) {
	f := newStateFile(t.TempDir(), keptTable, "")
	writeState(t, f, f.render(keptExample()))
	if err := os.Chmod(f.path, 0o620); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(); !errors.Is(err, errStateMode) {
		t.Errorf("writable by a group: %v", err)
	}
	if err := os.Chmod(f.path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.path, f.path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(f.path+".moved", f.path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.read(); err == nil {
		t.Error("a link is followed")
	}
	writeState(t, f, f.render(keptExample()))
	if _, err := f.read(); err != nil {
		t.Errorf("a link is not replaced: %v", err)
	}
}

// A write that fails leaves the old file and nothing else.
func TestStateFileNotWritten(t *testing.T) {
	dir := t.TempDir()
	f := newStateFile(dir, keptTable, "")
	if err := os.Mkdir(f.path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.write([]byte("x")); err == nil {
		t.Error("a folder is replaced")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
