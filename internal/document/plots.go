package document

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"attune/internal/plot"
	"attune/internal/profile"
	"attune/internal/run"
)

// ComparisonPlot has a strip for each series on each shape.
func ComparisonPlot(c *run.Comparison) *plot.Strips {
	p := &plot.Strips{Title: fmt.Sprintf("%s and %s, %s", c.A.Variant, c.B.Variant, cmp.Or(c.Facts.Name, "an unknown device")), Unit: "us", Digits: 4}
	for _, s := range c.Shapes {
		group := plot.StripGroup{Name: s.Shape, Ratio: s.Ratio}
		for _, series := range seriesOf(c, s) {
			name := series.variant
			if series.key == "control" {
				name += ", control"
			}
			group.Series = append(group.Series, plot.StripSeries{Name: name, Kind: series.kind, Samples: microseconds(series.samples)})
		}
		p.Groups = append(p.Groups, group)
	}
	return p
}

// RooflinePlot has the point of one launch. The profile must have a roofline.
func RooflinePlot(variant string, p *profile.Profile) *plot.Roofline {
	r := p.Roofline
	figure := &plot.Roofline{
		Title:  fmt.Sprintf("%s on %s, %s", variant, p.Shape, r.Device),
		Memory: plot.Ceiling{Name: r.Memory.Name, Basis: r.Memory.Basis, PerSecond: r.Memory.PerSecond},
		Points: []plot.RooflinePoint{{Name: variant, Intensity: r.Point.Intensity, PerSecond: r.Point.PerSecond}},
	}
	for _, c := range r.Compute {
		figure.Compute = append(figure.Compute, plot.Ceiling{Name: c.Name, Basis: c.Basis, PerSecond: c.PerSecond})
	}
	return figure
}

// ConvergencePlot is the course of a search. Variants whose machine code was evaluated before are
// left out, as in the budget.
func ConvergencePlot(t *run.Tuning, evaluations []run.TuneEvaluation) *plot.Convergence {
	unit, factor := CostScale(t.Unit)
	c := &plot.Convergence{
		Title:     fmt.Sprintf("%s on %s, %s", t.Stage, strings.Join(t.Identity.Shapes, ", "), t.Facts.Name),
		Objective: t.Objective, Unit: unit, Reference: math.NaN(), ReferenceName: "default",
	}
	if t.Simulated() {
		c.Objective = "simulated cost"
	}
	for i, e := range evaluations {
		if e.SameAs != "" {
			continue
		}
		value := math.NaN()
		if e.Cost != nil {
			value = factor * *e.Cost
		}
		if i == 0 {
			c.Reference = value
		}
		c.Values = append(c.Values, value)
	}
	return c
}

// Approximate reports whether the kernel of a row computes exponentials so that the error is larger
// than what E4M3 rounds away. Figures of such rows are marked.
func ApproximateRow(b *run.Bench, row run.BenchRow) bool {
	return BenchExponentials(b, row) == LinearExponentials
}

// ApproximateKnobs reports the same of a build of the attention kernel.
func ApproximateKnobs(knobs map[string]int) bool { return ExponentialsOf(knobs) == LinearExponentials }
