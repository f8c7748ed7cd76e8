package web

import (
	"html/template"
	"net/http"

	"attune/internal/document"
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

// benchPage is one bench: its document, and where to go from there.
type benchPage struct {
	ID   string
	Body template.HTML
}

func (s *Server) benchPage(w http.ResponseWriter, r *http.Request) error {
	b, err := s.records.bench(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	page := benchPage{ID: b.ID}
	if page.Body, err = body((&document.BenchStudy{Bench: b, Commands: s.config.Commands}).Document()); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "bench", "Bench "+shortID(b.ID), page)
}
