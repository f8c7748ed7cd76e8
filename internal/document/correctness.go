package document

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"attune/internal/oracle"
	"attune/internal/plot"
	"attune/internal/run"
)

// counted is the number of elements of a list of the record that have the values of a filter.
func counted(from record, n int, list string, filter map[string]any) Span {
	key := "count:" + list
	if filter != nil {
		text, err := json.Marshal(filter)
		if err != nil {
			panic(err) // strings and bools only
		}
		key += ":" + string(text)
	}
	return from.count(n, "%s", key)
}

// passed is the number of outputs that match a filter and are correct.
func passed(r *run.Run, from record, filter map[string]any) Span {
	all := map[string]any{"pass": true}
	n := 0
	for _, c := range r.Correctness {
		if c.Pass && matches(c, filter) {
			n++
		}
	}
	for k, v := range filter {
		all[k] = v
	}
	return counted(from, n, "correctness", all)
}

// matches reports whether an output has the shape and inputs of a filter.
func matches(c run.Correctness, filter map[string]any) bool {
	shape, anyShape := filter["shape"]
	inputs, anyInputs := filter["inputs"]
	return (!anyShape || shape == c.Shape) && (!anyInputs || inputs == c.Inputs)
}

// correctness has the matrix of shapes and inputs over all seeds, the errors, and every output.
func (s *RunStudy) correctness(prefix string) Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "correctness", Title: say("Correctness")}
	if len(r.Correctness) == 0 {
		return section
	}
	figure := errorsPlot(r)
	legend := " outputs are correct. A cell has those that are correct, of all seeds."
	if figure != nil {
		legend = " outputs are correct. A cell has those that are correct, of all seeds, and the largest error as a share of its limit."
	}
	section.Blocks = append(section.Blocks, say(passed(r, from, nil), " of ", counted(from, len(r.Correctness), "correctness", nil), legend), s.matrix())
	if figure != nil {
		section.Blocks = append(section.Blocks, Figure{Name: prefix + "errors", Plot: figure})
	}
	if list := s.findings(); len(list) > 0 {
		section.Blocks = append(section.Blocks, say("Findings:"), list)
	}
	return Section{ID: section.ID, Title: section.Title, Blocks: append(section.Blocks,
		Details{Summary: say("Every output: shape, inputs and seed"), Blocks: []Block{s.outputs()}})}
}

// matrix has a row for each shape and a column for each distribution of inputs.
func (s *RunStudy) matrix() Table {
	r, from := s.Run, runRecord(s.Run.ID)
	var shapes, inputs []string
	first := map[string]int{}
	t := Table{Header: headers("shape")}
	for i, c := range r.Correctness {
		if _, known := first[c.Shape]; !known {
			first[c.Shape] = i
			shapes = append(shapes, c.Shape)
		}
		if !slices.Contains(inputs, c.Inputs) {
			inputs = append(inputs, c.Inputs)
			head := say("outputs")
			if c.Inputs != "" {
				head = cell(from.text(c.Inputs, "correctness.%d.inputs", i))
			}
			t.Header = append(t.Header, head)
		}
	}
	for _, shape := range shapes {
		c := r.Correctness[first[shape]]
		row := []Text{shapeOf(from, c.Shape, c.ShapeName, "correctness", first[shape])}
		for _, in := range inputs {
			row = append(row, s.matrixCell(map[string]any{"shape": shape, "inputs": in}))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// matrixCell is the number of correct outputs and the largest share of a limit.
func (s *RunStudy) matrixCell(filter map[string]any) Text {
	r, from := s.Run, runRecord(s.Run.ID)
	all, worst, largest := 0, -1, -1.0
	for i, c := range r.Correctness {
		if !matches(c, filter) {
			continue
		}
		all++
		if share := shareOf(c); share > largest {
			worst, largest = i, share
		}
	}
	if all == 0 {
		return cell(missing)
	}
	text := say(passed(r, from, filter), "/", counted(from, all, "correctness", filter))
	if worst >= 0 {
		source := "100 * " + from.key("correctness.%d.max_err", worst) + " / " + from.key("correctness.%d.limits.max_err", worst)
		text = append(text, say(", ", derived("%.0f", 100*largest, source), " %")...)
	}
	return text
}

// shareOf is the error of an output as a share of its limit; NaN without a limit or an error.
func shareOf(c run.Correctness) float64 {
	if c.Limits.MaxErr <= 0 || c.NonFinite > 0 {
		return math.NaN()
	}
	return c.MaxErr / c.Limits.MaxErr
}

// errorsPlot shows all outputs against their limits; nil without limits.
func errorsPlot(r *run.Run) *plot.Errors {
	p := &plot.Errors{Title: "Errors of " + r.Variant + " against float64", Error: "largest error"}
	rows := map[string]int{}
	for _, c := range r.Correctness {
		if c.Limits.MaxErr <= 0 {
			continue
		}
		name := shapeLabel(c.Shape, c.ShapeName)
		if _, known := rows[name]; !known {
			rows[name] = len(p.Rows)
			p.Rows = append(p.Rows, plot.ErrorRow{Name: name})
		}
		row := &p.Rows[rows[name]]
		row.Shares = append(row.Shares, shareOf(c))
	}
	if len(p.Rows) == 0 {
		return nil
	}
	return p
}

// outputs has a row for every output: of attention one for each instance, of a declared kernel one for
// each of its buffers.
func (s *RunStudy) outputs() Table {
	r, from := s.Run, runRecord(s.Run.ID)
	t := Table{Header: headers("shape", "inputs", "seed", "output", "max_err", "limit", "mean_err", "limit of the mean", "bad share", "absolute tolerance",
		"relative tolerance", "correct")}
	for i, c := range r.Correctness {
		at := fmt.Sprintf("correctness.%d.", i)
		inputs := cell(missing)
		if c.Inputs != "" {
			inputs = cell(from.text(c.Inputs, "%s", at+"inputs"))
		}
		shape, seed := shapeOf(from, c.Shape, c.ShapeName, "correctness", i), cell(from.text(fmt.Sprint(c.Seed), "%s", at+"seed"))
		correct := cell(from.text(fmt.Sprint(c.Pass), "%s", at+"pass"))
		if len(c.Outputs) == 0 {
			row := append([]Text{shape, inputs, seed, cell(missing)}, errorCells(from, c.Errors, at)...)
			row[5], row[7] = limitCell(from, c.Limits.MaxErr, at+"limits.max_err"), limitCell(from, c.Limits.MeanErr, at+"limits.mean_err")
			t.Rows = append(t.Rows, append(row, cell(missing), cell(missing), correct))
		}
		for j, o := range c.Outputs {
			row := append([]Text{shape, inputs, seed, cell(from.code(o.Name, "%soutputs.%d.name", at, j))}, errorCells(from, o.Errors, fmt.Sprintf("%soutputs.%d.", at, j))...)
			limit := at + "limits.outputs." + o.Name
			row = append(row, limitCell(from, c.Limits.Outputs[o.Name].Abs, limit+".abs"), limitCell(from, c.Limits.Outputs[o.Name].Rel, limit+".rel"), correct)
			t.Rows = append(t.Rows, row)
		}
	}
	return withoutEmpty(t)
}

// errorCells are the cells of the errors of one output, with empty ones for their limits.
func errorCells(from record, e oracle.Errors, at string) []Text {
	figure := func(v float64, key string) Text { return cell(from.figure("%.3g", v, "%s", at+key)) }
	return []Text{figure(e.MaxErr, "max_err"), cell(missing), figure(e.MeanErr, "mean_err"), cell(missing), figure(e.BadFraction, "bad_fraction")}
}

// limitCell is a limit; one that is 0 is no limit of this output.
func limitCell(from record, v float64, key string) Text {
	if v <= 0 {
		return cell(missing)
	}
	return cell(from.figure("%.3g", v, "%s", key))
}

// mostFindings is how many findings a report lists.
const mostFindings = 20

// findings lists what the checkers reported and what was wrong, each text once.
func (s *RunStudy) findings() List {
	r, from := s.Run, runRecord(s.Run.ID)
	var list List
	known := map[string]bool{}
	add := func(text, key string, args ...any) {
		if line := firstLine(text); !known[line] && len(list) < mostFindings {
			known[line] = true
			list = append(list, cell(from.text(line, key, args...)))
		}
	}
	for i, c := range r.Correctness {
		for j, f := range c.Findings {
			add(f.Text(), "correctness.%d.findings.%d.text", i, j)
		}
		for j, text := range c.Wrong {
			add(text, "correctness.%d.wrong.%d", i, j)
		}
	}
	return list
}
