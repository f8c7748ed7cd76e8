package web

import (
	"context"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/run"
)

// tuningList lists searches.
type tuningList struct {
	Unfinished []catalog.UnfinishedSearch
	Finished   []catalog.TuningEntry
	Damage     []string
}

func (s *Server) tuningList(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	page := tuningList{Finished: l.tunings, Damage: s.records.damageIn(l, tuningFolder)}
	if page.Unfinished, err = catalog.Unfinished(s.config.Ledger); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "tunings", "Tunings", page)
}

// tuningPage is a search: one that runs, or the record of a finished one.
type tuningPage struct {
	*search
	Body   template.HTML // the document of a finished search
	Report bool          // it has one
	Plots  []inlinePlot
}

// Live reports whether the page follows the search.
func (p tuningPage) Live() bool { return p.State == searchRuns }

// CostUnit is the unit of the costs on the page.
func (p tuningPage) CostUnit() string {
	unit, _ := document.CostScale(p.Unit)
	return unit
}

// ObjectiveUnit is the same unit beside the objective.
func (p tuningPage) ObjectiveUnit() string { return document.CostUnit(p.Unit) }

// Cost is a cost in the unit of the page.
func (p tuningPage) Cost(cost *float64) string { return scaledCost(cost, p.Unit) }

// scaledCost is a cost in the unit that it is printed in.
func scaledCost(cost *float64, unit string) string {
	if cost == nil {
		return none
	}
	name, factor := document.CostScale(unit)
	if name == "us" { // as in the document of the search
		return figure(factor**cost, 3, "")
	}
	return number(factor * *cost)
}

func (s *Server) tuningPage(w http.ResponseWriter, r *http.Request) error {
	page, err := s.readTuning(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	part := "layout.html"
	if r.URL.Query().Get("part") == "live" {
		part = "live"
	}
	return s.renderPart(w, r, http.StatusOK, "tuning", part, "Tuning "+shortID(page.ID), page)
}

// readTuning reads a finished search, else one that runs or was interrupted.
func (s *Server) readTuning(ctx context.Context, id string) (tuningPage, error) {
	l, err := s.records.now(ctx)
	if err != nil {
		return tuningPage{}, err
	}
	if slices.ContainsFunc(l.tunings, func(e catalog.TuningEntry) bool { return e.ID == id }) {
		return s.finishedTuning(ctx, id)
	}
	if err := l.reason(tuningFolder, id); err != nil {
		return tuningPage{}, err
	}
	found, err := s.unfinishedSearch(id)
	if err != nil {
		return tuningPage{}, err
	}
	page := tuningPage{search: found}
	if !strings.HasPrefix(found.Name, "selection ") { // the searches of a selection have different shapes
		page.Plots = livePlots(found)
	}
	return page, nil
}

// damagedTuning is the error of a search whose record cannot be read, or nil.
func (s *Server) damagedTuning(ctx context.Context, id string) error {
	l, err := s.records.now(ctx)
	if err != nil {
		return err
	}
	return l.reason(tuningFolder, id)
}

// finishedTuning reads the record of a search.
func (s *Server) finishedTuning(ctx context.Context, id string) (tuningPage, error) {
	text, err := s.config.Ledger.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return tuningPage{}, err
	}
	page := tuningPage{search: &search{ID: id, State: searchFinished}}
	selection, err := run.DecodeSelectionTuning(text)
	if err != nil {
		return page, err
	}
	if t := selection; t != nil {
		page.Name, page.Kernel, page.Objective, page.Unit, page.Device = "selection "+t.Selection, t.Kernel, t.Objective, t.Unit, t.Facts.Name
		page.Body, err = body(document.SelectionTuning(t))
		return page, err
	}
	study, err := s.reader().Tuning(ctx, id)
	if err != nil {
		return page, err
	}
	t := study.Tuning
	page.Report = true
	page.Name, page.Kernel, page.Objective, page.Unit, page.Device = t.Default.Variant, t.Kernel, t.Objective, t.Unit, t.Facts.Name
	page.Strategy, page.Shapes = t.Identity.Strategy, t.Identity.Shapes
	if text, err := s.config.Ledger.ReadTuning(ctx, id, run.TuneJournal); err == nil { // without its journal a record has no evaluations
		j := &journal{}
		page.take(j.parse(text))
	}
	page.Body, err = body(study.Document())
	return page, err
}
