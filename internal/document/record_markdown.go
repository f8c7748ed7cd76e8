package document

import (
	"bytes"
	"fmt"
	"strings"

	"attune/internal/run"
)

// Markdown is report.md of a run's record: the document without plots, which are files.
func Markdown(r *run.Run) []byte { return (&RunStudy{Run: r}).Document().withoutFigures().Markdown() }

// firstReason is the first line of the first reason, and the number of further reasons.
func firstReason(reasons []string) string {
	first := ""
	if len(reasons) > 0 {
		first, _, _ = strings.Cut(reasons[0], "\n")
	}
	if len(reasons) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	return first
}

// inCell escapes a text for a cell of a table.
var inCell = strings.NewReplacer("|", `\|`, "<", "&lt;", "\r", "", "\n", " ")

func stringTable(out *bytes.Buffer, header []string, rows [][]string) {
	line := func(cells []string) {
		for _, cell := range cells {
			out.WriteString("| " + inCell.Replace(cell) + " ")
		}
		out.WriteString("|\n")
	}
	line(header)
	out.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
}
