package document

import (
	"os"
	"path/filepath"
	"testing"

	"attune/internal/ledger"
	"attune/internal/spec"
	"attune/kernels"
)

var everyRun = ledger.Filter{}

// openResults opens a copy of the committed ledger, so that the index of the test is its
// own.
func openResults(t *testing.T) Reader {
	t.Helper()
	r, _ := copyResults(t)
	return r
}

// copyResults also returns the folder of the copy.
func copyResults(t *testing.T) (Reader, string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"runs", "benches", "tunings", "champions"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(results, name))); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := os.ReadFile(filepath.Join(results, "chain"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "chain"), chain, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	kept, err := ledger.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	return Reader{Ledger: kept}, dir
}

// recorded are the benches and searches of a ledger by id.
func recorded(t *testing.T, r Reader) (map[string]*BenchStudy, map[string]*TuningStudy) {
	t.Helper()
	benches, tunings := map[string]*BenchStudy{}, map[string]*TuningStudy{}
	ids, err := r.Ledger.Benches()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if benches[id], err = r.Bench(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if ids, err = r.Ledger.Tunings(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if tunings[id], err = r.Tuning(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	return benches, tunings
}

func ladderOf(t *testing.T, r Reader) *Document {
	t.Helper()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	study, err := r.Ladder(t.Context(), kernel, "cuda")
	if err != nil {
		t.Fatal(err)
	}
	d, err := study.Document()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
