package catalog

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/kernels"
)

// published opens a copy of the repository's ledger.
func published(t *testing.T) *ledger.Ledger {
	t.Helper()
	dir := t.TempDir()
	for _, kind := range []string{"runs", "champions", "benches", "tunings"} {
		if err := os.CopyFS(filepath.Join(dir, kind), os.DirFS("../../results/"+kind)); err != nil {
			t.Fatal(err)
		}
	}
	return open(t, dir)
}

func open(t *testing.T, dir string) *ledger.Ledger {
	t.Helper()
	kept, err := ledger.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	return kept
}

func list(t *testing.T, kept *ledger.Ledger) []ledger.Entry {
	t.Helper()
	entries, err := kept.List(t.Context(), ledger.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestHistory(t *testing.T) {
	t.Parallel()
	kept := published(t)
	entries := list(t, kept)
	champions, err := ReadChampions(t.Context(), kept, entries)
	if err != nil || len(champions.Champions) != 1 || champions.Champions[0].Verdict != "merge" {
		t.Fatalf("champions %+v, %v", champions, err)
	}
	h := NewHistory(entries, champions.Runs(), nil, nil)
	marked := 0
	for _, e := range h.Runs {
		if e.Champion == "sm_90" && e.ID == champions.Champions[0].Run {
			marked++
		}
	}
	if len(h.Runs) != len(entries) || marked != 1 {
		t.Errorf("%d runs, %d marked", len(h.Runs), marked)
	}
	empty, err := json.Marshal(NewHistory(nil, nil, nil, nil))
	if want := `{"schema_version":1,"runs":[],"tunings":[],"unfinished_tunings":[]}`; err != nil || string(empty) != want {
		t.Errorf("an empty history is %s, want %s", empty, want)
	}
}

func TestDamagedChampion(t *testing.T) {
	t.Parallel()
	kept := published(t)
	path, err := filepath.Glob(filepath.Join(kept.TuningFolder("x"), "../../champions/*/champion.json"))
	if err != nil || len(path) == 0 {
		t.Fatal(path, err)
	}
	if err := os.Remove(path[len(path)-1]); err != nil {
		t.Fatal(err)
	}
	if c, err := ReadChampions(t.Context(), kept, nil); err == nil || len(c.Champions) > 0 || c.Changes == nil {
		t.Errorf("champions %+v, %v", c, err)
	}
}

// TestLadder prefers timed runs, and skips the parts of selections and damaged runs.
func TestLadder(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	p50 := 1.0
	timed := ledger.Headline{P50US: &p50}
	entries := []ledger.Entry{
		{ID: "untimed", Kernel: "sdpa", Variant: "stage2", Device: "cuda"},
		{ID: "part", Kernel: "sdpa", Variant: "stage2", Device: "cuda", Headline: timed},
		{ID: "other", Kernel: "other", Variant: "stage2", Device: "cuda", Headline: timed},
		{ID: "sim", Kernel: "sdpa", Variant: "stage2", Device: "sim", Headline: timed},
		{ID: "newest", Kernel: "sdpa", Variant: "stage2", Device: "cuda", Headline: timed},
		{ID: "old", Kernel: "sdpa", Variant: "stage2", Device: "cuda", Headline: timed},
		{ID: "first", Kernel: "sdpa", Variant: "stage0", Device: "cuda"},
	}
	read := func(id string) (*run.Run, error) {
		r := &run.Run{ID: id, Variant: "stage2", Parent: "stage1"}
		if id == "part" {
			r.PartOf = "stage7"
		}
		return r, nil
	}
	runs, err := Ladder(kernel, "cuda", entries, read)
	if err != nil || len(runs) != 2 || runs[0].ID != "first" || runs[1].ID != "newest" || runs[1].Change != "+USE_WMMA_PV=1" {
		t.Errorf("ladder %+v, %v", runs, err)
	}
	damaged := func(ids ...string) func(id string) (*run.Run, error) {
		return func(id string) (*run.Run, error) {
			if slices.Contains(ids, id) {
				return nil, fmt.Errorf("run %s is damaged", id)
			}
			return read(id)
		}
	}
	runs, err = Ladder(kernel, "cuda", entries, damaged("newest", "first"))
	if len(runs) != 1 || runs[0].ID != "old" || fmt.Sprint(Reasons(err)) != "[run first is damaged run newest is damaged]" {
		t.Errorf("with damaged runs: ladder %+v, %v", runs, err)
	}
	if runs, err := Ladder(kernel, "cuda", entries, damaged("newest", "first", "old", "untimed")); len(runs) != 0 || len(Reasons(err)) != 4 {
		t.Errorf("without a readable run: ladder %+v, %v", runs, err)
	}
}

func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	kept := published(t)
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	var runs [2]*run.Run
	for i, id := range []string{"20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef"} {
		if runs[i], err = Run(t.Context(), kept, id); err != nil {
			t.Fatal(err)
		}
		if err := ReadSamples(t.Context(), kept, runs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for shapes, want := range map[string]struct {
		count int
		all   bool
	}{"": {2, false}, AllShapes: {len(runs[0].Samples), true}, "1x8x512x64": {1, false}} {
		names, err := RecordedShapes(kernel, shapes)
		if err != nil {
			t.Fatal(err)
		}
		c, all, err := Compare(runs[0], runs[1], names, shapes == "")
		if err != nil || len(c.Shapes) != want.count || all != want.all {
			t.Errorf("shapes %q: %d compared, all is %v, %v", shapes, len(c.Shapes), all, err)
			continue
		}
		if d := NewComparison(c); d.SchemaVersion != 1 || d.Ratio < 1.5 || d.Low > d.Ratio || d.High < d.Ratio {
			t.Errorf("shapes %q: document %+v", shapes, d)
		}
	}
	if c, all, err := Compare(runs[0], runs[1], []string{"9x9x9x9"}, true); err != nil || !all || len(c.Shapes) < 2 {
		t.Errorf("runs without a benchmark shape in common: %v, %v", all, err)
	}
	if _, _, err := Compare(runs[0], runs[1], []string{"9x9x9x9"}, false); err == nil {
		t.Error("a shape that was not timed is no error")
	}
	if _, err := RecordedShapes(kernel, "nonsense"); err == nil {
		t.Error("an unknown shape is no error")
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	kept := published(t)
	if b, err := Bench(t.Context(), kept, "20261116-221937-bench-6be430"); err != nil || len(b.Rows) == 0 {
		t.Errorf("bench %v", err)
	}
	if e, err := Search(t.Context(), kept, "20261117-075034-rmsnorm-64bd56"); err != nil || e.Kernel != "rmsnorm" {
		t.Errorf("search %+v, %v", e, err)
	}
	const missing = "20261117-075034-rmsnorm-000000"
	_, errRun := Run(t.Context(), kept, missing)
	_, errBench := Bench(t.Context(), kept, missing)
	_, errSearch := Search(t.Context(), kept, missing)
	errSamples := ReadSamples(t.Context(), kept, &run.Run{ID: missing})
	for _, err := range []error{errRun, errBench, errSearch, errSamples} {
		if err == nil {
			t.Error("a missing record is no error")
		}
	}
}

// TestUnfinished describes a search that runs, one of a selection that was interrupted, and one that
// is gone.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	kept := open(t, t.TempDir())
	write := func(folder, name, text string) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	running, interrupted := ledger.NewID(now.Add(time.Minute), "softmax"), ledger.NewID(now, "stage7")
	folder, unlock, err := kept.StartTuning(running)
	if err != nil {
		t.Fatal(err)
	}
	write(folder, run.TuneFile, `{"search":{"kernel":"softmax","variant":"softmax"}}`)
	write(folder, run.TuneJournal, "{}\n{}\n{}\n")
	other, unlockOther, err := kept.StartTuning(interrupted)
	if err != nil {
		t.Fatal(err)
	}
	unlockOther()
	write(other, run.SelectionFile, `{"selection":"stage7"}`)
	write(other, "1/"+run.TuneJournal, "{}\n{}\n")
	all, err := Unfinished(kept)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if u := all[0]; u.ID != running || !u.Running || u.Evaluations != 2 || u.Kernel != "softmax" || !strings.HasSuffix(u.Folder, running) {
		t.Errorf("the running search is %+v", u)
	}
	if u := all[1]; u.Running || u.Selection != "stage7" || u.Evaluations != 1 {
		t.Errorf("the interrupted search is %+v", u)
	}
	unlock()
	if Running(kept, running) || Running(kept, "20261117-075034-rmsnorm-000000") {
		t.Error("a search without a process runs")
	}
}

// TestPasses lets searches pass a filter of runs.
func TestPasses(t *testing.T) {
	t.Parallel()
	e := TuningEntry{Kernel: "sdpa", Stage: "stage2", Default: "stage2", Best: "stage2+A=1", Device: "cuda"}
	for _, c := range []struct {
		filter     ledger.Filter
		finished   bool
		unfinished int
	}{
		{ledger.Filter{}, true, 3},
		{ledger.Filter{Kernel: "sdpa"}, true, 2}, // one search does not say its kernel
		{ledger.Filter{Kernel: "other"}, false, 2},
		{ledger.Filter{Stage: "stage2", Variant: "stage2+A=1", Device: "cuda"}, true, 0},
		{ledger.Filter{Variant: "stage3b"}, false, 0},
		{ledger.Filter{Device: "sim"}, false, 0},
		{ledger.Filter{Verdict: "merge"}, false, 0},
	} {
		unfinished := []UnfinishedSearch{{Kernel: "sdpa"}, {Kernel: "other"}, {Selection: "stage7"}}
		if Passes(c.filter, e) != c.finished || len(PassingUnfinished(c.filter, unfinished)) != c.unfinished {
			t.Errorf("%+v: want %v and %d", c.filter, c.finished, c.unfinished)
		}
	}
}
