package web

import (
	"html/template"

	"attune/internal/document"
	"attune/internal/run"
)

// inlinePlot is a plot inside a page. The plot escapes every name, so it is safe as it is.
type inlinePlot struct{ SVG template.HTML }

func inline(id string, p document.Plot) inlinePlot {
	return inlinePlot{template.HTML(p.Inline(id))} //nolint:gosec // package plot escapes names
}

// maxPlots limits the plots of a page. The report has all.
const maxPlots = 8

// figures are the plots of a report.
func figures(d *document.Document) []inlinePlot {
	var plots []inlinePlot
	for _, f := range d.Figures() {
		if len(plots) < maxPlots {
			plots = append(plots, inline("plot-"+f.Name, f.Plot))
		}
	}
	return plots
}

// ladderPlots draws the times of the stages.
func ladderPlots(kernel string, runs []*run.Run, approximate document.Approximate) []inlinePlot {
	const least = 2
	if len(runs) < least {
		return nil
	}
	d, err := (&document.LadderStudy{Kernel: kernel, Runs: runs, Approximate: approximate}).Document()
	if err != nil {
		return nil // there are no stages to draw
	}
	plots := figures(d)
	return plots[:min(1, len(plots))]
}

// livePlots draws the course of a search that is not finished.
func livePlots(s *search) []inlinePlot {
	if s.Counted() == 0 {
		return nil
	}
	t := &run.Tuning{Stage: s.Name, Objective: s.Objective, Unit: s.Unit, Identity: run.TuneIdentity{Shapes: s.Shapes}}
	t.Facts.Name = s.Device
	return []inlinePlot{inline("plot-convergence", document.ConvergencePlot(t, s.Evaluations))}
}
