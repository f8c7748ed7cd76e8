package web

import (
	"net/http"
	"slices"

	"attune/internal/document"
	"attune/internal/measure"
	"attune/internal/run"
)

// benchList lists the benches.
type benchList struct {
	Benches []*run.Bench
	Damage  []string
}

func (s *Server) benchList(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "benches", "Benches", benchList{l.benches, s.records.damageIn(l, benchFolder)})
}

// benchPage is one bench, shape by shape.
type benchPage struct {
	*run.Bench
	Shapes  []benchShape
	More    int // shapes that are not shown
	Skipped []string
	Plots   []inlinePlot
}

// benchShape is the rows of one shape.
type benchShape struct {
	Name string
	Rows []benchRow
	Best *bestRow
}

// benchRow is an implementation on a shape.
type benchRow struct {
	run.BenchRow
	Linear bool // its exponentials are approximate
}

// OverallSpeedup is the geometric mean over the shapes.
func (p benchPage) OverallSpeedup() *measure.Speedup {
	overall := p.Overall()
	return &overall
}

// bestRow is the best variant beside the best peer.
type bestRow struct {
	*run.BestRow
	Linear bool // the variant's exponentials are approximate
}

// SpeedupOf is the speedup for a template, which takes pointers.
func (b bestRow) SpeedupOf() *measure.Speedup { return &b.Speedup }

// maxShapes limits the shapes of a page.
const maxShapes = 60

func (s *Server) benchPage(w http.ResponseWriter, r *http.Request) error {
	b, err := s.records.bench(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	page := benchPage{Bench: b, Shapes: shapesOf(b), Skipped: document.SkippedLines(b.Skipped), Plots: benchPlots(b)}
	page.More = max(0, len(page.Shapes)-maxShapes)
	page.Shapes = page.Shapes[:len(page.Shapes)-page.More]
	return s.render(w, r, http.StatusOK, "bench", "Bench "+shortID(b.ID), page)
}

// shapesOf groups the rows of a bench by shape, in their order.
func shapesOf(b *run.Bench) []benchShape {
	var shapes []benchShape
	at := map[string]int{}
	for _, row := range b.Rows {
		i, known := at[row.Shape]
		if !known {
			i = len(shapes)
			at[row.Shape] = i
			shapes = append(shapes, benchShape{Name: row.Shape})
		}
		shapes[i].Rows = append(shapes[i].Rows, benchRow{row, document.ApproximateRow(b, row)})
	}
	for i, best := range b.Best {
		if at, known := at[best.Shape]; known {
			of := slices.IndexFunc(shapes[at].Rows, func(r benchRow) bool { return r.Name == best.Variant })
			shapes[at].Best = &bestRow{&b.Best[i], of >= 0 && shapes[at].Rows[of].Linear}
		}
	}
	return shapes
}
