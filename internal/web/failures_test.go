package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/document"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
)

// everyGet are the addresses of all routes, with ids that the published ledger has.
func everyGet(s *Server) []string {
	var paths []string
	for pattern := range s.routes() {
		method, path, ok := strings.Cut(pattern, " ")
		if !ok || method != "GET" || strings.HasPrefix(path, "/assets") || path == "/favicon.ico" || path == "/api/openapi.json" || strings.HasPrefix(path, "/api/jobs") {
			continue // they need no ledger
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/api"), "/"), "/")
		id := map[string]string{"runs": "20261116-160615-stage2-448d06", "benches": "20261116-221937-bench-6be430", "tunings": "20261117-075034-rmsnorm-64bd56"}[kind]
		path = strings.NewReplacer("{$}", "", "{id}", id).Replace(path)
		if strings.HasSuffix(path, "/compare") {
			path += "?a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef"
		}
		paths = append(paths, path)
	}
	return paths
}

// TestBrokenLedger reads a ledger whose folders are files: each page says why it has nothing.
func TestBrokenLedger(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"runs", "benches", "tunings", "tuning"} {
		dir := t.TempDir()
		s := newServer(t, openLedger(t, dir))
		writeFile(t, filepath.Join(dir, kind), []byte("no folder"))
		failed := 0
		for _, path := range everyGet(s) {
			w := get(s, path)
			if w.Code == http.StatusOK {
				continue // the form to start a run needs no ledger
			}
			failed++
			if w.Code != http.StatusInternalServerError && w.Code != http.StatusNotFound && w.Code != http.StatusBadRequest || w.Body.Len() < 20 {
				t.Errorf("%s is a file: %s: status %d: %s", kind, path, w.Code, w.Body)
			}
		}
		if failed < 8 {
			t.Errorf("%s is a file, and only %d pages fail", kind, failed)
		}
	}
}

// TestBrokenKernel shows the records of a kernel whose kernel.toml is wrong.
func TestBrokenKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	s := newServer(t, published(t), func(c *Config) {
		c.Kernel = func() (*spec.Kernel, fs.FS, error) { return nil, nil, errors.New("kernel.toml:3: wrong") }
	})
	for _, path := range []string{"/kernel", "/knobs", "/start", "/ladder"} {
		if w := get(s, path); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "kernel.toml:3: wrong") {
			t.Errorf("%s: status %d: %s", path, w.Code, alert(w.Body.String()))
		}
	}
	for path, want := range map[string]string{
		"/": "kernel.toml:3: wrong", "/runs": "stage2",
		"/compare?a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef":                   "2.6",
		"/compare?shapes=1x8x512x64&a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef": "2.7",
	} {
		if w := get(s, path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d without %q: %s", path, w.Code, want, alert(w.Body.String()))
		}
	}
}

// TestPanicIsAnAnswer answers a request whose handler panics, and reports it.
func TestPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	var report bytes.Buffer
	s := newServer(t, openLedger(t, t.TempDir()), func(c *Config) {
		c.Kernel = func() (*spec.Kernel, fs.FS, error) { panic("out of order") }
		c.Errors = log.New(&report, "", 0)
	})
	w := get(s, "/knobs")
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "out of order") || !strings.Contains(report.String(), "goroutine") {
		t.Errorf("status %d: %s; report %q", w.Code, alert(w.Body.String()), report.String())
	}
}

// TestServerEnds serves until its context ends, and with it an event stream; then it fails on a closed
// listener.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	kept := published(t)
	_, _, unlock := runningSearch(t, kept)
	defer unlock()
	s := newServer(t, kept)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	ids, err := kept.UnfinishedTunings()
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	response, err := http.Get("http://" + listener.Addr().String() + "/api/tunings/" + ids[0] + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not end")
	}
	if text, err := io.ReadAll(response.Body); err != nil || !strings.HasPrefix(string(text), "retry:") {
		t.Errorf("the stream: %q, %v", text, err)
	}
	s.Close() // a second time does nothing
	if err := newServer(t, kept).Serve(t.Context(), listener); err == nil {
		t.Error("a closed listener is no error")
	}
}

// TestFindingsOnLines records findings of the simulator, and finds them on the lines of the source.
func TestFindingsOnLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	finding := `{"kind":"race","text":"race at ladder/sdpa.cu:34 (ptx:9) with ladder/sdpa.cu:35 (ptx:12) (7 times): nothing orders the two","file":"ladder/sdpa.cu","line":34}`
	for i, findings := range []string{"", `"findings":[` + finding + `],"notes":[{"kind":"unordered-sums","text":"sums","file":"","line":0}],`} {
		id := fmt.Sprintf("20261117-05000%d-stage2-00000%d", i, i)
		correctness := "[]"
		if findings != "" {
			correctness = `[{"shape":"1x2x33x64","seed":0,` + findings + `"pass":false},{"shape":"1x2x33x64","seed":1,` + findings + `"pass":false}]`
		}
		plantFiles(t, filepath.Join(dir, "runs", id), map[string][]byte{"run.json": fmt.Appendf(nil,
			`{"schema_version":1,"id":%q,"time":"2026-11-17T05:00:0%dZ","kernel":"sdpa","variant":"stage2","device":"sim","arch":"sm_90a","verdict":"incorrect","build":{"source_sha256":"x"},"correctness":%s,"gates":{"correctness":"fail"}}`,
			id, i, correctness)})
	}
	s := newServer(t, openLedger(t, dir))
	page := get(s, "/kernel?variant=stage2&arch=sm_90a&file=ladder/sdpa.cu&line=34").Body.String()
	for _, want := range []string{"Findings of", "lines may have moved", `file=ladder%2Fsdpa.cu&amp;line=35`, `<tr id="L34" class="chosen">`, "PTX of line 34"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the kernel lacks %q", want)
		}
	}
	if n := strings.Count(page, `<div class="finding">`); n != 2 {
		t.Errorf("%d lines are marked, want 2", n)
	}
	run := get(s, "/runs/20261117-050001-stage2-000001").Body.String()
	if !strings.Contains(run, "1x2x33x64 seed 0 and 1 more") || !strings.Contains(run, "unordered-sums") {
		t.Error("the page of the run does not list its findings")
	}
}

// TestPager turns the pages of a list.
func TestPager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, 2*pageRows+5)
	s := newServer(t, openLedger(t, dir))
	for page, want := range map[string][]string{
		"1": {"1 to 100 of 205", "page=2"}, "2": {"101 to 200 of 205", "page=1", "page=3"}, "3": {"201 to 205 of 205", "page=2"}, "x": {"1 to 100"}, "99": {"201 to 205"},
	} {
		body := get(s, "/runs?page="+page).Body.String()
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("page %s lacks %q", page, text)
			}
		}
	}
	if body := get(s, "/runs?q=nothing").Body.String(); !strings.Contains(body, "None of the 205 runs match") {
		t.Error("a filter that matches nothing does not say so")
	}
}

// TestCancelByAPI cancels a job that a client follows.
func TestCancelByAPI(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()), withChild(t, "wait"))
	do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, signedIn...)
	for range 500 {
		if j, _, _ := s.jobs.get(1); len(j.Messages) > 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if page := get(s, "/start", "Cookie", tokenCookie+"="+testToken).Body.String(); !strings.Contains(page, `value="25"`) || !strings.Contains(page, "Cancel job 1") || !strings.Contains(page, `data-events="/api/jobs/1/events"`) {
		t.Errorf("the page of a running job: %s", page)
	}
	if page := get(s, "/").Body.String(); !strings.Contains(page, "Job 1</a> runs") {
		t.Error("the overview does not show the job")
	}
	time.AfterFunc(100*time.Millisecond, func() { do(s, http.MethodDelete, "/api/jobs/1", "", signedIn...) })
	events := readEvents(get(s, "/api/jobs/1/events").Body.String())
	if last := events[len(events)-1]; last.name != "done" || !strings.Contains(last.data, jobCancelled) {
		t.Errorf("the last event is %+v", last)
	}
	if page := get(s, "/").Body.String(); strings.Contains(page, ">Now</h2>") {
		t.Error("the overview has a section for what runs, and nothing runs")
	}
	if w := do(s, http.MethodDelete, "/api/jobs/x", "", signedIn...); w.Code != http.StatusNotFound {
		t.Errorf("a job without a number: status %d", w.Code)
	}
	form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, signedIn[:2]...)
	for path, body := range map[string]string{"/cancel": "job=x", "/start": "variant=%zz", "/token": "token=%zz"} {
		if w := do(s, http.MethodPost, path, body, form...); w.Code != http.StatusBadRequest {
			t.Errorf("POST %s %s: status %d", path, body, w.Code)
		}
	}
}

// TestProgramThatCannotStart reports a program that is missing.
func TestProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()), func(c *Config) {
		c.Command = func(StartRequest) ([]string, error) {
			return []string{filepath.Join(os.TempDir(), "no such program")}, nil
		}
	})
	if w := do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, signedIn...); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no such program") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestAssets loads files of pages, and again with the tag of the first answer.
func TestAssets(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	w := get(s, "/assets/app.js")
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
	}
	if again := get(s, "/assets/app.js", "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("again: status %d", again.Code)
	}
	if w := get(s, "/favicon.ico"); w.Code != http.StatusNoContent {
		t.Errorf("the icon: status %d", w.Code)
	}
}

// TestCostsHaveOneUnit reads the unit of times in a search: the record has seconds, and the pages us.
func TestCostsHaveOneUnit(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	for path, want := range map[string][]string{
		"/tunings/20261117-073319-stage7b-dd7911": {"<dd>time, us</dd>", "Cost (us)"},
		"/knobs?variant=stage7b":                  {": cost 6.376 us, default over it"},
	} {
		body := get(s, path).Body.String()
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s has no %q", path, text)
			}
		}
		if strings.Contains(body, "seconds") {
			t.Errorf("%s names seconds", path)
		}
	}
	if got := document.CostUnit(run.ObjectiveUnit(run.ObjectiveCost)); got != "cycles ("+run.CostLabel+")" {
		t.Errorf("the unit of a simulated cost is %q", got)
	}
}

// TestTunedSelection shows the record of a selection that was tuned.
func TestTunedSelection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const id = "20261117-050000-stage7-0000aa"
	plantFiles(t, filepath.Join(dir, "tunings", id), map[string][]byte{"tuning.json": []byte(
		`{"schema_version":1,"message_type":"selection","id":"` + id + `","time":"2026-11-17T05:00:00Z","kernel":"sdpa","selection":"stage7","objective":"time","unit":"seconds","proposal":{},"evaluations":9}`)})
	s := newServer(t, openLedger(t, dir))
	if w := get(s, "/tunings/"+id); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "selection stage7") {
		t.Errorf("status %d: %s", w.Code, alert(w.Body.String()))
	}
	if w := get(s, "/tunings/"+id+"/report"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "evaluations") {
		t.Errorf("its report: status %d: %s", w.Code, alert(w.Body.String()))
	}
	if w := get(s, "/tunings"); !strings.Contains(w.Body.String(), "a table") {
		t.Error("the list does not show it")
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	v := 1234.5
	for want, got := range map[string]string{
		none: figure((*float64)(nil), 3, "x"), "1234.500x": figure(&v, 3, "x"), "12.35": number(12.346), "1.500": number(1.5), "0": number(0), "0.0005": number(0.0005), "1e+300": number(1e300),
		"NaN": number(math.NaN()), "-Inf": number(math.Inf(-1)), "1e+09x": figure(1e9, 3, "x"), "– ": figure(nil, 2, "") + " ", "1.500x (1.400 to 1.600)": speedup(&measure.Speedup{Ratio: 1.5, Low: 1.4, High: 1.6}),
		"3.00 us": figure(3.0, 2, " us"), "abc": shortID("abc"), "ab…": clip("abcdef", 3), "äöü": clip("äöü", 3),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if speedup(nil) != none {
		t.Error("a figure that was not measured is printed")
	}
	if got := strings.Join(segments("stage2+A=1+B=2"), "|"); got != "stage2|+A=1|+B=2" {
		t.Errorf("segments %q", got)
	}
}

// TestCacheIsLimited reads more records than are kept.
func TestCacheIsLimited(t *testing.T) {
	t.Parallel()
	var c cache[int]
	reads := 0
	read := func() (int, error) { reads++; return reads, nil }
	for i := range maxCached + 10 {
		_, _ = c.get(fmt.Sprint(i), read)
	}
	_, _ = c.get(fmt.Sprint(maxCached+9), read)
	if len(c.known) != maxCached || reads != maxCached+10 {
		t.Errorf("%d records are kept after %d reads", len(c.known), reads)
	}
	if _, err := c.get("x", func() (int, error) { return 0, errors.New("damaged") }); err == nil {
		t.Error("an error is kept")
	}
}
