package web

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"attune/internal/catalog"
	"attune/internal/gate"
	"attune/internal/run"
)

// apiDescription is the OpenAPI document.
func (s *Server) apiDescription(w http.ResponseWriter, _ *http.Request) error {
	writeDocument(w, http.StatusOK, s.assets["openapi.json"].data)
	return nil
}

// apiRuns is the document of `attune history --json`, with its filters.
func (s *Server) apiRuns(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if err := checkRunQuery(q); err != nil {
		return err
	}
	f := newFilter(q)
	entries, tunings := f.selected(l), f.searches(l.tunings)
	if text := q.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return failure(http.StatusBadRequest, "limit %q: want a number above 0", clip(text, 40))
		}
		entries, tunings = entries[:min(limit, len(entries))], tunings[:min(limit, len(tunings))]
	}
	unfinished, err := catalog.Unfinished(s.config.Ledger)
	if err != nil {
		return err
	}
	if f.Text != "" || f.Arch != "" { // filters of runs
		unfinished = nil
	}
	writeJSON(w, http.StatusOK, catalog.NewHistory(entries, l.marked, tunings, catalog.PassingUnfinished(f.ofLedger(), unfinished)))
	return nil
}

// runParameters are the parameters of the list of runs.
var runParameters = []string{"q", "kernel", "variant", "stage", "device", "arch", "verdict", "limit"}

// checkRunQuery refuses what `attune history` refuses: a misspelt filter would match every run, or
// none.
func checkRunQuery(q url.Values) error {
	if err := checkParameters(q, runParameters...); err != nil {
		return err
	}
	return checkVerdict(q)
}

// checkVerdict refuses an unknown verdict.
func checkVerdict(q url.Values) error {
	if v := gate.Verdict(q.Get("verdict")); v != "" && !slices.Contains(gate.Verdicts, v) {
		return failure(http.StatusBadRequest, "verdict %q: there are %s", clip(string(v), 40), joined(gate.Verdicts))
	}
	return nil
}

// checkParameters refuses parameters of an address that are unknown.
func checkParameters(q url.Values, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(known, name) {
			return failure(http.StatusBadRequest, "unknown parameter %q: there are %s", clip(name, 40), joined(known))
		}
	}
	return nil
}

// joined lists names with commas.
func joined[T ~string](names []T) string {
	var texts []string
	for _, n := range names {
		texts = append(texts, string(n))
	}
	return strings.Join(texts, ", ")
}

// apiRun is the document of `attune show RUN --json`.
func (s *Server) apiRun(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := s.records.run(r.Context(), id); err != nil {
		return err
	}
	return s.writeFile(w)(s.config.Ledger.Read(r.Context(), id, catalog.RunFile))
}

// writeFile answers with a document of a record as it was written.
func (s *Server) writeFile(w http.ResponseWriter) func(text []byte, err error) error {
	return func(text []byte, err error) error {
		if err == nil {
			writeDocument(w, http.StatusOK, text)
		}
		return err
	}
}

// apiLadder is the document of `attune history --ladder --json`.
func (s *Server) apiLadder(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"schema_version": 1, "runs": append([]*run.Run{}, l.ladder...)})
	return nil
}

// apiChampions is the document of `attune list champions --json`.
func (s *Server) apiChampions(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, l.champions)
	return nil
}

// apiCompare is the document of `attune compare RUN RUN --json`.
func (s *Server) apiCompare(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if err := checkParameters(q, "a", "b", "shapes"); err != nil {
		return err
	}
	if q.Get("a") == "" || q.Get("b") == "" {
		return failure(http.StatusBadRequest, "give the ids of two runs: /api/compare?a=ID&b=ID")
	}
	c, _, err := s.compared(r.Context(), q.Get("a"), q.Get("b"), q.Get("shapes"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, catalog.NewComparison(c))
	return nil
}

// apiBenches lists the ids of the benches, the newest first.
func (s *Server) apiBenches(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	ids := []string{}
	for _, b := range l.benches {
		ids = append(ids, b.ID)
	}
	writeJSON(w, http.StatusOK, map[string]any{"schema_version": 1, "benches": ids})
	return nil
}

// apiBench is the document of `attune show BENCH --json`.
func (s *Server) apiBench(w http.ResponseWriter, r *http.Request) error {
	b, err := s.records.bench(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.writeFile(w)(s.config.Ledger.ReadBench(r.Context(), b.ID, catalog.BenchFile))
}

// apiTunings lists the searches as `attune history --json` does.
func (s *Server) apiTunings(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	unfinished, err := catalog.Unfinished(s.config.Ledger)
	if err != nil {
		return err
	}
	h := catalog.NewHistory(nil, nil, l.tunings, unfinished)
	writeJSON(w, http.StatusOK, map[string]any{"schema_version": 1, "tunings": h.Tunings, "unfinished_tunings": h.Unfinished})
	return nil
}

// apiTuning is the document of `attune show TUNING --json`. A search that is not finished has its
// elites so far.
func (s *Server) apiTuning(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	finished, err := s.isFinished(id)
	if err != nil {
		return err
	}
	if err := s.damagedTuning(r.Context(), id); err != nil {
		return err
	}
	if finished {
		return s.writeFile(w)(s.config.Ledger.ReadTuning(r.Context(), id, run.TuningFile))
	}
	if _, err := s.unfinishedSearch(id); err != nil {
		return err
	}
	elites, ok := readElites(s.config.Ledger.TuningFolder(id))
	if !ok {
		return failure(http.StatusNotFound, "the search %s has no result yet", id)
	}
	writeJSON(w, http.StatusOK, elites)
	return nil
}

// apiStart starts a run. The answer is the job.
func (s *Server) apiStart(w http.ResponseWriter, r *http.Request) error {
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		return failure(http.StatusUnsupportedMediaType, "the body must be application/json, and it is %q", clip(kind, 60))
	}
	var request StartRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return failure(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return failure(http.StatusBadRequest, "the body has more than one document")
	}
	started, err := s.jobs.start(request)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/jobs/"+strconv.Itoa(started.Number))
	writeJSON(w, http.StatusAccepted, started)
	return nil
}

func (s *Server) apiJobs(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"schema_version": 1, "jobs": s.jobs.list()})
	return nil
}

func (s *Server) apiJob(w http.ResponseWriter, r *http.Request) error {
	number, err := jobNumber(r)
	if err != nil {
		return err
	}
	now, _, err := s.jobs.get(number)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, now)
	return nil
}

// apiCancel interrupts a job.
func (s *Server) apiCancel(w http.ResponseWriter, r *http.Request) error {
	number, err := jobNumber(r)
	if err != nil {
		return err
	}
	now, err := s.jobs.cancel(number)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, now)
	return nil
}
