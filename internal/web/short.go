package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"attune/internal/ledger"
)

// wholeID redirects an address with an unambiguous start or end of a record's id to the whole id.
func (s *Server) wholeID(folder string, next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		given := r.PathValue("id")
		id, err := s.resolve(r.Context(), folder, given)
		if err != nil {
			return err
		}
		if id == given {
			return next(w, r)
		}
		rest := strings.TrimPrefix(r.URL.Path, "/"+folder+"/"+given)
		to := url.URL{Path: "/" + folder + "/" + id + rest, RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusSeeOther)
		return nil
	}
}

// resolve returns the id that a text is an unambiguous start or end of. A text that matches no id is
// returned as it is: the page says why it has no record. It accepts what `attune show` accepts.
func (s *Server) resolve(ctx context.Context, folder, text string) (string, error) {
	l, err := s.records.now(ctx)
	if err != nil {
		return "", err
	}
	if _, known := l.at[text]; known && folder == runFolder || text == "" {
		return text, nil
	}
	ids, err := s.ids(l, folder)
	if err != nil || slices.Contains(ids, text) {
		return text, err
	}
	matches := slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, text) && !strings.HasSuffix(id, text) })
	switch len(matches) {
	case 0:
		return text, nil
	case 1:
		return matches[0], nil
	}
	return "", ambiguous(folder, text, matches)
}

// ambiguous is the error of a text that several ids start or end with.
func ambiguous(folder, text string, matches []string) error {
	const show = 6
	more := ""
	if len(matches) > show {
		more = ", and others"
	}
	return failure(http.StatusNotFound, "%q is ambiguous in /%s; it may be %s%s", clip(text, 80), folder, strings.Join(matches[:min(len(matches), show)], ", "), more)
}

// ids are the ids of the records of a folder, damaged ones too.
func (s *Server) ids(l *lists, folder string) (ids []string, err error) {
	switch folder {
	case runFolder:
		ids = entryIDs(l.entries)
	case benchFolder:
		for _, b := range l.benches {
			ids = append(ids, b.ID)
		}
	case tuningFolder:
		if ids, err = s.config.Ledger.UnfinishedTunings(); err != nil {
			return nil, err
		}
		for _, e := range l.tunings {
			ids = append(ids, e.ID)
		}
	}
	for _, d := range l.damage {
		if d.folder == folder {
			ids = append(ids, d.id)
		}
	}
	return ids, nil
}

func entryIDs(entries []ledger.Entry) []string {
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}
