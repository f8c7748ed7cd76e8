package document

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/plot"
	"attune/internal/run"
)

// Document is what people read about a search: the result, the default and the elites, the commands to go
// on with, and the effect of each knob.
func (s *TuningStudy) Document() *Document {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	d := &Document{
		Title:    say("Search from ", from.text(t.Default.Variant, "default.variant")),
		Headline: s.headline(),
		Brief:    []Text{cell(from.summary(tuningHeadline(t), "best"))},
	}
	finals := Section{ID: "finals", Title: say("Best variants"), Blocks: []Block{
		only(Long, say("Checked on all shapes and seeds, then timed interleaved with the default. A ratio above one is better than the default.")), s.finals(),
	}}
	for _, line := range from.summaries(tuningFailed(t), "elites") {
		finals.Blocks = append(finals.Blocks, line)
	}
	course := Section{ID: "course", Title: say("Course of the search"), Depth: Long}
	if len(s.Evaluations) > 0 {
		course.Blocks = []Block{Figure{Name: "convergence", Plot: ConvergencePlot(t, s.Evaluations)}}
	}
	d.Sections = []Section{finals, s.numbers(), course, s.effects(), s.reproduce()}
	return dropEmpty(d)
}

// Result is the document without the effects of knobs: what a search prints at its end.
func (s *TuningStudy) Result() *Document {
	d := s.Document()
	d.Sections = slices.DeleteFunc(d.Sections, func(section Section) bool { return section.ID == "knobs" })
	return d
}

// headline is the result, what was searched, and for what.
func (s *TuningStudy) headline() []Text {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	first := say("No variant is better than the default beyond doubt.")
	if t.Faster && t.Best.Ratio != nil {
		first = say("Best: ", from.code(t.Best.Variant, "best.variant"), ", ", from.figure("%.3f", t.Best.Ratio.Ratio, "best.ratio.ratio"), "x the default (",
			from.figure("%.3f", t.Best.Ratio.Low, "best.ratio.low"), " to ", from.figure("%.3f", t.Best.Ratio.High, "best.ratio.high"), ").")
	}
	if t.Simulated() {
		first = s.simulatedResult()
	}
	second := say(from.count(t.Evaluations, "evaluations"), " evaluations")
	if t.Variants != nil {
		second = append(second, say(" of ", from.figure("%.0f", *t.Variants, "variants"), " variants")...)
	}
	second = append(second, say(" in ", from.figure("%.0f", t.Seconds, "seconds"), " s; ", from.text(t.Ended, "ended"), ".")...)
	third := say("Objective: ", from.text(t.Objective, "objective"), " in ", CostUnit(t.Unit), ", on ", from.text(t.Facts.Name, "facts.name"), ".")
	return []Text{first, second, third}
}

// simulatedResult compares simulated costs, which are the same each time: there is no doubt and no
// interval.
func (s *TuningStudy) simulatedResult() Text {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	if !t.Faster || t.Best.Ratio == nil {
		return say("No variant has fewer simulated cycles than the default.")
	}
	return say("Best: ", from.code(t.Best.Variant, "best.variant"), ", ", from.figure("%.3f", t.Best.Ratio.Ratio, "best.ratio.ratio"),
		"x fewer cycles than the default (simulated, no time).")
}

// numbers counts the evaluations, names the first failure of each kind, and says how to go on.
func (s *TuningStudy) numbers() Section {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	section := Section{ID: "numbers", Title: say("Evaluations"), Blocks: []Block{cell(from.summary(tuningNumbers(t), "evaluations"))}}
	for _, v := range append([]run.TunedVariant{t.Default}, t.Elites...) {
		for _, line := range simulatedLine(v.Name(), v.Simulated, t.NoSim && v.Failure == "") {
			section.Blocks = append(section.Blocks, cell(from.summary(line, "elites")))
		}
	}
	for _, line := range append(firstFailures(t), tuningNext(t, s.Kernel, s.command)...) {
		section.Blocks = append(section.Blocks, from.sentence(line, "evaluations"))
	}
	return section
}

// command completes a command for the kernel of the search.
func (s *TuningStudy) command(text string) string {
	if s.Complete == nil {
		return text
	}
	return s.Complete(text)
}

// finals has the default, then the elites that ran.
func (s *TuningStudy) finals() Table {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	unit := map[string]string{run.ObjectiveEnergy: "mJ", run.ObjectiveCost: "cost"}[t.Objective]
	table := Table{Columns: columns("variant", cmp.Or(unit, "us"), "ratio", "interval", "verdict", "registers", "shared bytes")}
	table.Columns[0].Keep = false
	table.Columns[4].Colour = wordColour
	add := func(v run.TunedVariant, key string, standard bool) {
		if v.Failure != "" || v.Cost == nil {
			return
		}
		row := []Text{
			cell(from.code(v.Name(), "summary:%s.variant", key)), from.tunedCost(t.Objective, *v.Cost, key+".cost"), cell(from.summary("1", "%s", key)), cell(missing), say("default"),
			from.amount(v.Registers, key, "registers"), from.amount(v.SharedBytes, key, "shared_bytes"),
		}
		if !standard {
			row[2], row[4] = cell(missing), cell(from.text(string(v.Verdict), "%s.verdict", key))
			if v.Ratio != nil {
				row[2] = cell(from.figure("%.3f", v.Ratio.Ratio, "%s.ratio.ratio", key))
				row[3] = from.interval("%.3f", &v.Ratio.Low, &v.Ratio.High, key+".ratio.low", key+".ratio.high")
			}
		}
		table.Rows = append(table.Rows, row)
	}
	add(t.Default, "default", true)
	for i, v := range t.Elites {
		add(v, fmt.Sprintf("elites.%d", i), false)
	}
	if t.Simulated() { // a simulated cost has no interval
		return table.keep(func(column int) bool { return column != 3 })
	}
	return table
}

// amount is a count that the record leaves out if it is 0.
func (r record) amount(n int, of, key string) Text {
	if n == 0 {
		return cell(r.summary("0", "%s", of))
	}
	return cell(r.count(n, "%s.%s", of, key))
}

const effectsNote = "Of each value: its evaluations, how many of them failed, the best cost with it, the median over the " +
	"best of the search, and the median over neighbours: variants that differ in this knob alone. Below 1 the value is better."

// mostKnobs is how many knobs the map of effects has, and shownEffects how many a terminal shows.
const mostKnobs, shownEffects = 12, 8

// effects has the effect of each knob, the one that matters most first.
func (s *TuningStudy) effects() Section {
	t := s.Tuning
	section := Section{ID: "knobs", Title: say("Effect of each knob"), Label: say("Effect of each knob. " + effectsNote)}
	if len(t.Effects) == 0 {
		section.Depth, section.Blocks = Long, []Block{say("No knob has two values among the evaluations.")}
		return section
	}
	p := &plot.HeatMap{Title: "Values of knobs", Value: "the median cost with it over the best of the search"}
	for _, e := range t.Effects[:min(len(t.Effects), mostKnobs)] {
		row := plot.HeatRow{Name: e.Knob}
		for _, v := range e.Values {
			cost := math.NaN()
			if v.Median != nil {
				cost = *v.Median
			}
			row.Cells = append(row.Cells, plot.HeatCell{Label: v.Value.String(), Value: cost})
		}
		p.Rows = append(p.Rows, row)
	}
	section.Blocks = []Block{
		only(Long, cell(Span{Text: effectsNote, Output: true}), Figure{Name: "knobs", Plot: p}, Details{Summary: say("All knobs and values"), Blocks: []Block{s.effectsTable(len(t.Effects))}}),
		only(Brief, s.effectsTable(min(len(t.Effects), shownEffects))),
	}
	if more := len(t.Effects) - shownEffects; more > 0 {
		section.Blocks = append(section.Blocks, only(Brief, say(fmt.Sprintf("%d more knobs with smaller effects are in report.md and in --json.", more))))
	}
	return section
}

// effectsTable has a row for each value of the first knobs.
func (s *TuningStudy) effectsTable(knobs int) Table {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	unit, _ := CostScale(t.Unit)
	table := Table{Columns: columns("knob", "tried", "failed", strings.TrimSpace("best "+unit), "median", "neighbours", "pairs")}
	for i, e := range t.Effects[:knobs] {
		for j, v := range e.Values {
			key := func(name string) string { return fmt.Sprintf("effects.%d.values.%d.%s", i, j, name) }
			table.Rows = append(table.Rows, []Text{
				cell(from.code(e.Knob+"="+v.Value.String(), "summary:%s", key("value"))), cell(from.count(v.Evaluations, "%s", key("evaluations"))),
				cell(from.count(v.Failures, "%s", key("failures"))), cell(from.summary(costText(v.Best, t.Unit), "effects.%d.values.%d", i, j)),
				cell(from.optional("%.3f", v.Median, "%s", key("median_over_best"))), cell(from.optional("%.3f", v.Ratio, "%s", key("neighbour_ratio"))),
				cell(from.count(v.Neighbours, "%s", key("neighbours"))),
			})
		}
	}
	return table
}

func (s *TuningStudy) reproduce() Section {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	blocks := []Block{
		say("Kernel ", from.text(t.Kernel, "kernel"), ", stage ", from.text(t.Stage, "stage"), ", shapes ", from.summary(strings.Join(t.Identity.Shapes, ", "), "search.shapes"),
			", ", from.text(t.Identity.Arch, "search.arch"), "."),
		say("Strategy ", from.text(t.Identity.Strategy, "search.strategy"), " with seed ", from.text(fmt.Sprint(t.Identity.SearchSeed), "search.search_seed"), ", compiler ",
			from.text(t.Identity.Compiler, "search.compiler"), "."),
		Code{Text: Span{Text: "attune show " + run.ShellWord(t.ID) + s.Commands.LedgerFlag()}},
	}
	return Section{ID: "reproduce", Title: say("Reproduce it"), Depth: Long, Blocks: append(blocks, leftOut(s.LeftOut)...)}
}
