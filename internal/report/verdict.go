package report

import (
	"fmt"
	"io"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

// verdictText is the verdict of a run with its meaning. A profile takes no times, so that its
// negative verdict is about the units of the chip.
func verdictText(r *run.Run) string {
	if r.Verdict == gate.ValidNegative && r.Gates.Performance != gate.Fail {
		return string(r.Verdict) + " (no unit near its limit; the experiment is valid)"
	}
	return r.Verdict.Explained()
}

// verdictNote explains the verdicts of a table that need it, given the index of their column.
func verdictNote(w io.Writer, rows [][]string, column int) error {
	for _, v := range gate.Verdicts {
		if v.Meaning() == "" {
			continue
		}
		for _, row := range rows {
			if strings.HasPrefix(row[column], string(v)) {
				_, err := fmt.Fprintf(w, "\n%s: %s\n", v, v.Meaning())
				return err
			}
		}
	}
	return nil
}
