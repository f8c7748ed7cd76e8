package ledger

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// largeRuns is the number of runs in the ledger of the benchmarks below. They are copies of the runs
// in results/, whose documents have 25 to 100 KB.
const largeRuns = 10_000

// largeVariable names a folder that keeps the ledger of these benchmarks, for further runs of them and
// to time commands on it. It has about 1 GB and takes about a minute to make.
const largeVariable = "ATTUNE_LARGE_LEDGER"

// large returns a ledger of 10,000 runs with its index.
func large(b *testing.B) string {
	b.Helper()
	dir := os.Getenv(largeVariable)
	if dir == "" {
		dir = filepath.Join(b.TempDir(), "large")
	}
	if _, err := os.Stat(filepath.Join(dir, chainName)); err != nil {
		makeLarge(b, dir)
	}
	l := open(b, dir)
	if entries, err := l.List(b.Context(), Filter{}); err != nil || len(entries) != largeRuns {
		b.Fatalf("%s has %d runs, want %d: %v", dir, len(entries), largeRuns, err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	return dir
}

// makeLarge copies results/ and adds copies of its runs with other ids, times and variants, until there
// are 10,000. Seal enters them into the chain as it does for records that git has brought.
func makeLarge(b *testing.B, dir string) {
	b.Helper()
	if err := os.CopyFS(dir, recordsOnly{os.DirFS("../../results")}); err != nil {
		b.Fatal(err)
	}
	models, err := (&Ledger{dir: "../../results", chain: &chainFile{}}).runs().ids()
	if err != nil {
		b.Fatal(err)
	}
	for n := range largeRuns - len(models) {
		copyRun(b, dir, models[n%len(models)], n)
	}
	seal(b, dir)
}

// recordsOnly hides the index and the unfinished recordings of a ledger.
type recordsOnly struct{ fs.FS }

func (f recordsOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(f.FS, name)
	var kept []fs.DirEntry
	for _, d := range all {
		if hidden, _ := filepath.Match("index.sqlite*", d.Name()); !hidden && d.Name()[0] != '.' {
			kept = append(kept, d)
		}
	}
	return kept, err
}

var (
	variantLine = regexp.MustCompile(`(?m)^  "variant": "(stage[0-6][a-c]?)",$`)
	timeLine    = regexp.MustCompile(`(?m)^  "time": ".*",$`)
	verdictLine = regexp.MustCompile(`(?m)^  "verdict": ".*",$`)
	stageLine   = regexp.MustCompile(`(?m)^  "stage": "(.*)",$`)
)

// copyRun copies a run of results/. Of four copies one has another variant, and one was not measured.
func copyRun(b *testing.B, dir, model string, n int) {
	b.Helper()
	at := dawn.Add(-time.Duration(n) * 17 * time.Minute)
	from := filepath.Join("../../results", runsName, model)
	files := map[string][]byte{}
	for _, name := range []string{runName, "samples.json.gz", "ptxas.log", "report.md"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil && !os.IsNotExist(err) {
			b.Fatal(err)
		}
		if err == nil {
			files[name] = text
		}
	}
	text := files[runName]
	id := NewID(at, string(stageLine.FindSubmatch(text)[1]))
	text = bytes.ReplaceAll(text, []byte(model), []byte(id))
	text = timeLine.ReplaceAll(text, []byte(`  "time": "`+at.Format(time.RFC3339Nano)+`",`))
	switch n / 40 % 4 {
	case 0:
		text = variantLine.ReplaceAll(text, fmt.Appendf(nil, `  "variant": "${1}+TILE_N=%d",`, 16<<(n%3)))
	case 1:
		text = verdictLine.ReplaceAll(text, []byte(`  "verdict": "not-measured",`))
	}
	files[runName] = text
	files[sumsName] = []byte(sumFiles(files).String())
	to := filepath.Join(dir, runsName, id)
	if err := os.MkdirAll(to, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o444); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen10000 opens a ledger with a current index, as every command does.
func BenchmarkOpen10000(b *testing.B) {
	dir := large(b)
	for b.Loop() {
		openAndClose(b, dir)
	}
}

// BenchmarkHistory10000 makes the queries of `attune history`: open, list, check 20 runs, shorten ids.
func BenchmarkHistory10000(b *testing.B) {
	dir := large(b)
	for b.Loop() {
		l, err := Open(b.Context(), dir)
		if err != nil {
			b.Fatal(err)
		}
		entries, err := l.List(b.Context(), Filter{Limit: 20})
		if err != nil || len(entries) != 20 {
			b.Fatal(len(entries), err)
		}
		if damaged, err := l.Unreadable(b.Context(), ids(entries)); err != nil || damaged != nil {
			b.Fatal(damaged, err)
		}
		short, err := l.ShortIDs(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			short(e.ID)
		}
		l.Close()
	}
}

// BenchmarkUnreadable200 checks as many runs as `attune history --all` does.
func BenchmarkUnreadable200(b *testing.B) {
	l := open(b, large(b))
	entries, err := l.List(b.Context(), Filter{Limit: 200})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if damaged, err := l.Unreadable(b.Context(), ids(entries)); err != nil || damaged != nil {
			b.Fatal(damaged, err)
		}
	}
}

// BenchmarkOverview10000 makes the queries of an overview in one process: the champions, the newest
// 20 runs and the newest run of each of 14 stages.
func BenchmarkOverview10000(b *testing.B) {
	l := open(b, large(b))
	overview := func(ctx context.Context) error {
		if _, err := l.Champions(ctx); err != nil {
			return err
		}
		if _, err := l.List(ctx, Filter{Limit: 20}); err != nil {
			return err
		}
		for stage := range 14 {
			if _, err := l.List(ctx, Filter{Kernel: "sdpa", Variant: fmt.Sprintf("stage%d", stage), Device: "cuda"}); err != nil {
				return err
			}
		}
		return nil
	}
	for b.Loop() {
		if err := overview(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReindex10000 rebuilds the index.
func BenchmarkReindex10000(b *testing.B) {
	l := open(b, large(b))
	for b.Loop() {
		if r, err := l.Reindex(b.Context()); err != nil || r.Runs != largeRuns {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkVerify10000 checks every file.
func BenchmarkVerify10000(b *testing.B) {
	l := open(b, large(b))
	for b.Loop() {
		if r, err := l.Verify(b.Context()); err != nil || r.Runs != largeRuns {
			b.Fatal(r.Runs, r.Problems, err)
		}
	}
}

// BenchmarkFind10000 finds a run by the end of its id, as `attune show` does.
func BenchmarkFind10000(b *testing.B) {
	l := open(b, large(b))
	for b.Loop() {
		if _, err := l.Find(b.Context(), "30323b"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRecord10000 adds a run to a ledger of 10,000 and removes it.
func BenchmarkRecord10000(b *testing.B) {
	l := open(b, large(b))
	for b.Loop() {
		e := sampleEntry(0)
		record(b, l, e)
		b.StopTimer()
		if _, err := l.Remove(b.Context(), e.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
