package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/plot"
	"attune/internal/run"
)

// history has the way from the first ancestor to the run, on the run's headline shape.
func (s *RunStudy) history(prefix string) Section {
	section := Section{ID: "history", Title: say("History over the stages"), Depth: Long}
	if s.Run.Headline == nil || len(s.Ancestors) == 0 {
		return section
	}
	runs := append(slices.Clone(s.Ancestors), s.Run)
	section.Blocks = historyBlocks(runs, s.Run.Headline.Shape, prefix, s.Approximate)
	return section
}

// historyBlocks are a plot and a table of runs on one shape. Runs without a time there have no
// figures.
func historyBlocks(runs []*run.Run, shape, prefix string, approximate Approximate) []Block {
	t := Table{Columns: columns("stage", "time us", "over the first", "over the parent", "required", "verdict", "run")}
	t.Columns[5].Colour = verdictColour
	p := &plot.Ladder{Title: "Time on " + shape + " over the stages", Unit: "us"}
	first := ""
	var firstTime float64
	for _, r := range runs {
		from := runRecord(r.ID)
		step := plot.Step{Name: r.Variant, Outcome: outcomeOf(r.Verdict)}
		if approximate[r.ID] {
			step.Name += " ~"
		}
		time, overFirst := cell(missing), cell(missing)
		if i := performanceOn(r, shape); i >= 0 {
			row := r.Performance[i]
			key := from.key("performance.%d.p50_us", i)
			if first == "" {
				first, firstTime = key, row.P50US
			}
			step.Value = row.P50US
			if row.P50LowUS != nil && row.P50HighUS != nil {
				step.Low, step.High = *row.P50LowUS, *row.P50HighUS
			}
			time = append(cell(derived("%.2f", row.P50US, key)), approximate.mark(r)...)
			overFirst = say(derived("%.2f", firstTime/row.P50US, first+" / "+key), "x")
		}
		p.Steps = append(p.Steps, step)
		t.Rows = append(t.Rows, []Text{
			cell(from.code(r.Variant, "variant")), time, overFirst, ratioCell(r, from), requiredCell(r, from),
			cell(verdictSpan(r)), cell(from.code(r.ID, "id")),
		})
	}
	return []Block{
		say("Times are medians on ", shapeSpan(runs, shape), ". The speedup over the parent is that of the benchmark shapes, interleaved with it. ", approximate.note(runs)),
		withoutEmpty(t),
		Figure{Name: prefix + "ladder", Plot: p},
	}
}

// mark marks a figure of a run.
func (a Approximate) mark(r *run.Run) Text {
	if a[r.ID] {
		return say("~")
	}
	return nil
}

// note explains the mark, if one of the runs has it.
func (a Approximate) note(runs []*run.Run) string {
	if slices.ContainsFunc(runs, func(r *run.Run) bool { return a[r.ID] }) {
		return approximationText
	}
	return ""
}

func ratioCell(r *run.Run, from record) Text {
	if r.Speedup == nil {
		return cell(missing)
	}
	return say(from.figure("%.3f", r.Speedup.Ratio, "speedup.ratio"), "x")
}

func requiredCell(r *run.Run, from record) Text {
	if r.Parent == "" || r.RequiredSpeedup <= 0 {
		return cell(missing)
	}
	return say(from.figure("%.2f", r.RequiredSpeedup, "required_speedup"), "x")
}

// performanceOn is the index of a run's times on a shape; -1 without any.
func performanceOn(r *run.Run, shape string) int {
	return slices.IndexFunc(r.Performance, func(p run.Performance) bool { return p.Shape == shape })
}

func outcomeOf(v gate.Verdict) plot.Outcome {
	switch v {
	case gate.Merge:
		return plot.Accepted
	case gate.ValidNegative:
		return plot.Rejected
	case gate.Incorrect, gate.OverBudget:
		return plot.Failed
	}
	return plot.Open
}

// lessons has what was tried around the run, and what it gave.
func (s *RunStudy) lessons() Section {
	section := Section{ID: "lessons", Title: say("Lessons: what was tried, and what it gave"), Depth: Long}
	t := Table{Columns: columns("variant", "change", "time us", "shape", "over the parent", "required", "verdict", "run")}
	t.Columns[6].Colour = verdictColour
	for _, r := range append([]*run.Run{s.Run}, s.Siblings...) {
		t.Rows = append(t.Rows, lessonRow(r))
	}
	if len(t.Rows) > 1 {
		section.Blocks = append(section.Blocks, say("Runs of the stage, the newest first after this one:"), withoutEmpty(t))
	}
	for _, tuned := range s.Tunings {
		section.Blocks = append(section.Blocks, tuningLesson(tuned))
	}
	return section
}

func lessonRow(r *run.Run) []Text {
	from := runRecord(r.ID)
	change, time, shape := cell(missing), cell(missing), cell(missing)
	if r.Change != "" {
		change = cell(from.code(r.Change, "change"))
	}
	if r.Headline != nil {
		time, shape = cell(from.figure("%.2f", r.Headline.P50US, "headline.p50_us")), cell(from.text(r.Headline.Shape, "headline.shape"))
	}
	return []Text{
		cell(from.code(r.Variant, "variant")), change, time, shape, ratioCell(r, from), requiredCell(r, from),
		cell(verdictSpan(r)), cell(from.code(r.ID, "id")),
	}
}

// tuningLesson is what a search found, and the knob that matters most.
func tuningLesson(t *run.Tuning) Text {
	from := tuningRecord(t.ID)
	text := say("Search ", from.code(t.ID, "id"), ", ", from.count(t.Evaluations, "evaluations"), " evaluations: ")
	if t.Faster && t.Best.Ratio != nil {
		text = append(text, say(from.code(t.Best.Variant, "best.variant"), " is ", from.figure("%.3f", t.Best.Ratio.Ratio, "best.ratio.ratio"), "x the default.")...)
	} else if t.Simulated() {
		text = append(text, say("no variant has fewer simulated cycles than the default.")...)
	} else {
		text = append(text, say("no variant is better than the default beyond doubt.")...)
	}
	if len(t.Effects) > 0 {
		text = append(text, say(" The knob that matters most is ", from.code(t.Effects[0].Knob, "effects.0.knob"), ": its values differ by a factor of ",
			from.figure("%.2f", t.Effects[0].Spread, "effects.0.spread"), ".")...)
	}
	return text
}

// Document is the report on the ladder of stages.
func (s *LadderStudy) Document() (*Document, error) {
	if len(s.Runs) == 0 {
		return nil, fmt.Errorf("the ledger has no run of a stage of %s", s.Kernel)
	}
	shape := headlineShape(s.Runs)
	d := &Document{Title: say("The ladder of ", runRecord(s.Runs[0].ID).text(s.Kernel, "kernel"))}
	blocks := historyBlocks(s.Runs, shape, "", s.Approximate)
	figure := blocks[len(blocks)-1].(Figure)
	d.Headline = s.headline(shape)
	d.Sections = []Section{
		{ID: "history", Title: say("Stages"), Blocks: blocks[:len(blocks)-1]},
		{ID: "plot", Title: say("Performance history"), Blocks: []Block{figure}},
		s.resources(), s.changes(), s.correct(), s.peers(), s.nextSteps(), s.reproduce(),
	}
	d.Sections = slices.DeleteFunc(d.Sections, func(section Section) bool { return len(section.Blocks) == 0 })
	return d, nil
}

// headlineShape is the headline shape that most runs have; the shape of the first run among equals.
func headlineShape(runs []*run.Run) string {
	count := map[string]int{}
	best := ""
	for _, r := range runs {
		if r.Headline != nil {
			count[r.Headline.Shape]++
		}
	}
	for _, r := range runs {
		if r.Headline != nil && count[r.Headline.Shape] > count[best] {
			best = r.Headline.Shape
		}
	}
	return best
}

// headline is the ladder in three lines: the fastest, how many were accepted, and the device.
func (s *LadderStudy) headline(shape string) []Text {
	var fastest, first *run.Run
	for _, r := range s.Runs {
		i := performanceOn(r, shape)
		if i < 0 {
			continue
		}
		if first == nil {
			first = r
		}
		if fastest == nil || r.Performance[i].P50US < fastest.Performance[performanceOn(fastest, shape)].P50US {
			fastest = r
		}
	}
	lines := []Text{}
	if fastest != nil {
		i, j := performanceOn(fastest, shape), performanceOn(first, shape)
		a, b := runRecord(fastest.ID), runRecord(first.ID)
		own, base := a.key("performance.%d.p50_us", i), b.key("performance.%d.p50_us", j)
		lines = append(lines, say("The fastest on ", shapeSpan(s.Runs, shape), " is ", a.code(fastest.Variant, "variant"), " with ",
			derived("%.2f", fastest.Performance[i].P50US, own), s.Approximate.mark(fastest), " us, ",
			derived("%.2f", first.Performance[j].P50US/fastest.Performance[i].P50US, base+" / "+own), "x as fast as ", b.code(first.Variant, "variant"), "."))
	}
	if line := s.accepted(); line != nil && fastest != nil {
		lines = append(lines, line)
	}
	if facts := s.Runs[0].Facts; facts != nil {
		from := runRecord(s.Runs[0].ID)
		lines = append(lines, measuredOn(from.text(facts.Name, "device_facts.name"), from.text(facts.Driver, "device_facts.driver")))
	}
	return lines
}

// measuredOn names a device, and its driver if the record has one.
func measuredOn(name, driver Span) Text {
	if driver.Text == "" {
		return say("Measured on ", name, ".")
	}
	return say("Measured on ", name, ", driver ", driver, ".")
}

// accepted says how many stages reach the speedup that was required of them. The first stage and
// others without a requirement do not count; the line is nil if none has one.
func (s *LadderStudy) accepted() Text {
	var required []*run.Run
	reached := 0
	for _, r := range s.Runs {
		if r.Parent == "" || r.RequiredSpeedup <= 0 {
			continue
		}
		required = append(required, r)
		if r.Verdict == gate.Merge {
			reached++
		}
	}
	if len(required) == 0 {
		return nil
	}
	return say(those(required, reached, `verdict:"merge"`), " of ", those(required, len(required), fmt.Sprintf("kernel:%q", s.Kernel)),
		" stages and selections with a required speedup reach it; the others are kept as valid experiments.")
}

// those is the number of runs whose record has a value.
func those(runs []*run.Run, n int, has string) Span {
	terms := []string{}
	for _, r := range runs {
		terms = append(terms, runRecord(r.ID).key("is:%s", has))
	}
	return Span{Text: fmt.Sprint(n), Source: strings.Join(terms, " + "), Format: "%.0f"}
}

// shapeSpan is a shape that is the headline of a run.
func shapeSpan(runs []*run.Run, shape string) Span {
	for _, r := range runs {
		if r.Headline != nil && r.Headline.Shape == shape {
			return runRecord(r.ID).code(shape, "headline.shape")
		}
	}
	return Span{Text: "no common shape"}
}

// resources has what the code of each stage needs.
func (s *LadderStudy) resources() Section {
	t := Table{Columns: columns("stage", "registers", "shared bytes", "spilled bytes", "compiler")}
	for _, r := range s.Runs {
		if r.Build == nil {
			continue
		}
		from := runRecord(r.ID)
		spilled := Span{
			Text: fmt.Sprint(r.Build.Resources.SpillBytes()), Format: "%.0f",
			Source: from.key("build.resources.spill_store_bytes") + " + " + from.key("build.resources.spill_load_bytes"),
		}
		t.Rows = append(t.Rows, []Text{
			cell(from.code(r.Variant, "variant")), cell(from.count(r.Build.Resources.Registers, "build.resources.registers")), cell(sharedBytes(r, from)),
			cell(spilled), cell(from.text(r.Build.Compiler, "build.compiler")),
		})
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{ID: "resources", Title: say("Resources"), Blocks: []Block{t}}
}

// changes has the claim of each stage and what came of it.
func (s *LadderStudy) changes() Section {
	list := List{}
	for _, r := range s.Runs {
		from := runRecord(r.ID)
		item := say(from.code(r.Variant, "variant"))
		if r.Change != "" {
			item = append(item, say(", ", from.code(r.Change, "change"))...)
		}
		if r.Hypothesis != "" {
			item = append(item, say(": ", from.text(r.Hypothesis, "hypothesis"))...)
		}
		item = append(item, say(". ")...)
		if r.Speedup != nil && r.Parent != "" {
			item = append(item, say("It gave ", ratioCell(r, from), " over ", from.code(r.Parent, "parent"))...)
			if r.RequiredSpeedup > 0 {
				item = append(item, say(", ", requiredCell(r, from), " required")...)
			}
			item = append(item, say(".")...)
		}
		list = append(list, item)
	}
	return Section{ID: "lessons", Title: say("Lessons: what was tried, and what it gave"), Blocks: []Block{list}}
}

// correct has the checked outputs of each stage.
func (s *LadderStudy) correct() Section {
	t := Table{Columns: columns("stage", "correct", "of", "largest error, % of its limit", "shape")}
	for _, r := range s.Runs {
		if len(r.Correctness) == 0 {
			continue
		}
		from := runRecord(r.ID)
		worst, largest := -1, -1.0
		for i, c := range r.Correctness {
			if share := shareOf(c); share > largest {
				worst, largest = i, share
			}
		}
		row := []Text{
			cell(from.code(r.Variant, "variant")), cell(correct(r, from)), cell(counted(from, len(r.Correctness), "correctness", nil)),
			cell(missing), cell(missing),
		}
		if worst >= 0 {
			source := "100 * " + from.key("correctness.%d.max_err", worst) + " / " + from.key("correctness.%d.limits.max_err", worst)
			row[3], row[4] = cell(derived("%.0f", 100*largest, source)), shapeOf(from, r.Correctness[worst].Shape, r.Correctness[worst].ShapeName, "correctness", worst)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{ID: "correctness", Title: say("Correctness"), Blocks: []Block{withoutEmpty(t)}}
}

// peers has the last stage beside other implementations.
func (s *LadderStudy) peers() Section {
	if s.Bench == nil {
		return Section{}
	}
	last := &RunStudy{Run: s.Runs[len(s.Runs)-1], Bench: s.Bench}
	section := Section{ID: "comparison", Title: say("Beside other implementations"), Blocks: last.peers()}
	if s.Sweep != nil {
		section.Blocks = append(section.Blocks, sweepBlocks(s.Sweep, last.Run.Variant, "")...)
	}
	return section
}

// nextSteps are those of the last stage.
func (s *LadderStudy) nextSteps() Section {
	last := &RunStudy{Run: s.Runs[len(s.Runs)-1], Bench: s.Bench, Sweep: s.Sweep, Commands: s.Commands}
	return last.nextSteps()
}

func (s *LadderStudy) reproduce() Section {
	blocks := []Block{}
	for _, r := range s.Runs {
		blocks = append(blocks, s.Commands.reproduce(r.ID, r.Kernel))
	}
	blocks = append(blocks, s.Commands.unknownKernel(runRecord(s.Runs[0].ID).code(s.Kernel, "kernel"))...)
	return Section{ID: "reproduce", Title: say("Reproduce it"), Blocks: append(blocks, leftOut(s.LeftOut)...)}
}
