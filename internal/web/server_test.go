package web

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"attune/internal/ledger"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// testToken is the token of the servers in tests.
const testToken = "0123456789abcdef0123"

// atEnd runs after the tests.
var atEnd = func() {}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	code := m.Run()
	atEnd()
	os.Exit(code)
}

// loadKernel loads the attention kernel that is embedded in the program.
var loadKernel = sync.OnceValues(func() (*spec.Kernel, error) { return spec.Load(kernels.SDPA()) })

func sdpa() (*spec.Kernel, fs.FS, error) {
	k, err := loadKernel()
	return k, kernels.SDPA(), err
}

// published is a copy of the repository's ledger.
func published(t testing.TB) *ledger.Ledger {
	t.Helper()
	dir := t.TempDir()
	copyResults(t, dir)
	return openLedger(t, dir)
}

// copyResults copies the records of the repository's ledger. An index that a command has left there
// is not one of them.
func copyResults(t testing.TB, dir string) {
	t.Helper()
	for _, kind := range []string{"runs", "champions", "benches", "tunings"} {
		if err := os.CopyFS(filepath.Join(dir, kind), os.DirFS("../../results/"+kind)); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := os.ReadFile("../../results/chain")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "chain"), chain, 0o644); err != nil {
		t.Fatal(err)
	}
}

func openLedger(t testing.TB, dir string) *ledger.Ledger {
	t.Helper()
	kept, err := ledger.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	return kept
}

// newServer is a server on a ledger, as `attune serve` makes one.
func newServer(t testing.TB, kept *ledger.Ledger, change ...func(*Config)) *Server {
	t.Helper()
	config := Config{
		Ledger: kept, LedgerName: "results", Version: "test", Kernel: sdpa, Address: "127.0.0.1:8180", Token: testToken,
		Images: func(folder fs.FS) *toolchain.Builder { return toolchain.NewBuilder(folder, nil, "") },
		Errors: log.New(&failOnPanic{t}, "", 0),
	}
	for _, c := range change {
		c(&config)
	}
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// failOnPanic fails a test whose server reports that a handler has panicked.
type failOnPanic struct{ t testing.TB }

func (f *failOnPanic) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "goroutine") {
		f.t.Errorf("the server has panicked: %s", text)
	}
	return len(text), nil
}

// get requests a path as a program of this machine does.
func get(s http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	return do(s, http.MethodGet, path, "", headers...)
}

// do sends a request. The headers are names and values in turn.
func do(s http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8180"+path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// pagePaths are the addresses of every page, on the published ledger.
func pagePaths(t testing.TB, s *Server) []string {
	t.Helper()
	l, err := s.records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{
		"/", "/runs", "/runs?q=stage2&verdict=merge", "/runs?page=9999", "/compare", "/benches", "/tunings", "/kernel", "/kernel?variant=stage7a&arch=sm_90a",
		"/kernel?variant=stage2&file=ladder/shared_scores/mainloop.cuh&line=60", "/knobs", "/knobs?stage=stage7b", "/knobs?stage=stage2&TILE_N=32", "/start", "/fleet", "/ladder",
	}
	for _, e := range l.entries {
		paths = append(paths, "/runs/"+e.ID, "/runs/"+e.ID+"/report")
	}
	for _, b := range l.benches {
		paths = append(paths, "/benches/"+b.ID, "/benches/"+b.ID+"/report")
	}
	for _, e := range l.tunings {
		paths = append(paths, "/tunings/"+e.ID)
		if e.Selection == "" { // others have no report
			paths = append(paths, "/tunings/"+e.ID+"/report")
		}
	}
	return append(paths, "/compare?a="+l.ladder[2].ID+"&b="+l.ladder[4].ID)
}

// maxWeight is the limit of a page with its assets.
const maxWeight = 300 << 10

// TestPages renders every page of the published ledger, and weighs it.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	assets := 0
	for _, name := range []string{"style.css", "app.js", "icon.svg"} {
		assets += get(s, "/assets/"+name).Body.Len()
	}
	paths := pagePaths(t, s)
	if len(paths) < 50 {
		t.Errorf("only %d pages", len(paths))
	}
	if testing.Short() {
		rand.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		paths = paths[:len(paths)/4]
	}
	for _, path := range paths {
		w := get(s, path)
		body := w.Body.String()
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d: %s", path, w.Code, alert(body))
		}
		if weight := assets + len(body); weight > maxWeight {
			t.Errorf("%s weighs %d bytes, above %d", path, weight, maxWeight)
		}
		for _, wrong := range []string{"<nil>", "%!", "NaN", "0xc0"} {
			if strings.Contains(body, wrong) {
				t.Errorf("%s contains %q", path, wrong)
			}
		}
		if strings.Count(body, "<h1") != 1 || !strings.Contains(body, `<html lang="en">`) {
			t.Errorf("%s: not one heading, or no language", path)
		}
	}
}

// alert is the message of an error page.
func alert(body string) string {
	_, text, _ := strings.Cut(body, `role="alert">`)
	text, _, _ = strings.Cut(text, "</p>")
	return text
}

// TestPagesShowTheRecords looks for figures of records on their pages.
func TestPagesShowTheRecords(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	for path, wants := range map[string][]string{
		"/benches/20261116-221937-bench-6be430": {"1.823x~", "A figure with ~ is of a kernel that computes some exponentials by a linear approximation", "Throughput at head dim 64"},
		"/":                                     {"stage3b", "sm_90", "35.60 us", "2.672x", "is 9.19x as fast as stage0", "All 48 runs"},
		"/runs/20261116-160615-stage2-448d06": {
			"2.110x", "NVIDIA H200", "14.05 us", "P·V by scalar FMA", "79 registers per thread", "attune run stage2 --shapes", "All 136 outputs are within their limits",
		},
		"/compare?a=20261116-160615-stage2-448d06&b=20261116-160644-stage3b-64f3ef": {"2.668x", "faster", "1x8x512x64"},
		"/kernel?variant=stage2&arch=sm_90a":                                        {"ladder/sdpa.cu", "79 of 128 per thread", "shipped", "L__BB0", "__global__"},
		"/knobs?stage=stage2&TILE_N=32":                                             {"TILE_N", "changed from 64", "Rules"},
	} {
		body := strings.ReplaceAll(get(s, path).Body.String(), "&#43;", "+")
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s does not contain %q", path, want)
			}
		}
	}
}

// TestEmptyLedger renders every list of a ledger that does not exist yet, and says what to do.
func TestEmptyLedger(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, filepath.Join(t.TempDir(), "none")))
	for path, want := range map[string]string{
		"/": "attune run stage2", "/runs": "attune run", "/compare": "No run of this ledger has times", "/benches": "attune bench",
		"/tunings": "attune tune", "/ladder": "<code>attune run</code>", "/kernel": "__global__", "/knobs": "TILE_N", "/start": "token", "/fleet": "attune serve --fleet",
	} {
		w := get(s, path)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d, and %q is expected: %s", path, w.Code, want, w.Body)
		}
	}
	if w := get(s, "/runs/20261116-160615-stage2-448d06"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "no runs") {
		t.Errorf("a run of an empty ledger: status %d: %s", w.Code, alert(w.Body.String()))
	}
}

// TestUnknownPages answers what does not exist with the reason.
func TestUnknownPages(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/nothing":                                           {404, "there is no GET /nothing"},
		"/api/runs/448d06":                                   {404, "give the whole id, 20261116-160615-stage2-448d06"},
		"/api/runs/20261116":                                 {404, "ambiguous"},
		"/api/runs?verdict=bogus":                            {400, "there are merge, valid-negative"},
		"/api/runs?verdct=merge":                             {400, "there are q, kernel, variant"},
		"/api/compare?a=x&b=y&shape=all":                     {400, "there are a, b, shapes"},
		"/runs?verdict=bogus":                                {400, "verdict &#34;bogus&#34;: there are merge, valid-negative"},
		"/runs/20261116-160615-stage2-000000":                {404, "nearest"},
		"/benches/x":                                         {404, "no bench"},
		"/tunings/x":                                         {404, "no search"},
		"/kernel?variant=stage99":                            {400, "stage99"},
		"/kernel?variant=stage2&arch=sm_10":                  {400, "stage2 builds for"},
		"/kernel?variant=stage2&file=../../../../etc/passwd": {404, "no file of this build"},
		"/kernel?variant=stage2&file=/etc/passwd":            {404, "no file of this build"},
		"/knobs?stage=stage99":                               {404, "stage99"},
		"/compare?a=x&b=y":                                   {404, "no run"},
		"/assets/..%2fserver.go":                             {404, "there is no file"},
		"/api/runs?limit=-1":                                 {400, "above 0"},
		"/api/compare?a=x":                                   {400, "two runs"},
		"/api/jobs/x":                                        {404, "no number"},
		"/api/jobs/7":                                        {404, "no job 7"},
	} {
		w := get(s, path)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.text) {
			t.Errorf("%s: status %d, want %d with %q: %s", path, w.Code, want.status, want.text, w.Body)
		}
	}
}

// plant writes n runs into a ledger without the flushes of a recording.
func plant(t testing.TB, dir string, n int) {
	t.Helper()
	stages := []string{"stage0", "stage1", "stage2", "stage3a", "stage3b", "stage4", "stage7a"}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Minute)
		stage := stages[i%len(stages)]
		p50 := 10 + float64(i%97)/7
		document, err := json.Marshal(map[string]any{
			"schema_version": 1, "id": fmt.Sprintf("%s-%s-%06x", at.Format("20060102-150405"), stage, i), "time": at, "kernel": "sdpa", "variant": stage, "stage": stage,
			"device": "cuda", "arch": "sm_90a", "verdict": "merge", "code_hash": fmt.Sprintf("%064x", i),
			"gates":   map[string]string{"resources": "pass", "correctness": "pass", "performance": "pass", "profile": "not-measured"},
			"reasons": map[string]any{}, "headline": map[string]any{"shape": "1x8x512x64", "p50_us": p50, "parent_ratio": 1.2},
			"correctness": []any{}, "performance": []any{}, "asked": map[string]any{"shapes": []string{"1x8x512x64"}, "seeds": []int{0}}, "attune": "test", "git": map[string]any{},
		})
		if err != nil {
			t.Fatal(err)
		}
		plantFiles(t, filepath.Join(dir, "runs", fmt.Sprintf("%s-%s-%06x", at.Format("20060102-150405"), stage, i)), map[string][]byte{"run.json": document})
	}
}
