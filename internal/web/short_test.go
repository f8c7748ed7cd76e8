package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestShortIDs opens pages by a part of an id.
func TestShortIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	kept := published(t)
	s := newServer(t, kept)
	search, _, unlock := runningSearch(t, kept)
	defer unlock()
	const a, b = "20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef"
	for path, want := range map[string]string{
		"/runs/448d06":                          "/runs/" + a,
		"/runs/20261116-160615":                 "/runs/" + a,
		"/runs/448d06/report":                   "/runs/" + a + "/report",
		"/benches/6be430":                       "/benches/20261116-221937-bench-6be430",
		"/benches/6be430/report":                "/benches/20261116-221937-bench-6be430/report",
		"/tunings/64bd56":                       "/tunings/20261117-075034-rmsnorm-64bd56",
		"/tunings/64bd56?part=live":             "/tunings/20261117-075034-rmsnorm-64bd56?part=live",
		"/tunings/" + shortID(search):           "/tunings/" + search,
		"/compare?a=448d06&b=64f3ef&shapes=all": "/compare?a=" + a + "&b=" + b + "&shapes=all",
		"/compare?a=" + a + "&b=64f3ef":         "/compare?a=" + a + "&b=" + b,
	} {
		w := get(s, path)
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != want {
			t.Errorf("%s: status %d to %q, want %q", path, w.Code, to, want)
		} else if w := get(s, to); w.Code != http.StatusOK {
			t.Errorf("%s: status %d: %s", to, w.Code, alert(w.Body.String()))
		}
	}
	for _, path := range []string{"/runs/20261116-1606", "/runs/20261116-1606/report", "/compare?a=20261116-1606&b=64f3ef"} {
		w := get(s, path)
		if body := w.Body.String(); w.Code != http.StatusNotFound || !strings.Contains(body, "ambiguous") || !strings.Contains(body, a) {
			t.Errorf("%s: status %d without candidates: %s", path, w.Code, alert(body))
		}
	}
}
