package document

import (
	"fmt"
	"slices"

	"attune/internal/plot"
	"attune/internal/run"
)

// performance has the times with intervals over processes, the energy, and the samples.
func (s *RunStudy) performance(prefix string) Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "performance", Title: say("Performance"), Label: say("performance")}
	if len(r.Performance) == 0 {
		section.Blocks = []Block{say("No times were measured.")}
		if len(r.Reasons.Performance) > 0 {
			section.Blocks = []Block{say("No times were measured: ", from.text(firstLine(r.Reasons.Performance[0]), "reasons.performance.0"), ".")}
		}
		section.Depth = Long
		return section
	}
	section.Blocks = append(section.Blocks, s.times())
	if s.Approximate[r.ID] && len(r.Parts) == 0 {
		section.Blocks = append(section.Blocks, only(Long,
			say("This kernel computes some exponentials by a linear approximation; do not compare it with exact ones without saying so.")))
	}
	if r.Requested.Timing != "" {
		section.Blocks = append(section.Blocks, cell(from.text(r.Requested.Timing, "asked.timing")))
	}
	for _, line := range from.summaries(timingLines(r), "performance") {
		section.Blocks = append(section.Blocks, line)
	}
	if p := stripsPlot(r); p != nil {
		section.Blocks = append(section.Blocks, Figure{Name: prefix + "samples", Plot: p})
	}
	return section
}

// times has a row for each shape. Each add is one column: its heading, and its cell of the shape.
func (s *RunStudy) times() Table {
	r, from := s.Run, runRecord(s.Run.ID)
	labels := newShapeLabels(r)
	t := Table{ID: r.ID}
	for i, p := range r.Performance {
		if t.full() {
			continue
		}
		var row []Text
		add := func(name string, c Column, text Text) {
			if i == 0 {
				t.Columns = append(t.Columns, named(name, c))
			}
			row = append(row, text)
		}
		at := fmt.Sprintf("performance.%d.", i)
		figure := func(format string, v *float64, key string) Text { return cell(from.optional(format, v, "%s", at+key)) }
		add("shape", Column{}, labels.cell(from, p.Shape, p.ShapeName, "performance", i))
		add("variant", Column{}, variantCell(r, from, p.Shape))
		add("p50 us", Column{Keep: true}, figure("%.2f", &p.P50US, "p50_us"))
		add("±", Column{Keep: true}, cell(from.summary(plusMinus(p), "performance.%d", i)))
		add("interval", Column{Depth: Long}, from.interval("%.2f", p.P50LowUS, p.P50HighUS, at+"p50_low_us", at+"p50_high_us"))
		add("p90 us", Column{Depth: Long}, figure("%.2f", &p.P90US, "p90_us"))
		add("p99 us", Column{Optional: 5}, figure("%.2f", &p.P99US, "p99_us"))
		add("std us", Column{Depth: Long}, figure("%.2f", &p.StdUS, "std_us"))
		add("single us", Column{Optional: 4}, figure("%.2f", p.SingleUS, "single_launch_us"))
		add("TFLOP/s", Column{Keep: true}, figure("%.2f", p.TFLOPS, "tflops"))
		add("GB/s", Column{Keep: true}, figure("%.0f", p.GBPerS, "gb_per_s"))
		add("of ceiling", Column{Keep: true, Optional: 1}, cell(from.summary(ceilingText(p.Shares), "performance.%d", i)))
		add("mJ", Column{Optional: 2}, from.millijoules(p.Joules, at+"joules_per_launch"))
		add("parent mJ", Column{Depth: Long}, from.millijoules(p.ParentJoules, at+"parent_joules_per_launch"))
		add("parent us", Column{Optional: 3}, figure("%.2f", p.ParentP50US, "parent_p50_us"))
		add("speedup", Column{Keep: true}, figure("%.3fx", p.ParentRatio, "parent_ratio"))
		add("95 % interval", Column{Optional: 1}, from.interval("%.3f", p.RatioLow, p.RatioHigh, at+"ratio_low", at+"ratio_high"))
		add("samples", Column{Depth: Long}, cell(from.count(p.Samples, "performance.%d.samples", i)))
		add("processes", Column{Depth: Long}, from.processes(p.Processes, at+"processes"))
		add("counted", Column{Bare: true, Keep: true}, countedCell(p))
		t.Rows = append(t.Rows, row)
	}
	return t
}

// processes is the number of processes; old records do not have it.
func (r record) processes(n int, key string) Text {
	if n == 0 {
		return cell(missing)
	}
	return cell(r.count(n, "%s", key))
}

// countedCell marks the shapes that the performance gate counts.
func countedCell(p run.Performance) Text {
	if !p.Benchmark {
		return nil
	}
	return say(benchmarkWord)
}

// benchmarkWord marks the shapes that the performance gate counts.
const benchmarkWord = "benchmark"

// mostStrips is how many shapes a plot of samples has.
const mostStrips = 4

// stripsPlot has the samples of the benchmark shapes, or else of the first shapes; nil without
// samples.
func stripsPlot(r *run.Run) *plot.Strips {
	p := &plot.Strips{Title: "Samples of " + r.Variant, Unit: "us"}
	for _, benchmark := range []bool{true, false} {
		for _, row := range r.Performance {
			if row.Benchmark != benchmark || len(p.Groups) == mostStrips {
				continue
			}
			if i := slices.IndexFunc(r.Samples, func(s run.Samples) bool { return s.Shape == row.Shape }); i >= 0 {
				p.Groups = append(p.Groups, stripsOf(r, row, r.Samples[i]))
			}
		}
	}
	if len(p.Groups) == 0 {
		return nil
	}
	return p
}

func stripsOf(r *run.Run, row run.Performance, samples run.Samples) plot.StripGroup {
	variant, parent := samples.Steady()
	group := plot.StripGroup{Name: shapeLabel(row.Shape, row.ShapeName)}
	if len(parent) > 0 {
		group.Series = append(group.Series, plot.StripSeries{Name: r.Parent, Kind: plot.Other, Samples: microseconds(parent)})
	}
	group.Series = append(group.Series, plot.StripSeries{Name: r.Variant, Kind: plot.Own, Samples: microseconds(variant)})
	if row.ParentRatio != nil {
		group.Ratio = *row.ParentRatio
	}
	return group
}

func microseconds(seconds []float64) []float64 {
	all := make([]float64, len(seconds))
	for i, s := range seconds {
		all[i] = 1e6 * s
	}
	return all
}

// comparison has the required speedup and the peers.
func (s *RunStudy) comparison(prefix string) Section {
	r, from := s.Run, runRecord(s.Run.ID)
	section := Section{ID: "comparison", Title: say("Comparison"), Depth: Long}
	if r.Speedup != nil && r.Parent != "" {
		text := say("The benchmark shapes are ", s.speedup(), " as fast as with ", from.text(r.Parent, "parent"), ", by the geometric mean.")
		if r.RequiredSpeedup > 0 {
			text = append(text, say(" Required: ", from.figure("%.2f", r.RequiredSpeedup, "required_speedup"), "x, fixed before the run.")...)
		}
		section.Blocks = append(section.Blocks, text)
	}
	if s.Bench != nil {
		section.Blocks = append(section.Blocks, s.peers()...)
	}
	if s.Sweep != nil {
		section.Blocks = append(section.Blocks, sweepBlocks(s.Sweep, r.Variant, prefix)...)
	}
	return section
}

// peers has the variant beside the fastest peer of each number format, by shape.
func (s *RunStudy) peers() []Block {
	b, from := s.Bench, benchRecord(s.Bench.ID)
	t := Table{Columns: columns("shape", "inputs", "us", "fastest peer", "inputs of the peer", "us of the peer", "speedup")}
	for i, row := range b.Rows {
		if row.Peer || row.Name != s.Run.Variant || row.P50US == nil {
			continue
		}
		for _, at := range fastestPeers(b, row.Shape) {
			p := b.Rows[at]
			t.Rows = append(t.Rows, []Text{
				shapeOf(from, row.Shape, row.ShapeName, "rows", i), cell(from.text(row.DType, "rows.%d.dtype", i)),
				append(cell(from.optional("%.2f", row.P50US, "rows.%d.p50_us", i)), approximation(b, row)...),
				cell(from.text(p.Name, "rows.%d.name", at)), cell(from.text(p.DType, "rows.%d.dtype", at)), cell(from.optional("%.2f", p.P50US, "rows.%d.p50_us", at)),
				say(derived("%.2f", *p.P50US / *row.P50US, from.key("rows.%d.p50_us", at)+" / "+from.key("rows.%d.p50_us", i)), "x"),
			})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return []Block{say("Beside other implementations, in bench ", from.code(b.ID, "id"), ". The fastest peer of each number format. ", approximationNote(b)), t}
}

// fastestPeers are the rows of the fastest peer of each number format on a shape.
func fastestPeers(b *run.Bench, shape string) []int {
	var order []string
	best := map[string]int{}
	for i, row := range b.Rows {
		if !row.Peer || row.Shape != shape || row.P50US == nil {
			continue
		}
		at, known := best[row.DType]
		if !known {
			order = append(order, row.DType)
		}
		if !known || *row.P50US < *b.Rows[at].P50US {
			best[row.DType] = i
		}
	}
	var all []int
	for _, dtype := range order {
		all = append(all, best[dtype])
	}
	return all
}

// profile has the counters and the rooflines.
func (s *RunStudy) profile(prefix string) Section {
	section := Section{ID: "profile", Title: say("Profile and roofline"), Depth: Long}
	r, from := s.Run, runRecord(s.Run.ID)
	if len(s.Profiles) == 0 {
		if len(r.Reasons.Profile) > 0 {
			section.Blocks = []Block{say("Not measured: ", from.text(firstLine(r.Reasons.Profile[0]), "reasons.profile.0"), ". Counters come from `attune profile`.")}
		}
		return section
	}
	file := record{s.Profiled + "/profile.json"}
	for i, p := range s.Profiles {
		section.Blocks = append(section.Blocks, say("On ", file.text(p.Shape, "profiles.%d.shape", i), ", run ", runRecord(s.Profiled).code(s.Profiled, "id"), ":"))
		section.Blocks = append(section.Blocks, profileBlocks(r.Variant, p, file, i, fmt.Sprintf("%sroofline-%d", prefix, i))...)
	}
	return section
}
