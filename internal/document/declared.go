package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/terminal"
)

// declaredHeader has the columns of the outputs of a declared kernel.
var declaredHeader = []string{"shape", "name", "seed", "output", "max_err", "mean_err", "bad", "allowed", "tolerance", "worst at", ""}

// declaredColumns are those of a report for people.
var declaredColumns = []terminal.Column{
	{Name: "shape"},
	{Name: "name", Optional: 3},
	{Name: "seed"},
	{Name: "output", Keep: true},
	{Name: "max_err", Keep: true},
	{Name: "mean_err", Optional: 1},
	{Name: "bad", Keep: true},
	{Name: "allowed", Keep: true},
	{Name: "tolerance", Optional: 4},
	{Name: "worst at", Keep: true, Optional: 2},
	{Name: "", Keep: true, Colour: wordColour},
}

// declaredRows has a row for each output of each instance.
func declaredRows(r *run.Run) [][]string {
	var rows [][]string
	for _, c := range r.Correctness {
		// What is wrong with the launch, such as a race, is wrong with all of its outputs.
		onlyOther := len(c.Findings) == 0 && (c.Relaunch == nil || c.Relaunch.Pass)
		for _, o := range c.Outputs {
			limit := c.Limits.Outputs[o.Name]
			row := []string{
				c.Shape, orDashText(c.ShapeName), fmt.Sprint(c.Seed), o.Name, fmt.Sprintf("%.3g", o.MaxErr), fmt.Sprintf("%.3g", o.MeanErr),
				badText(o.Errors), share(limit.BadFraction), toleranceText(limit.Abs, limit.Rel), orDashText(o.Worst.Place.Element),
				passWord(c.Pass || onlyOther && o.BadFraction <= limit.BadFraction && o.NonFinite == 0),
			}
			if o.FirstNonFinite != nil { // the other figures do not include the non-finite elements
				row[4], row[5], row[9] = "not finite", none, o.FirstNonFinite.String()
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// shapeLabels are the names of shapes whose axes are too long for a table.
type shapeLabels struct {
	names map[string]string // by axes
	order []string          // axes
}

// longShape is the length from which the axes of a shape are written above the tables.
const longShape = 32

// newShapeLabels has the names of a run's shapes, or none if all shapes are short or one has no name.
func newShapeLabels(r *run.Run) shapeLabels {
	l := shapeLabels{names: map[string]string{}}
	long, named := false, true
	add := func(axes, name string) {
		if _, known := l.names[axes]; !known {
			l.order = append(l.order, axes)
		}
		l.names[axes] = name
		long, named = long || len(axes) >= longShape, named && name != ""
	}
	for _, c := range r.Correctness {
		add(c.Shape, c.ShapeName)
	}
	for _, p := range r.Performance {
		add(p.Shape, p.ShapeName)
	}
	if !long || !named {
		return shapeLabels{}
	}
	return l
}

// write lists the axes of each name.
func (l shapeLabels) write(w *strings.Builder, s terminal.Screen) {
	if len(l.order) == 0 {
		return
	}
	w.WriteString("\nshapes\n")
	width := 0
	for _, name := range l.names {
		width = max(width, len(name))
	}
	for _, axes := range l.order {
		s.Paragraph(w, fmt.Sprintf("  %-*s  ", width, l.names[axes]), axes, width+4)
	}
}

// label replaces the axes in the first column of a table by the name.
func (l shapeLabels) label(rows [][]string) [][]string {
	for _, row := range rows {
		row[0] = cmp.Or(l.names[row[0]], row[0])
	}
	return rows
}

// declaredTable is the outputs of a declared kernel, for people.
func declaredTable(r *run.Run, shapes shapeLabels) terminal.Table {
	columns, rows := declaredColumns, shapes.label(declaredRows(r))
	if len(shapes.order) > 0 { // the names stand in the first column
		columns = slices.Delete(slices.Clone(columns), 1, 2)
		for i, row := range rows {
			rows[i] = slices.Delete(row, 1, 2)
		}
	}
	return textTable(columns, rows)
}

// badText is the number and the share of the bad elements.
func badText(e oracle.Errors) string {
	if e.Bad == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", e.Bad, share(e.BadFraction))
}

// share is a fraction in percent. A small one does not become 0.
func share(fraction float64) string {
	switch {
	case fraction == 0:
		return "0"
	case fraction < 0.0001:
		return fmt.Sprintf("%.1g %%", 100*fraction)
	}
	return fmt.Sprintf("%.2f %%", 100*fraction)
}

// toleranceText is the largest error of an element that is not bad.
func toleranceText(abs, rel float64) string {
	switch {
	case abs == 0 && rel == 0:
		return "equal"
	case rel == 0:
		return fmt.Sprintf("%.3g", abs)
	case abs == 0:
		return fmt.Sprintf("%.3g·|want|", rel)
	}
	return fmt.Sprintf("%.3g + %.3g·|want|", abs, rel)
}

func orDashText(text string) string {
	if text == "" {
		return none
	}
	return text
}

// referenceText names what the outputs of a run are compared with.
func referenceText(r *run.Run) string {
	if r.Problem == nil {
		return "float64"
	}
	return r.Problem.Facts["path"]
}

// The rates of a declared kernel stand behind TFLOP/s in the table of times.
const tflopsColumn = 7

var rateHeader = []string{"GB/s", "of ceiling"}

// withRates adds the rates of a declared kernel to the header and the rows of its times.
func withRates(r *run.Run, header []string, rows [][]string) ([]string, [][]string) {
	for i, p := range r.Performance {
		rows[i] = slices.Insert(rows[i], tflopsColumn+1, orMissing("%.0f", p.GBPerS), ceilingText(p.Shares))
	}
	return slices.Insert(slices.Clone(header), tflopsColumn+1, rateHeader...), rows
}

// ceilingText is the largest share of a ceiling of the device, with the ceiling. Only an FP8 kernel
// is above the ceiling of bf16.
func ceilingText(s *run.Shares) string {
	if s == nil {
		return none
	}
	best, name := s.Copy, "copy"
	if s.BF16 > best {
		best, name = s.BF16, "bf16"
	}
	if name == "bf16" && s.BF16 > 1 {
		best, name = s.FP8, "FP8"
	}
	if best == 0 {
		return none
	}
	return fmt.Sprintf("%.1f %% %s", 100*best, name)
}

// withoutEmpty drops the columns in which no row has a value.
func withoutEmptyColumns(header []string, rows [][]string) ([]string, [][]string) {
	for i := len(header) - 1; i > 0; i-- {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[i] != none && row[i] != "" }) {
			continue
		}
		header, rows = withoutColumn(header[i], header, rows)
	}
	return header, rows
}

// withoutColumn drops a column.
func withoutColumn(name string, header []string, rows [][]string) ([]string, [][]string) {
	i := slices.Index(header, name)
	for j, row := range rows {
		rows[j] = slices.Delete(row, i, i+1)
	}
	return slices.Delete(slices.Clone(header), i, i+1), rows
}

// requiredText is the required speedup of a run. A stage of a declared kernel may have none.
func requiredText(r *run.Run) string {
	if r.RequiredSpeedup == 0 {
		return "none required"
	}
	return fmt.Sprintf("%.2fx required", r.RequiredSpeedup)
}

// problemText describes the reference of a declared kernel, for the provenance of a record.
func problemText(p *run.Problem) string {
	parts := []string{p.Facts["reference"] + " " + p.Facts["path"]}
	for _, key := range []string{"python", "numpy"} {
		if version := p.Facts[key]; version != "" {
			parts = append(parts, key+" "+version)
		}
	}
	return strings.Join(parts, ", ")
}
