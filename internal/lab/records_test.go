package lab

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/kernels"
)

var updateRecords = flag.Bool("update", false, "rewrite the golden records")

// The records of attention are read by programs and by later versions. Each golden file has every
// key of a record in its order, with the figures that the fake device makes repeatable.
func TestGoldenRun(t *testing.T) {
	t.Parallel()
	s := newShippedSetup(t)
	s.declare("stage1", behaviour{Seconds: 16e-6})
	s.declare("stage2", behaviour{})
	s.runOne(s.request("stage2"))
	goldenRecord(t, s.dir, "run.json")
}

func TestGoldenBench(t *testing.T) {
	t.Parallel()
	s := newShippedSetup(t)
	r := s.bench(newPeers(t), "torch-flash", "1x2x40x64", "1x1x33x64:causal")
	r.SampleSeed = new(uint64)
	s.benched(r)
	goldenRecord(t, s.dir, "bench.json")
}

// newShippedSetup uses shipped images, so that a record does not depend on an installed compiler.
func newShippedSetup(t *testing.T) *setup {
	t.Helper()
	return newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
}

// goldenRecord compares the only record of a name below a folder with its golden file.
func goldenRecord(t *testing.T, dir, name string) {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		t.Fatalf("%d records %s: %v", len(found), name, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	got := blankRecord(text)
	golden := filepath.Join("testdata", "records", name)
	if *updateRecords {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s differs from %s (-want +got):\n%s", name, golden, cmp.Diff(string(want), string(got)))
	}
}

// unstable matches times and ids, and the hashes that every edit of a kernel's sources changes.
var unstable = regexp.MustCompile(`("(?:id|time|source_sha256|ptx_sha256|code_hash)": )"[^"]*"`)

// relaunch matches the results on inputs of a secret seed, and number one of its figures.
var (
	relaunch = regexp.MustCompile(`(?s)"relaunch": \{.*?\n      \}`)
	number   = regexp.MustCompile(`: -?[0-9][0-9.e+-]*`)
)

// blankRecord blanks what differs between two equal commands.
func blankRecord(text []byte) []byte {
	text = unstable.ReplaceAll(text, []byte(`$1"..."`))
	return relaunch.ReplaceAllFunc(text, func(part []byte) []byte { return number.ReplaceAll(part, []byte(": 0")) })
}
