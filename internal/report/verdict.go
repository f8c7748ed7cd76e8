package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/terminal"
)

// verdictText is the verdict of a run with its meaning. A profile takes no times, so that its
// negative verdict is about the units of the chip.
func verdictText(r *run.Run) string {
	if r.Verdict == gate.ValidNegative && r.Gates.Performance != gate.Fail {
		return string(r.Verdict) + " (no unit near its limit; the experiment is valid)"
	}
	return r.Verdict.Explained()
}

// verdictNote explains the verdicts of a table that need it; it is empty if none does.
func verdictNote(verdicts []string) string {
	for _, v := range gate.Verdicts {
		named := func(verdict string) bool { return strings.HasPrefix(verdict, string(v)) }
		if v.Meaning() != "" && slices.ContainsFunc(verdicts, named) {
			return fmt.Sprintf("%s: %s", v, v.Meaning())
		}
	}
	return ""
}

// writeVerdictNote writes the note below a table for a screen.
func writeVerdictNote(w io.Writer, s terminal.Screen, verdicts []string) {
	if note := verdictNote(verdicts); note != "" {
		s.Paragraph(w, "", note, 2)
	}
}

// columnOf is one column of a table's rows.
func columnOf(rows [][]string, index int) []string {
	var cells []string
	for _, row := range rows {
		cells = append(cells, row[index])
	}
	return cells
}
