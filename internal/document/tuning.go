package document

import (
	"fmt"
	"math"

	"attune/internal/plot"
	"attune/internal/run"
)

// Document is the report on a search.
func (s *TuningStudy) Document() *Document {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	d := &Document{Title: say("Search from ", from.text(t.Default.Variant, "default.variant")), Headline: s.headline()}
	finals := Section{ID: "finals", Title: say("Best variants"), Blocks: []Block{
		say("Checked on all shapes and seeds, then timed interleaved with the default. A ratio above one is better than the default."), s.finals(),
	}}
	course := Section{ID: "course", Title: say("Course of the search")}
	if len(s.Evaluations) > 0 {
		course.Blocks = []Block{Figure{Name: "convergence", Plot: ConvergencePlot(t, s.Evaluations)}}
	}
	d.Sections = []Section{finals, course, s.effects(), s.failures(), s.reproduce()}
	return dropEmpty(d)
}

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

func (s *TuningStudy) finals() Table {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	unit, factor := CostScale(t.Unit)
	table := Table{Columns: columns("variant", unit, "ratio", "interval", "verdict", "registers", "shared bytes")}
	add := func(v run.TunedVariant, key string, standard bool) {
		if v.Failure != "" || v.Cost == nil {
			return
		}
		verdict := say("default")
		if !standard {
			verdict = cell(from.text(string(v.Verdict), "%s.verdict", key))
		}
		row := []Text{
			cell(from.code(v.Variant, "%s.variant", key)), cell(derived("%.5g", factor**v.Cost, fmt.Sprintf("%g * ", factor)+from.key("%s.cost", key))),
			cell(missing), cell(missing), verdict, cell(missing), cell(missing),
		}
		if v.Ratio != nil && !standard {
			row[2] = cell(from.figure("%.3f", v.Ratio.Ratio, "%s.ratio.ratio", key))
			row[3] = from.interval("%.3f", &v.Ratio.Low, &v.Ratio.High, key+".ratio.low", key+".ratio.high")
		}
		if v.Registers > 0 {
			row[5] = cell(from.count(v.Registers, "%s.registers", key))
		}
		if v.SharedBytes > 0 {
			row[6] = cell(from.count(v.SharedBytes, "%s.shared_bytes", key))
		}
		table.Rows = append(table.Rows, row)
	}
	add(t.Default, "default", true)
	for i, v := range t.Elites {
		add(v, fmt.Sprintf("elites.%d", i), false)
	}
	return withoutEmpty(table)
}

// mostKnobs is how many knobs the map of effects has.
const mostKnobs = 12

// effects has the effect of each knob.
func (s *TuningStudy) effects() Section {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	section := Section{ID: "knobs", Title: say("Effect of each knob")}
	if len(t.Effects) == 0 {
		return section
	}
	p := &plot.HeatMap{Title: "Values of knobs", Value: "the median cost with it over the best of the search"}
	table := Table{Columns: columns("knob", "value", "evaluations", "failed", "median over the best", "over its neighbours", "pairs")}
	for i, e := range t.Effects {
		row := plot.HeatRow{Name: e.Knob}
		for j, v := range e.Values {
			key := func(name string) string { return fmt.Sprintf("effects.%d.values.%d.%s", i, j, name) }
			cost := math.NaN()
			if v.Median != nil {
				cost = *v.Median
			}
			row.Cells = append(row.Cells, plot.HeatCell{Label: v.Value.String(), Value: cost})
			table.Rows = append(table.Rows, []Text{
				cell(from.code(e.Knob, "effects.%d.knob", i)), cell(from.code(v.Value.String(), "%s", key("value"))), cell(from.count(v.Evaluations, "%s", key("evaluations"))),
				cell(from.count(v.Failures, "%s", key("failures"))), cell(from.optional("%.3f", v.Median, "%s", key("median_over_best"))),
				cell(from.optional("%.3f", v.Ratio, "%s", key("neighbour_ratio"))), cell(from.count(v.Neighbours, "%s", key("neighbours"))),
			})
		}
		if i < mostKnobs {
			p.Rows = append(p.Rows, row)
		}
	}
	section.Blocks = []Block{
		say("Neighbours are variants that differ in this knob alone. Below one the value is better."),
		Figure{Name: "knobs", Plot: p},
		Details{Summary: say("All knobs and values"), Blocks: []Block{table}},
	}
	return section
}

// failures has the first variant of each kind of failure.
func (s *TuningStudy) failures() Section {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	list := List{}
	for i, f := range t.FirstFailures {
		list = append(list, say(from.text(f.Kind, "first_failures.%d.failure", i), ": ", from.code(f.Variant, "first_failures.%d.variant", i), ": ",
			from.text(firstLine(f.Reason), "first_failures.%d.reason", i)))
	}
	if len(list) == 0 {
		return Section{}
	}
	return Section{ID: "failures", Title: say("First failure of each kind"), Blocks: []Block{list}}
}

func (s *TuningStudy) reproduce() Section {
	t, from := s.Tuning, tuningRecord(s.Tuning.ID)
	blocks := []Block{
		say("Strategy ", from.text(t.Identity.Strategy, "search.strategy"), " with seed ", from.text(fmt.Sprint(t.Identity.SearchSeed), "search.search_seed"), ", compiler ",
			from.text(t.Identity.Compiler, "search.compiler"), "."),
		Code{Span{Text: "attune show " + t.ID + s.Commands.ledgerFlag("--ledger")}},
	}
	return Section{ID: "reproduce", Title: say("Reproduce it"), Blocks: append(blocks, leftOut(s.LeftOut)...)}
}
