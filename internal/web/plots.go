package web

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"attune/internal/gate"
	"attune/internal/plot"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/tune"
)

// inlinePlot is a plot inside a page, with its finding as the caption. The plot escapes every name,
// so it is safe as it is.
type inlinePlot struct {
	SVG     template.HTML
	Finding string
}

// drawing is a plot of package plot.
type drawing interface {
	Inline(id string) []byte
	Finding() string
}

func inline(id string, d drawing) inlinePlot {
	return inlinePlot{template.HTML(d.Inline(id)), d.Finding()} //nolint:gosec // package plot escapes names
}

const microsecondsPerSecond = 1e6

// ladderPlot draws the headline times of the stages that were timed on the shape of the first.
func ladderPlot(runs []*run.Run, champions report.Champions) inlinePlot {
	l := &plot.Ladder{Unit: "us"}
	shape := ""
	for _, r := range runs {
		if r.Headline == nil || shape != "" && r.Headline.Shape != shape {
			continue
		}
		shape = r.Headline.Shape
		step := plot.Step{Name: r.Variant, Value: r.Headline.P50US, Outcome: plot.Open}
		switch {
		case r.Verdict == gate.Merge || champions[r.ID] != "":
			step.Outcome = plot.Accepted
		case r.Verdict == gate.ValidNegative:
			step.Outcome = plot.Rejected
		}
		l.Steps = append(l.Steps, step)
	}
	if len(l.Steps) < 2 {
		return inlinePlot{}
	}
	l.Title = "Time of each stage on " + shape
	return inline("ladder", l)
}

// maxGroups limits the shapes of a strip plot.
const maxGroups = 6

// runPlots draws the samples on the benchmark shapes, and the errors of the outputs.
func runPlots(r *run.Run) []inlinePlot {
	strips := &plot.Strips{Title: "Samples of " + r.Variant, Unit: "us"}
	for _, p := range r.Performance {
		i := slices.IndexFunc(r.Samples, func(s run.Samples) bool { return s.Shape == p.Shape })
		if !p.Benchmark || i < 0 || len(strips.Groups) == maxGroups {
			continue
		}
		group := plot.StripGroup{Name: p.Shape}
		variant, parent := r.Samples[i].Steady()
		if len(parent) > 0 {
			group.Series = append(group.Series, plot.StripSeries{Name: r.Parent, Kind: plot.Other, Samples: scaled(parent)})
		}
		group.Series = append(group.Series, plot.StripSeries{Name: r.Variant, Kind: plot.Own, Samples: scaled(variant)})
		strips.Groups = append(strips.Groups, group)
	}
	var plots []inlinePlot
	if len(strips.Groups) > 0 {
		plots = append(plots, inline("samples", strips))
	}
	if e := errorPlot(r); e != nil {
		plots = append(plots, inline("errors", e))
	}
	return plots
}

// errorPlot draws the largest errors of attention as shares of their limits. A declared problem has a
// limit for each element, so its errors have no such share.
func errorPlot(r *run.Run) *plot.Errors {
	e := &plot.Errors{Title: "Largest errors of " + r.Variant, Error: "largest error"}
	at := map[string]int{}
	for _, c := range r.Correctness {
		if c.Limits.MaxErr <= 0 {
			continue
		}
		i, known := at[c.Shape]
		if !known {
			if len(e.Rows) == maxShapes {
				continue
			}
			i = len(e.Rows)
			at[c.Shape] = i
			e.Rows = append(e.Rows, plot.ErrorRow{Name: c.Shape})
		}
		e.Rows[i].Shares = append(e.Rows[i].Shares, c.MaxErr/c.Limits.MaxErr)
	}
	if len(e.Rows) == 0 {
		return nil
	}
	return e
}

func scaled(seconds []float64) []float64 {
	us := make([]float64, len(seconds))
	for i, s := range seconds {
		us[i] = s * microsecondsPerSecond
	}
	return us
}

// comparePlots draws the samples of both runs.
func comparePlots(c *run.Comparison) []inlinePlot {
	a, b := c.A.Variant, c.B.Variant
	if a == b {
		a, b = a+" (A)", b+" (B)"
	}
	strips := &plot.Strips{Title: fmt.Sprintf("Samples of %s and %s", a, b), Unit: "us"}
	for _, s := range c.Shapes[:min(len(c.Shapes), maxGroups)] {
		strips.Groups = append(strips.Groups, plot.StripGroup{Name: s.Shape, Series: []plot.StripSeries{
			{Name: a, Kind: plot.Other, Samples: scaled(s.Samples.A)},
			{Name: b, Kind: plot.Own, Samples: scaled(s.Samples.B)},
		}})
	}
	return []inlinePlot{inline("samples", strips)}
}

// benchPlots draws throughput against sequence length, one plot for each family of shapes that
// differ in their length alone.
func benchPlots(b *run.Bench) []inlinePlot {
	families := map[string]*plot.Lines{}
	var order []string
	for _, row := range b.Rows {
		family, length, ok := lengthOf(row.Shape)
		if !ok || row.TFLOPS == nil || len(order) > maxGroups {
			continue
		}
		l := families[family]
		if l == nil {
			l = &plot.Lines{Title: "Throughput against sequence length, " + family, X: "sequence length", Y: "throughput", Unit: "TFLOP/s"}
			families[family] = l
			order = append(order, family)
		}
		name := row.Name + " " + row.DType
		i := slices.IndexFunc(l.Series, func(s plot.LineSeries) bool { return s.Name == name })
		if i < 0 {
			i = len(l.Series)
			l.Series = append(l.Series, plot.LineSeries{Name: name, Peer: row.Peer})
		}
		l.Series[i].Points = append(l.Series[i].Points, plot.LinePoint{X: length, Y: *row.TFLOPS})
	}
	var plots []inlinePlot
	for i, family := range order {
		if l := families[family]; len(l.Series[0].Points) > 1 {
			plots = append(plots, inline("throughput"+strconv.Itoa(i), l))
		}
	}
	return plots
}

// lengthOf splits a shape of attention, such as 1x16x4096x128:causal, into its length and the rest.
func lengthOf(shape string) (family string, length float64, ok bool) {
	sizes, flags, _ := strings.Cut(shape, ":")
	parts := strings.Split(sizes, "x")
	const rows = 2
	if len(parts) != 4 {
		return "", 0, false
	}
	length, err := strconv.ParseFloat(parts[rows], 64)
	parts[rows] = "N"
	family = strings.Join(parts, "x")
	if flags != "" {
		family += ":" + flags
	}
	return family, length, err == nil && length > 0
}

// convergence is the course of a search.
func convergence(title, objective, unit string, evaluations []run.TuneEvaluation) inlinePlot {
	unit, factor := report.CostScale(unit)
	c := &plot.Convergence{Title: title, Objective: objective, Unit: unit, Reference: math.NaN(), ReferenceName: "default"}
	if objective == run.ObjectiveCost {
		c.Objective = "simulated cost"
	}
	for i, e := range evaluations {
		if e.SameAs != "" { // not counted against the budget either
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
	if len(c.Values) == 0 {
		return inlinePlot{}
	}
	return inline("convergence", c)
}

// effectPlot draws the median cost of each value of each knob over the best of the search.
func effectPlot(effects []tune.KnobEffect) inlinePlot {
	h := &plot.HeatMap{Title: "Cost of each value of each knob", Value: "median cost over the best"}
	for _, e := range effects[:min(len(effects), 20)] {
		row := plot.HeatRow{Name: e.Knob}
		for _, v := range e.Values {
			cell := plot.HeatCell{Label: fmt.Sprint(v.Value), Value: math.NaN()}
			if v.Median != nil {
				cell.Value = *v.Median
			}
			row.Cells = append(row.Cells, cell)
		}
		h.Rows = append(h.Rows, row)
	}
	if len(h.Rows) == 0 {
		return inlinePlot{}
	}
	return inline("effects", h)
}
