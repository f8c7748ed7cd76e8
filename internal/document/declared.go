package document

import (
	"cmp"
	"fmt"
	"strings"

	"attune/internal/oracle"
	"attune/internal/run"
)

// declaredOutputs has a row for each output of each instance of a declared kernel.
func (s *RunStudy) declaredOutputs() Table {
	r, from := s.Run, runRecord(s.Run.ID)
	labels := newShapeLabels(r)
	t := Table{ID: r.ID, Columns: []Column{
		named("shape", Column{}),
		named("name", Column{Optional: 3}),
		named("seed", Column{}),
		named("output", Column{Keep: true}),
		named("max_err", Column{Keep: true}),
		named("mean_err", Column{Optional: 1}),
		named("bad", Column{Keep: true}),
		named("allowed", Column{Keep: true}),
		named("tolerance", Column{Optional: 4}),
		named("worst at", Column{Keep: true, Optional: 2}),
		named("outcome", Column{Bare: true, Keep: true, Colour: wordColour}),
	}}
	for i, c := range r.Correctness {
		// What is wrong with the launch, such as a race, is wrong with all of its outputs.
		onlyOther := len(c.Findings) == 0 && (c.Relaunch == nil || c.Relaunch.Pass)
		name := cell(missing)
		if c.ShapeName != "" {
			name = cell(from.text(c.ShapeName, "correctness.%d.shape_name", i))
		}
		for j, o := range c.Outputs {
			if t.full() {
				continue
			}
			at := func(key string) string { return fmt.Sprintf("correctness.%d.outputs.%d.%s", i, j, key) }
			limit, limits := c.Limits.Outputs[o.Name], fmt.Sprintf("correctness.%d.limits.outputs.%s", i, o.Name)
			row := []Text{
				labels.cell(from, c.Shape, c.ShapeName, "correctness", i), name, cell(from.text(fmt.Sprint(c.Seed), "correctness.%d.seed", i)),
				cell(from.text(o.Name, "%s", at("name"))), cell(from.figure("%.3g", o.MaxErr, "%s", at("max_err"))), cell(from.figure("%.3g", o.MeanErr, "%s", at("mean_err"))),
				from.bad(o.Errors, at("")), cell(from.share(limit.BadFraction, limits+".bad_fraction")),
				from.tolerance(limit.Abs, limit.Rel, limits), cell(from.summary(cmp.Or(o.Worst.Place.Element, none), "%s", at("worst"))),
				outcomeCell(from, c.Pass || onlyOther && o.BadFraction <= limit.BadFraction && o.NonFinite == 0, fmt.Sprintf("correctness.%d.pass", i)),
			}
			if o.FirstNonFinite != nil { // the other figures do not include the non-finite elements
				row[4], row[5] = say("not finite"), cell(missing)
				row[9] = cell(from.summary(o.FirstNonFinite.String(), "%s", at("first_non_finite")))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	if len(labels.order) > 0 { // the names stand in the first column
		t = t.keep(func(column int) bool { return column != 1 })
	}
	return t
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

// shapes lists the axes of each shape whose name stands in the tables.
func (s *RunStudy) shapes() Section {
	labels, from := newShapeLabels(s.Run), runRecord(s.Run.ID)
	section := Section{ID: "shapes", Title: say("Shapes"), Label: say("shapes")}
	f := Fields{Head: []string{"shape", "axes"}}
	for _, axes := range labels.order {
		f.Width = max(f.Width, len(labels.names[axes]))
		f.Fields = append(f.Fields, Field{Name: labels.names[axes], Lines: []Text{cell(from.summary(axes, "asked.shapes"))}})
	}
	if len(f.Fields) > 0 {
		section.Blocks = []Block{f}
	}
	return section
}

// cell is a shape in the first column of a table: its name if the axes are listed above, else the axes.
func (l shapeLabels) cell(from record, axes, name, key string, index int) Text {
	if l.names[axes] != "" {
		return cell(from.text(name, "%s.%d.shape_name", key, index))
	}
	return cell(from.text(axes, "%s.%d.shape", key, index))
}

// bad is the number and the share of the bad elements.
func (r record) bad(e oracle.Errors, at string) Text {
	if e.Bad == 0 {
		return cell(r.count(0, "%sbad", at))
	}
	return say(r.count(e.Bad, "%sbad", at), " (", r.share(e.BadFraction, at+"bad_fraction"), ")")
}

// share is a fraction in percent. A small one does not become 0.
func (r record) share(fraction float64, key string) Span {
	switch {
	case fraction == 0:
		return r.figure("%.0f", 0, "%s", key)
	case fraction < 0.0001:
		return derived("%.1g %%", 100*fraction, "100 * "+r.key("%s", key))
	}
	return derived("%.2f %%", 100*fraction, "100 * "+r.key("%s", key))
}

// tolerance is the largest error of an element that is not bad.
func (r record) tolerance(abs, rel float64, limits string) Text {
	relative := say(r.figure("%.3g", rel, "%s.rel", limits), "·|want|")
	switch {
	case abs == 0 && rel == 0:
		return say("equal")
	case rel == 0:
		return cell(r.figure("%.3g", abs, "%s.abs", limits))
	case abs == 0:
		return relative
	}
	return say(r.figure("%.3g", abs, "%s.abs", limits), " + ", relative)
}

// referenceText names what the outputs of a run are compared with.
func referenceText(r *run.Run) string {
	if r.Problem == nil {
		return "float64"
	}
	return r.Problem.Facts["path"]
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
