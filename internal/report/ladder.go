package report

import (
	"fmt"
	"io"

	"attune/internal/run"
)

var ladderHeader = []string{"stage", "measured against", "shape", "time", "speedup", "needed", "since the first", "registers", "shared", "verdict", "run"}

// Ladder writes runs, in the order given, as a ladder: the time on each one's headline shape, the speedup over its parent as it was measured
// in turns with it, and how far it is from the first run of the list on the same shape.
func Ladder(w io.Writer, runs []*run.Run, markdown bool) error {
	var rows [][]string
	for _, r := range runs {
		rows = append(rows, ladderRow(r, runs[0]))
	}
	return table(w, ladderHeader, rows, markdown)
}

func ladderRow(r, first *run.Run) []string {
	const none = "-"
	row := []string{r.Variant, none, none, "not measured", none, none, none, none, none, string(r.Verdict), r.ID}
	if r.Build != nil {
		row[7], row[8] = fmt.Sprint(r.Build.Resources.Registers), fmt.Sprint(r.Build.Resources.SharedBytes())
	}
	if r.Headline == nil {
		return row
	}
	row[2], row[3] = r.Headline.Shape, fmt.Sprintf("%.2f us", r.Headline.P50US)
	if r.Parent != "" && r.Speedup != nil {
		row[1], row[4], row[5] = r.Parent, fmt.Sprintf("%.2fx", r.Speedup.Ratio), fmt.Sprintf("%.2fx", r.RequiredSpeedup)
	}
	if first.Headline != nil && first.Headline.Shape == r.Headline.Shape {
		row[6] = fmt.Sprintf("%.1fx", first.Headline.P50US/r.Headline.P50US)
	}
	return row
}
