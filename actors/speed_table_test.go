// SPDX-License-Identifier: Apache-2.0

package actors_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tableward/tableward/dataplane"
)

// speedTable is the table of one backend.
type speedTable struct {
	backend dataplane.Backend
	version string         // of the tools
	results []*speedResult // of each row; nil: not asked for
}

// print writes the table, whose lines begin with "|", and an empty line.
func (t *speedTable) print() {
	if !slices.ContainsFunc(t.results, func(r *speedResult) bool { return r != nil }) {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	defer func() {
		w.Flush()
		fmt.Println()
	}()
	line := func(cells ...string) { fmt.Fprintln(w, "| "+strings.Join(cells, "\t| ")+"\t|") }
	header := []string{string(t.backend) + ", " + t.version, "against", "ratio (of pairs)", "reach", "", "back to back",
		"read-back ms", "ours ms", "plain ms", "plain's cpu ms", "ours: mean ms of steps"}
	line(header...)
	line(slices.Repeat([]string{"---"}, len(header))...)
	for i, r := range t.results {
		if r == nil {
			continue
		}
		row := speedRows[i]
		reach := row.reach(t.backend)
		if r.note != "" {
			line(row.operation, row.against, "-", reach.String(), "", "-", "-", "-", "-", "-", r.note)
			continue
		}
		mark := ""
		if reach.missed(r) {
			mark = "!"
		}
		line(row.operation, row.against, fmt.Sprintf("%s of %d", r.ratios, max(r.pairs, 1)), reach.String(), mark, r.backToBack.String(),
			medianMS(r.readBacks), medianMS(r.ours), medianMS(r.plain), medianMS(r.cpu), r.where)
	}
}

// String is the median with the least and the greatest.
func (r ratios) String() string {
	switch len(r) {
	case 0:
		return "-"
	case 1:
		return digits(r[0])
	}
	return fmt.Sprintf("%s (%s-%s)", digits(r.median()), digits(slices.Min(r)), digits(slices.Max(r)))
}

// digits has two digits that tell something.
func digits(x float64) string {
	switch {
	case x < 0.1:
		return fmt.Sprintf("%.3f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func medianMS(ds []time.Duration) string {
	if len(ds) == 0 {
		return "-"
	}
	return digits(ms(quantile(ds, 0.5)))
}

func (r reach) String() string {
	if r.time > 0 {
		return r.time.String()
	}
	return fmt.Sprint(r.ratio)
}

func (r reach) missed(got *speedResult) bool {
	if r.time > 0 {
		return quantile(got.ours, 0.5) > r.time
	}
	return got.ratios.median() > r.ratio
}
