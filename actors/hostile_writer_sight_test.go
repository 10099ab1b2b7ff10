// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tableward/tableward/rules"
)

// output runs a tool as somebody else does, with a lock file of his choice.
func (f *fight) output(lock, input, suffix string, args ...string) (string, error) {
	name := map[rules.IPVersion]string{rules.IPv4: "iptables", rules.IPv6: "ip6tables"}[f.id.IPVersion] + "-" + string(f.backend) + suffix
	cmd := exec.Command("nsenter", append([]string{"--net=" + f.ns, name}, args...)...)
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+lock)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %v: %w: %s", name, args, err, stderr.String())
	}
	return string(out), err
}

func (f *fight) tool(lock, input, suffix string, args ...string) error {
	_, err := f.output(lock, input, suffix, args...)
	return err
}

// saved is a table as the save tool prints it.
type saved struct {
	text   string
	policy map[string]string
	rules  map[string][]string
}

var savedChain = regexp.MustCompile(`^:(\S+) (\S+)`)

func (f *fight) save() (saved, error) {
	text, err := f.output(f.lock, "", "-save", "-t", f.id.Name)
	s := saved{text: text, policy: map[string]string{}, rules: map[string][]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := savedChain.FindStringSubmatch(line); m != nil {
			s.policy[m[1]], s.rules[m[1]] = m[2], nil
		} else if rest, ok := strings.CutPrefix(line, "-A "); ok {
			chain, r, _ := strings.Cut(rest, " ")
			s.rules[chain] = append(s.rules[chain], r)
		}
	}
	return s, err
}

// tableView is what is ours of a table: each chain of ours with its rules, and of kernel chains
// the policy, our rules and whether they are where they belong.
type tableView map[string]string

func (s saved) view() tableView {
	v := tableView{}
	for name, rs := range s.rules {
		switch {
		case strings.HasPrefix(name, "tw-"):
			v[name] = strings.Join(append([]string{"-"}, rs...), "\n")
		case name == "FORWARD" || name == "INPUT":
			lines := []string{s.policy[name]}
			var first, last, stranger int
			for i, r := range rs {
				if !strings.HasPrefix(r, "-j tw-") {
					stranger = i
					continue
				}
				if len(lines) == 1 {
					first = i
				}
				last = i
				lines = append(lines, r)
			}
			if len(lines) <= len(rs) && (name == "FORWARD" && stranger < last || name == "INPUT" && stranger > first) {
				lines = append(lines, "out of place")
			}
			v[name] = strings.Join(lines, "\n")
		}
	}
	return v
}

func differences(a, b tableView) []string {
	var out []string
	for name, text := range a {
		if other, ok := b[name]; !ok || other != text {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// see is a look at the table by the save tool. What is wrong at that moment is noted.
func (f *fight) see(t *testing.T) (saved, error) {
	s := sight{begin: time.Now()}
	may := f.wishes.now()
	table, err := f.save()
	s.end = time.Now()
	if err != nil {
		t.Error(err)
		return table, err
	}
	s.wrong = wrong(table.view(), may, f.wishes.now())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sights = append(f.sights, s)
	return table, nil
}

func (f *fight) look(t *testing.T) []string {
	if _, err := f.see(t); err != nil {
		return []string{err.Error()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sights[len(f.sights)-1].wrong
}
