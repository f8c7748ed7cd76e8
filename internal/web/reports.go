package web

import (
	"html/template"
	"net/http"

	"attune/internal/document"
)

// reportPage is the report of a record, as `attune report` writes it.
type reportPage struct {
	Body template.HTML
	Back string // address of the record's page
	Name string

	Damage []string // why there is no body; none if nothing was recorded
}

// renderReport writes a report into a page.
func (s *Server) renderReport(w http.ResponseWriter, r *http.Request, d *document.Document, back, name string) error {
	const rows, text = 2000, 2000 // so that no record makes a page that a browser cannot show
	body, err := d.WithoutDetails().Bounded(rows, text).Body()
	if err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "report", d.Title.String(), reportPage{Body: body, Back: back, Name: name})
}

func (s *Server) runReport(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := s.records.run(r.Context(), id); err != nil {
		return err
	}
	study, err := s.reader().Run(r.Context(), id)
	if err != nil {
		return err
	}
	return s.renderReport(w, r, study.Document(), "/runs/"+id, "run "+shortID(id))
}

func (s *Server) benchReport(w http.ResponseWriter, r *http.Request) error {
	b, err := s.records.bench(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	study, err := s.reader().Bench(r.Context(), b.ID)
	if err != nil {
		return err
	}
	return s.renderReport(w, r, study.Document(), "/benches/"+b.ID, "bench "+shortID(b.ID))
}

func (s *Server) tuningReport(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	finished, err := s.isFinished(id)
	if err != nil {
		return err
	}
	if !finished {
		return failure(http.StatusNotFound, "no finished search %q; /tunings lists them", clip(id, 80))
	}
	if err := s.damagedTuning(r.Context(), id); err != nil {
		return err
	}
	d, err := s.reader().TuningDocument(r.Context(), id)
	if err != nil {
		return failure(http.StatusNotFound, "%v", err)
	}
	return s.renderReport(w, r, d, "/tunings/"+id, "tuning "+shortID(id))
}

// ladderReport is the report on all stages.
func (s *Server) ladderReport(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	kernel, _, err := s.config.Kernel()
	if err != nil {
		return err
	}
	if len(l.ladder) == 0 {
		return s.render(w, r, http.StatusOK, "report", "Ladder", reportPage{Back: "/", Name: "the overview", Damage: s.records.damageIn(l, runFolder)})
	}
	d, err := (&document.LadderStudy{Kernel: kernel.Name, Runs: l.ladder, Approximate: l.linear}).Document()
	if err != nil {
		return failure(http.StatusNotFound, "%v on a GPU", err)
	}
	return s.renderReport(w, r, d, "/", "the overview")
}

// reader reads records for reports, whose commands work as printed.
func (s *Server) reader() document.Reader {
	return document.Reader{Ledger: s.config.Ledger, Commands: s.config.Commands}
}
