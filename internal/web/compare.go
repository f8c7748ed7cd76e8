package web

import (
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
)

// comparePage compares two recorded runs.
type comparePage struct {
	A, B    string // ids
	Shapes  string
	All     bool // on all common shapes
	Entries []ledger.Entry
	Found   *run.Comparison
	Body    template.HTML
	Problem string
}

func (s *Server) comparePage(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	q := r.URL.Query()
	page := comparePage{A: q.Get("a"), B: q.Get("b"), Shapes: q.Get("shapes")}
	for _, e := range l.entries {
		if e.Headline.P50US != nil && len(page.Entries) < pageRows {
			page.Entries = append(page.Entries, e)
		}
	}
	if page.A == "" && page.B == "" {
		return s.render(w, r, http.StatusOK, "compare", "Compare", page)
	}
	whole, err := s.wholeIDs(r.Context(), q)
	if err != nil {
		page.Problem = err.Error()
		return s.render(w, r, statusOf(err), "compare", "Compare", page)
	}
	if whole.Get("a") != page.A || whole.Get("b") != page.B {
		http.Redirect(w, r, "/compare?"+whole.Encode(), http.StatusSeeOther)
		return nil
	}
	page.Found, page.All, err = s.compared(r.Context(), page.A, page.B, page.Shapes)
	if err != nil {
		page.Problem = err.Error()
		return s.render(w, r, statusOf(err), "compare", "Compare", page)
	}
	if page.Body, err = body(document.Comparison(page.Found, "")); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "compare", "Compare", page)
}

// wholeIDs are the parameters of a comparison with whole ids.
func (s *Server) wholeIDs(ctx context.Context, q url.Values) (url.Values, error) {
	whole := maps.Clone(q)
	for _, key := range []string{"a", "b"} {
		id, err := s.resolve(ctx, runFolder, q.Get(key))
		if err != nil {
			return nil, err
		}
		whole.Set(key, id)
	}
	return whole, nil
}

// compared compares two runs by their recorded samples.
func (s *Server) compared(ctx context.Context, a, b, shapes string) (c *run.Comparison, all bool, err error) {
	var runs [2]*run.Run
	for i, id := range []string{a, b} {
		if runs[i], err = s.records.withSamples(ctx, id); err != nil {
			return nil, false, err
		}
	}
	if runs[0].Kernel != runs[1].Kernel {
		return nil, false, failure(http.StatusBadRequest, "run %s is of the kernel %s and run %s of %s; only runs of one kernel can be compared",
			a, clip(runs[0].Kernel, 80), b, clip(runs[1].Kernel, 80))
	}
	var names []string
	kernel, _, err := s.config.Kernel()
	switch {
	case err == nil && kernel.Name == runs[0].Kernel:
		if names, err = catalog.RecordedShapes(kernel, shapes); err != nil {
			return nil, false, failure(http.StatusBadRequest, "%v", err)
		}
	case shapes != "" && shapes != catalog.AllShapes:
		names = []string{shapes} // the names of another kernel are not known here
	}
	c, all, err = catalog.Compare(runs[0], runs[1], names, shapes == "")
	if err != nil {
		err = failure(http.StatusBadRequest, "%v", err)
	}
	return c, all, err
}
