//go:build !nobrowser

package web

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNewRunIsListed adds a run to a ledger that the server has read.
func TestNewRunIsListed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, 100)
	s := newServer(t, openLedger(t, dir))
	if w := get(s, "/"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "abcdef") {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	plantFiles(t, filepath.Join(dir, "runs", "20271231-000000-stage2-abcdef"), map[string][]byte{"run.json": []byte(`{"schema_version":1,"id":"20271231-000000-stage2-abcdef",` +
		`"time":"2027-12-31T00:00:00Z","kernel":"sdpa","variant":"stage2","stage":"stage2","device":"cuda","arch":"sm_90a","verdict":"merge","headline":{"shape":"x","p50_us":1}}`)})
	if body := get(s, "/").Body.String(); !strings.Contains(body, "abcdef") {
		t.Errorf("the overview does not list the new run")
	}
}

// BenchmarkTenThousandRuns requests pages of a large ledger. Its p95-ms is the 95th percentile of a
// request in milliseconds.
func BenchmarkTenThousandRuns(b *testing.B) {
	dir := b.TempDir()
	plant(b, dir, 10_000)
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "runs"), old, old); err != nil {
		b.Fatal(err)
	}
	s := newServer(b, openLedger(b, dir))
	get(s, "/") // reads the index
	for _, page := range []struct{ name, path string }{
		{"overview", "/"}, {"runs", "/runs?q=stage3b&page=7"}, {"knobs", "/knobs?stage=stage2"},
	} {
		b.Run(page.name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				began := time.Now()
				if w := get(s, page.path); w.Code != http.StatusOK {
					b.Fatalf("%s: status %d", page.path, w.Code)
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(1e3*times[len(times)*95/100].Seconds(), "p95-ms")
		})
	}
}

// BenchmarkBrowserLoad opens every page in Chromium. Its usable-ms is when the page can be used, in
// milliseconds from the start of its load: the mean of the medians of all pages. The slowest-ms is the
// largest of these medians.
func BenchmarkBrowserLoad(b *testing.B) {
	s, tab := browse(b, published)
	paths := browserPages(b, s)
	times := make([][]float64, len(paths))
	for b.Loop() {
		for i, path := range paths {
			tab.open(path)
			times[i] = append(times[i], value[float64](tab, `performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd`))
		}
	}
	sum, slowest := 0.0, 0.0
	for i := range times {
		slices.Sort(times[i])
		median := times[i][len(times[i])/2]
		sum, slowest = sum+median, max(slowest, median)
	}
	b.ReportMetric(sum/float64(len(paths)), "usable-ms")
	b.ReportMetric(slowest, "slowest-ms")
}
