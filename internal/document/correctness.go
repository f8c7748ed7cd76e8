package document

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"attune/internal/oracle"
	"attune/internal/plot"
	"attune/internal/run"
	"attune/internal/tensor"
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

// passed is the number of outputs that are correct, of those with the values of a filter.
func passed(from record, n int, filter map[string]any) Span {
	all := map[string]any{"pass": true}
	for k, v := range filter {
		all[k] = v
	}
	return counted(from, n, "correctness", all)
}

// correct is the number of outputs of a run that are correct.
func correct(r *run.Run, from record) Span {
	n := 0
	for i := range r.Correctness {
		if r.Correctness[i].Pass {
			n++
		}
	}
	return passed(from, n, nil)
}

// correctness has the matrix of shapes and inputs over all seeds, the errors, and every output.
func (s *RunStudy) correctness(prefix string) Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "correctness", Title: say("Correctness"), Label: say("correctness")}
	if len(r.Correctness) == 0 {
		return section
	}
	figure := errorsPlot(r)
	legend := " outputs are correct. A cell has those that are correct, of all seeds."
	if slices.ContainsFunc(r.Correctness, func(c run.Correctness) bool { return c.Limits.MaxErr > 0 }) {
		legend = " outputs are correct. A cell has those that are correct, of all seeds, and the largest error as a share of its limit."
	}
	blocks := []Block{say(correct(r, from), " of ", counted(from, len(r.Correctness), "correctness", nil), legend), s.matrix()}
	if figure != nil {
		blocks = append(blocks, Figure{Name: prefix + "errors", Plot: figure})
	}
	if list := s.wrong(); len(list) > 0 {
		blocks = append(blocks, say("Wrong:"), list)
	}
	outputs := Details{Summary: say("Every output: shape, inputs and seed"), Blocks: []Block{s.outputs()}}
	if len(r.Parts) > 0 { // the parts of a selection have their own
		section.Blocks = []Block{only(Long, append(blocks, outputs)...)}
		return section
	}
	section.Blocks = []Block{only(Long, blocks...), outputs}
	return section
}

// tally are the outputs of a shape and a distribution of inputs.
type tally struct {
	passed, all int
	worst       int     // index of the output with the largest share of its limit; -1 without one
	share       float64 // of that output
}

// mostInputs is how many distributions of inputs the matrix has. There are fewer.
const mostInputs = 32

// matrix has a row for each shape and a column for each distribution of inputs.
func (s *RunStudy) matrix() Table {
	r, from := s.Run, runRecord(s.Run.ID)
	type key struct{ shape, inputs string }
	tallies := map[key]*tally{}
	var inputs []string
	var first []int // the first output of each shape
	shapes, distributions := map[string]bool{}, map[string]bool{}
	t := Table{ID: r.ID, Columns: columns("shape")}
	for i, c := range r.Correctness {
		if !shapes[c.Shape] {
			shapes[c.Shape] = true
			first = append(first, i)
		}
		if !distributions[c.Inputs] && len(inputs) < mostInputs {
			distributions[c.Inputs] = true
			inputs = append(inputs, c.Inputs)
			head := say("outputs")
			if c.Inputs != "" {
				head = cell(from.text(c.Inputs, "correctness.%d.inputs", i))
			}
			t.Columns = append(t.Columns, Column{Name: head})
		}
		at := key{c.Shape, c.Inputs}
		if tallies[at] == nil {
			tallies[at] = &tally{worst: -1, share: -1}
		}
		tallies[at].add(i, c)
	}
	for _, i := range first {
		if t.full() {
			continue
		}
		c := r.Correctness[i]
		row := []Text{shapeOf(from, c.Shape, c.ShapeName, "correctness", i)}
		for _, in := range inputs {
			row = append(row, tallies[key{c.Shape, in}].cell(from, map[string]any{"shape": c.Shape, "inputs": in}))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func (t *tally) add(i int, c run.Correctness) {
	t.all++
	if c.Pass {
		t.passed++
	}
	if share := shareOf(c); share > t.share {
		t.worst, t.share = i, share
	}
}

// cell is the number of correct outputs and the largest share of a limit.
func (t *tally) cell(from record, filter map[string]any) Text {
	if t == nil {
		return cell(missing)
	}
	text := say(passed(from, t.passed, filter), "/", counted(from, t.all, "correctness", filter))
	if t.worst >= 0 {
		source := "100 * " + from.key("correctness.%d.max_err", t.worst) + " / " + from.key("correctness.%d.limits.max_err", t.worst)
		text = append(text, say(", ", derived("%.0f", 100*t.share, source), " %")...)
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
	if len(p.Rows) == 0 || len(p.Rows) > mostErrorRows {
		return nil
	}
	return p
}

// mostErrorRows is how many shapes the plot of errors has; with more, nobody could read it.
const mostErrorRows = 500

// outputs has a row for every output: of attention one for each instance, of a declared kernel one for
// each of its buffers.
func (s *RunStudy) outputs() Table {
	if s.Run.Problem != nil {
		return s.declaredOutputs()
	}
	r, from := s.Run, runRecord(s.Run.ID)
	t := Table{ID: r.ID, Columns: []Column{
		named("shape", Column{}),
		named("variant", Column{Depth: Long}),
		named("inputs", Column{}),
		named("seed", Column{}),
		named("max_err", Column{Keep: true}),
		named("max_err limit", Column{}),
		named("mean_err", Column{Optional: 1}),
		named("mean_err limit", Column{Optional: 3}),
		named("bad", Column{}),
		named("cosine", Column{Depth: Long}),
		named("worst at", Column{Optional: 2}),
		named("outcome", Column{Bare: true, Colour: wordColour}),
	}}
	for i, c := range r.Correctness {
		if t.full() {
			continue
		}
		at := func(key string) string { return fmt.Sprintf("correctness.%d.%s", i, key) }
		figure := func(format string, v float64, key string) Text { return cell(from.figure(format, v, "%s", at(key))) }
		inputs := say(tensor.Normal.String()) // in an old record
		if c.Inputs != "" {
			inputs = cell(from.text(c.Inputs, "%s", at("inputs")))
		}
		row := []Text{
			cell(from.text(c.Shape, "%s", at("shape"))), variantCell(r, from, c.Shape), inputs, cell(from.text(fmt.Sprint(c.Seed), "%s", at("seed"))),
			figure("%.3g", c.MaxErr, "max_err"), figure("%.3g", c.Limits.MaxErr, "limits.max_err"),
			figure("%.3g", c.MeanErr, "mean_err"), figure("%.3g", c.Limits.MeanErr, "limits.mean_err"),
			cell(derived("%.2f %%", 100*c.BadFraction, "100 * "+from.key("%s", at("bad_fraction")))),
			figure("%.7f", c.Cosine, "cosine"), cell(from.summary(placeText(c.Worst.Place), "%s", at("worst"))), outcomeCell(from, c.Pass, at("pass")),
		}
		if c.FirstNonFinite != nil { // the other figures do not include the non-finite elements
			row[4], row[6], row[9] = say("not finite"), cell(missing), cell(missing)
			row[10] = cell(from.summary(placeText(*c.FirstNonFinite), "%s", at("first_non_finite")))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// placeText is an element of the output: batch, head, row and dim.
func placeText(p oracle.Place) string {
	return fmt.Sprintf("b%d h%d r%d d%d", p.Batch, p.Head, p.Row, p.Dim)
}

// variantCell is the variant that a selection takes on a shape; empty for other runs.
func variantCell(r *run.Run, from record, shape string) Text {
	for i, p := range r.Parts {
		if slices.Contains(p.Shapes, shape) {
			return cell(from.variant(p.Variant, "parts.%d.variant", i))
		}
	}
	return nil
}

// outcomeCell is whether an output is correct.
func outcomeCell(from record, pass bool, key string) Text {
	word := "FAIL"
	if pass {
		word = "pass"
	}
	return cell(from.summary(word, "%s", key))
}

// wrong lists what was wrong with outputs beside the findings, each text once.
func (s *RunStudy) wrong() List {
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
		for _, f := range c.Findings {
			known[firstLine(f.String())], known[firstLine(f.Text())] = true, true
		}
		for j, text := range c.Wrong {
			add(text, "correctness.%d.wrong.%d", i, j)
		}
	}
	if r.Simulated != nil && len(r.Simulated.Findings) == 0 {
		for i, text := range r.Simulated.Wrong {
			add(text, "simulated.wrong.%d", i)
		}
	}
	return list
}
